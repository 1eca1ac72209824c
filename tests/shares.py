"""How the tests are shared out among worker processes: what stays together in one worker, and what begins first.

A worker starts Spark once, and its Java gets faster with every test, so the tests on one Spark session are few large
shares. All other tests go by file. The largest shares begin first, so that no worker is left with one at the end, and
the longest of them go before the others where there are not enough cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

# Tests wait for processes, disks and timers more than they compute.
WORKERS_PER_CORE: Final = 4
# A worker has loaded most libraries in the end, and holds a gigabyte; those on Spark have a Java beside them.
BYTES_PER_WORKER: Final = 1_000_000_000
# One worker, and Spark beside it.
MEMORY_BYTES_MIN: Final = 3_000_000_000
OPEN_FILES_MIN: Final = 1024
TEMPORARY_BYTES_MIN: Final = 1_000_000_000
# In the order in which they begin. What begins with one of the words of a line makes one share.
LARGE_SHARES: Final[tuple[tuple[str, ...], ...]] = (
    ("tests/spark/tables/", "tests/spark/dedup/"),
    ("tests/spark/",),
    ("tests/crash/",),
    ("tests/tutorials/",),
    ("tests/docs/test_guides.py",),
    ("tests/testing/test_postgres.py",),
    ("tests/sim/",),
)

# What takes longest from end to end, and so says how long a run takes: two workers with a Spark each.
LONGEST_SHARES: Final = 2
# Whoever runs the other shares gets two thirds as much as they do, and all of it while they wait. With much less, tests
# whose calls may take a second would fail.
NICENESS: Final = 2


def too_small(memory_bytes: int, open_files: int) -> str | None:
    """What a machine lacks on which all tests cannot run, and what to do. One file of tests may well run there."""
    if memory_bytes < MEMORY_BYTES_MIN:
        return (
            f"the tests side by side need {MEMORY_BYTES_MIN / 1e9:.0f} GB of memory, and {memory_bytes / 1e9:.1f} GB "
            "are here: run a part of them, one after the other, as .venv/bin/python -m pytest tests/log/core"
        )
    if open_files < OPEN_FILES_MIN:
        remedy = "raise the hard limit, ulimit -Hn"
        return f"the tests need {OPEN_FILES_MIN} open files, and {open_files} are allowed: {remedy}"
    return None


def unfit(temporary: Path, free_bytes: int, *, runs_programs: bool) -> str | None:
    """What the place of temporary files lacks. Spark's native libraries are loaded from there."""
    if not runs_programs:
        return f"no program may be run in {temporary} (noexec): set TMPDIR to another directory"
    if free_bytes < TEMPORARY_BYTES_MIN:
        needed = f"the tests need {TEMPORARY_BYTES_MIN / 1e9:.0f} GB in {temporary}"
        return f"{needed}, and {free_bytes / 1e9:.1f} GB are free: set TMPDIR to another directory"
    return None


def workers_at_once(cores: int, memory_bytes: int) -> int:
    """As many workers as keep the cores busy, but no more than there is memory for."""
    return max(1, min(WORKERS_PER_CORE * cores, memory_bytes // BYTES_PER_WORKER))


def share_of(nodeid: str) -> str:
    """The name of the share to which a test belongs."""
    for beginnings in LARGE_SHARES:
        if nodeid.startswith(beginnings):
            return beginnings[0]
    return nodeid.partition("::")[0]


def niceness_of(nodeid: str) -> int:
    """How much the worker that runs this test gives way to others."""
    longest = [beginnings[0] for beginnings in LARGE_SHARES[:LONGEST_SHARES]]
    return 0 if share_of(nodeid) in longest else NICENESS


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests with those of the large shares first; otherwise their order stays."""
    places = {beginnings[0]: place for place, beginnings in enumerate(LARGE_SHARES)}
    return sorted(items, key=lambda item: places.get(share_of(item.nodeid), len(places)))


class BySize(LoadScopeScheduling):
    """Gives each worker that has nothing left to do the next share."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
