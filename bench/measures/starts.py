"""The measure of what each start costs: of the command line, of a broker in a process of its own, and of one inside a
test. Nothing is warmed up but the files of the imports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import ClassVar, Final

from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel

STARTS: Final = 15
RUN_SECONDS_MAX: Final = 60.0
# What a test pays for the first broker of its process, the imports included.
EMBEDDED: Final = """
import time
began = time.perf_counter()
import semel
with semel.broker():
    print(time.perf_counter() - began)
"""


class Starts(Measure):
    """How long `semel --help` takes; `semel serve` on an empty directory, until it prints that it is ready; and
    `semel.broker()` in a process of Python that has imported nothing yet, from `import semel` on, which is what a test
    pays for its first broker. Each is started 15 times in a round, and its time is the median."""

    name = "starts"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows: ClassVar[tuple[Row, ...]] = tuple(
        Row(title, metric, Target(Kind.VALUE_AT_MOST, bound), kafka=None, tansu=None, decimals=3, reason=reason)
        for title, metric, bound, reason in (
            ("semel --help, s", "help_seconds", 0.1, "most of it is Python's own start."),
            ("semel serve until it is ready, s", "ready_seconds", 0.15, "most of it is the imports."),
            ("semel.broker() in a new process, s", "embedded_seconds", 0.15, "most of it is the imports."),
        )
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        def help_seconds() -> float:
            began = time.perf_counter()
            _printed(str(broker.executable), "--help")
            return time.perf_counter() - began

        def ready_seconds() -> float:
            with Semel() as fresh:
                return fresh.ready_seconds

        def embedded_seconds() -> float:
            return float(_printed(sys.executable, "-c", EMBEDDED))

        return {one.__name__: _median_of(one) for one in (help_seconds, ready_seconds, embedded_seconds)}


def _median_of(start: Callable[[], float]) -> float:
    return median(start() for _ in range(STARTS))


def _printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(command)[:80]} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout
