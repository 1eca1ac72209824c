"""What the processes of a soak hold in memory, and its directories on disk, seen from outside.

It must never ask a process for what the system knows; Java's heap alone is what Java says.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from semel.ui.demo.driver import Driver
from semel.ui.demo.stage import CountedBroker
from soak.memory import MB, Point, Samples, Verdict

BROKER: Final = "broker"
DRIVER: Final = "driver, Python"
WORKERS: Final = "driver, Python workers"
JAVA: Final = "driver, Java"
HEAP: Final = "driver, Java's heap, collected"
# How much of each a minute may add to a warm process, in MB. Java compiles for its first five minutes, until its code
# has the 48 MB that there are for it: 10 MB a minute at the most. After that it is flat.
ALLOWED_MB_PER_MINUTE: Final = {BROKER: 2.0, DRIVER: 2.0, WORKERS: 2.0, JAVA: 10.0, HEAP: 4.0}
DISK_SECONDS: Final = 15.0
# The directories of a soak.
DATA: Final = "data"
CHECKPOINTS: Final = "checkpoints"
TABLES: Final = "tables"
SCRATCH: Final = "scratch"


@dataclass(slots=True)
class Watched:
    """What was seen, from the beginning on."""

    directory: Path
    samples: Samples = field(default_factory=Samples)
    # By directory: at which second it held how many bytes.
    disk: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _looked_at: float = 0.0

    def look(self, at_seconds: float, broker: CountedBroker, driver: Driver | None) -> None:
        """At these processes, and at the directories if it is time; the driver is given when it is warm."""
        self._looked_at = at_seconds
        self.samples.take(at_seconds, BROKER, broker.process_id)
        if driver is not None:
            for process_id in driver.process_ids():
                kind = DRIVER if process_id == driver.process_id else _kind(process_id)
                self.samples.take(at_seconds, kind, process_id)
        if not self.disk or at_seconds - self.disk[DATA][-1][0] >= DISK_SECONDS:
            self.measure_disk(at_seconds)

    def measure_disk(self, at_seconds: float) -> None:
        for name in (DATA, CHECKPOINTS, TABLES, SCRATCH):
            self.disk.setdefault(name, []).append((at_seconds, bytes_in(self.directory / name)))

    def note_the_heap(self, at_seconds: float, process_id: int, held_bytes: int) -> None:
        self.samples.add(at_seconds, HEAP, process_id, held_bytes)

    def held_mb(self) -> dict[str, float]:
        """By kind: what the largest process of those that are there holds."""
        held: dict[str, float] = {}
        for (kind, _), points in self.samples.points.items():
            if points[-1][0] == self._looked_at:
                held[kind] = max(held.get(kind, 0.0), points[-1][1] / MB)
        return held

    def longest_lives(self) -> dict[str, list[Point]]:
        """By kind: the samples of the process that was watched the longest."""
        longest: dict[str, list[Point]] = {}
        for (kind, _), points in self.samples.points.items():
            if len(points) > len(longest.get(kind, [])):
                longest[kind] = points
        return longest

    def verdicts(self) -> list[Verdict]:
        return [self.samples.verdict(kind, allowed) for kind, allowed in ALLOWED_MB_PER_MINUTE.items()]


def bytes_in(directory: Path) -> int:
    """What all files below it hold; those that go away meanwhile hold nothing."""
    return sum(_sizes(directory))


def _sizes(directory: Path) -> Iterator[int]:
    # A walk passes over directories that go away under it.
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(parent, name)).st_size


def _kind(process_id: int) -> str:
    """Java has started what is neither it nor the driver."""
    with contextlib.suppress(OSError):
        if "java" in Path(f"/proc/{process_id}/comm").read_text():
            return JAVA
    return WORKERS
