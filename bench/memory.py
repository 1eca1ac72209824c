"""`python -m bench.memory`: what producers cost, each in one partition: their memory, counted by tracemalloc, what a
checkpoint writes of them, and how long a start takes to read them again. The counts do not depend on the machine, and
the command fails when a bound on one of them does not hold; the times are only printed. It is the one part of the bench
that looks inside semel, and must never be part of the table of peers.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import NamedTuple

from semel.log.core.producer_table import Producers, Snapshot
from semel.log.storage.files import DiskFiles
from semel.log.storage.producer_pages import ProducerPages, numbers_in, pack_places, pages_at, path_of
from semel.wire.sequences import WINDOW_BATCHES, window_of

STATES_DEFAULT = 100_000
BYTES_PER_STATE_MAX = 100
"""The bound for a full window."""
HEARD_AGAIN = 100
"""The number of producers that are heard between two checkpoints."""
PAGES_PER_PRODUCER_MAX = 4
"""How many pages the second checkpoint may write for each of them: the one it leaves, the one that somebody else goes
into instead, and the halves of one that was full."""

FIRST_PRODUCER_ID = 1_000_000
FIRST_TIMESTAMP_MS = 1_750_000_000_000
RECORDS_PER_BATCH = 1000
TAKE_TURNS = 1000
"""The number of producers that are active at the same time."""


class Kept(NamedTuple):
    """What checkpoints wrote, in bytes and seconds, and how long reading it took."""

    page_bytes: float
    first_bytes: int
    first_s: float
    second_bytes: int
    snapshot_s: float
    read_s: float


def filled(states: int, batches: int) -> Producers:
    """A partition with so many producers, each of which has sent so many batches."""
    producers = Producers()
    base_offset = 0
    for first in range(0, states, TAKE_TURNS):
        for batch in range(batches):
            for number in range(first, min(first + TAKE_TURNS, states)):
                base_offset += RECORDS_PER_BATCH
                hear(producers, number, batch, base_offset)
    return producers


def hear(producers: Producers, number: int, batch: int, base_offset: int) -> None:
    producers.note(
        FIRST_PRODUCER_ID + number,
        FIRST_TIMESTAMP_MS + base_offset,
        0,
        (batch + 1) * RECORDS_PER_BATCH - 1,
        RECORDS_PER_BATCH,
        base_offset,
        FIRST_TIMESTAMP_MS + base_offset,
    )


def bytes_per_state(states: int, batches: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        producers = filled(states, batches)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    _check_windows(producers, states, batches)
    return (after - before) / states


def _check_windows(producers: Producers, states: int, batches: int) -> None:
    """A figure for windows that are not as full as they should be would be a lie."""
    expected = min(batches, WINDOW_BATCHES)
    windows = [len(window_of(state)) for _, state in producers.items()]
    if windows != [expected] * states:
        raise AssertionError(f"{states} windows of {expected} batches expected, got {len(windows)}: {set(windows)}")


def kept(states: int) -> Kept:
    """Two checkpoints of a partition with full windows, and a start from the second."""
    producers = filled(states, WINDOW_BATCHES)
    with tempfile.TemporaryDirectory() as directory:
        files = DiskFiles(Path(directory))
        on_disk = ProducerPages(files, 0)
        began = time.perf_counter()
        on_disk.put(producers.pages)
        first_s = time.perf_counter() - began
        first_bytes = _bytes_in(files)
        for number in range(0, states, max(states // HEARD_AGAIN, 1)):
            hear(producers, number, WINDOW_BATCHES, (states + number) * 10 * RECORDS_PER_BATCH)
        began = time.perf_counter()
        snapshot = producers.snapshot()
        snapshot_s = time.perf_counter() - began
        on_disk.put(snapshot.pages)
        second_bytes = _bytes_in(files) - first_bytes
        began = time.perf_counter()
        again = Producers()
        again.restore(Snapshot(snapshot.recent, list(pages_at(memoryview(pack_places(snapshot.pages)), files))))
        read_s = time.perf_counter() - began
        if len(again) != states:
            raise AssertionError(f"{states} producers expected, {len(again)} were read")
        return Kept(first_bytes / len(snapshot.pages), first_bytes, first_s, second_bytes, snapshot_s, read_s)


def _bytes_in(files: DiskFiles) -> int:
    return sum(files.open(path_of(number)).size() for number in numbers_in(files))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description="Count what producers cost.")
    parser.add_argument("--states", type=int, default=STATES_DEFAULT, help="how many producers (default %(default)s)")
    states = parser.parse_args().states
    one_batch, full, costs = bytes_per_state(states, 1), bytes_per_state(states, WINDOW_BATCHES), kept(states)
    changed_max = PAGES_PER_PRODUCER_MAX * HEARD_AGAIN * costs.page_bytes
    is_small, is_part = full <= BYTES_PER_STATE_MAX, costs.second_bytes <= changed_max
    print(f"{states:,} producers in one partition, bytes of memory for each (producer id, partition):")
    print(f"  one batch known                {one_batch:8.0f}")
    bound = f"at most {BYTES_PER_STATE_MAX}: {_verdict(is_small)}"
    print(f"  full window of {WINDOW_BATCHES} batches       {full:8.0f}   {bound}")
    print("checkpoints of them with full windows:")
    print(f"  the first writes               {costs.first_bytes / 1e6:8.2f} MB in {costs.first_s:.2f} s, in a thread")
    print(
        f"  the next, {HEARD_AGAIN} heard again     {costs.second_bytes / 1e6:8.2f} MB   "
        f"at most {changed_max / 1e6:.2f}: {_verdict(is_part)}"
    )
    print(f"  holds the event loop for       {1000 * costs.snapshot_s:8.1f} ms")
    print(f"  a start reads them in          {costs.read_s:8.2f} s")
    return 0 if is_small and is_part else 1


def _verdict(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"


if __name__ == "__main__":
    sys.exit(main())
