"""`python -m bench.memory`: what one producer in one partition costs in memory, counted by tracemalloc over many of
them. A count, not a time: it does not depend on the machine, and the command fails when the bound does not hold. It is
the one part of the bench that looks inside semel, at `core.producers`, and must never be part of the table of peers."""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc

from semel.core.producer_table import Producers
from semel.core.producers import WINDOW_BATCHES, window_of

STATES_DEFAULT = 100_000
BYTES_PER_STATE_MAX = 100
"""The bound for a full window."""

FIRST_PRODUCER_ID = 1_000_000
FIRST_TIMESTAMP_MS = 1_750_000_000_000
RECORDS_PER_BATCH = 1000


def bytes_per_state(states: int, batches: int) -> float:
    """Fill one partition with `states` producers that take turns and send `batches` batches each, and divide.

    They take turns because real ones do, and because the record of who was heard last then moves all the time, which
    costs the table room that filling it once would not show."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        producers = Producers()
        for batch in range(batches):
            for number in range(states):
                base_offset = (batch * states + number) * RECORDS_PER_BATCH
                producers.note(
                    FIRST_PRODUCER_ID + number,
                    FIRST_TIMESTAMP_MS + base_offset,
                    0,
                    (batch + 1) * RECORDS_PER_BATCH - 1,
                    RECORDS_PER_BATCH,
                    base_offset,
                    FIRST_TIMESTAMP_MS + base_offset,
                )
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description="Count the memory of producer states.")
    parser.add_argument("--states", type=int, default=STATES_DEFAULT, help="how many producers (default %(default)s)")
    states = parser.parse_args().states
    one_batch = bytes_per_state(states, 1)
    full = bytes_per_state(states, WINDOW_BATCHES + 3)
    verdict = "holds" if full <= BYTES_PER_STATE_MAX else "DOES NOT HOLD"
    print(f"{states:,} producers in one partition, bytes for each (producer id, partition):")
    print(f"  one batch known                {one_batch:6.0f}")
    print(f"  full window of {WINDOW_BATCHES} batches       {full:6.0f}   at most {BYTES_PER_STATE_MAX}: {verdict}")
    return 0 if full <= BYTES_PER_STATE_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
