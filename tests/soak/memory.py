"""Whether processes that run for long stay as large as they are: what they hold, over time, and how it tends.

Each process is a line of its own, from its first sample to its last: who is started again is counted from there. It
must never call memory flat that it has not watched for long enough.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

# What a process takes at first it takes once: modules, pools, code that gets compiled.
WARM_UP_SECONDS: Final = 60.0
# Over less than this, the noise of a few allocations looks like a trend: of 23 workers of Python that lived for about
# two minutes, one had two steps of 2 MB.
JUDGED_SECONDS_MIN: Final = 180.0
# A median of fewer than three is none.
POINTS_MIN: Final = 9

_KB: Final = 1024
MB: Final = 1024 * 1024

# Seconds, and bytes.
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """What became of one process, or of one measure of it, once it was warm."""

    seconds: float
    # The medians of its first and of its last third.
    first_mb: float
    last_mb: float
    mb_per_minute: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of all processes of a kind: the trend of the one that lived longest, and the steepest."""

    kind: str
    lives: int
    judged: int
    largest_mb: float
    longest: Trend | None
    steepest_mb_per_minute: float
    allowed_mb_per_minute: float

    @property
    def is_flat(self) -> bool:
        return self.steepest_mb_per_minute <= self.allowed_mb_per_minute


@dataclass(slots=True)
class Samples:
    """By kind and process: what was seen of it."""

    points: dict[tuple[str, int], list[Point]] = field(default_factory=lambda: defaultdict(list))

    def take(self, at_seconds: float, kind: str, process_id: int) -> None:
        """What the process holds of its own now; nothing where it is gone."""
        held = own_bytes(process_id)
        if held:
            self.add(at_seconds, kind, process_id, held)

    def add(self, at_seconds: float, kind: str, process_id: int, held_bytes: float) -> None:
        self.points[kind, process_id].append((at_seconds, held_bytes))

    def verdict(self, kind: str, allowed_mb_per_minute: float) -> Verdict:
        lives = [points for (of, _), points in self.points.items() if of == kind]
        trends = [found for found in map(trend, lives) if found is not None]
        return Verdict(
            kind,
            lives=len(lives),
            judged=len(trends),
            largest_mb=max((held for points in lives for _, held in points), default=0.0) / MB,
            longest=max(trends, key=lambda found: found.seconds, default=None),
            steepest_mb_per_minute=max((found.mb_per_minute for found in trends), default=0.0),
            allowed_mb_per_minute=allowed_mb_per_minute,
        )


def own_bytes(process_id: int) -> int:
    """The memory that goes away with this process: files that it has mapped are the system's."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * _KB for line in lines if line.startswith("RssAnon:")), 0)


def trend(points: Sequence[Point]) -> Trend | None:
    """How a warm process tends; None where it was not watched for long enough.

    Its life is cut into thirds, and the smaller of the two steps between their medians counts: what leaks grows in
    both, while a peak does not move a median, and what is taken once, whenever that is, makes one step."""
    warm = [point for point in points if point[0] >= points[0][0] + WARM_UP_SECONDS]
    seconds = warm[-1][0] - warm[0][0] if warm else 0.0
    if seconds < JUDGED_SECONDS_MIN or len(warm) < POINTS_MIN:
        return None
    cuts = [round(len(warm) * third / 3) for third in range(4)]
    # A level that was held, and none in between: a step in the middle of a third would make two of one.
    levels = [statistics.median_low(held for _, held in warm[begin:end]) / MB for begin, end in pairwise(cuts)]
    step_mb = min(later - earlier for earlier, later in pairwise(levels))
    return Trend(seconds, levels[0], levels[-1], step_mb * 60 / (seconds / 3))
