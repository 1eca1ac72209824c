"""Run many histories, or replay one: `make sim SEEDS=2000`, `make sim SEED=17`. With `ARGS=--pairs` they are those of
two or three brokers on a store.

It prints what was done and what went wrong on the way, by kind; the exit code is 1 if there was an anomaly, or a kind
of fault that never fired. With one seed it prints the history as well. SEMEL_FIGURES names a file that gets the
figures as JSON, for docs/RELIABILITY.md.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sim.faults import KINDS, KINDS_OF_PAIRS, never_fired
from sim.simulation import Outcome, simulate, simulate_pair

PROGRESS_SEEDS: Final = 50


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories to run")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--seed", type=int, help="run this one alone, and print it")
    parser.add_argument("--pairs", action="store_true", help="two or three brokers on a store, and not one on a disk")
    wanted = parser.parse_args(arguments)
    kind = PAIRS if wanted.pairs else SINGLE
    return run_many(kind, wanted.first, wanted.seeds) if wanted.seed is None else replay(kind, wanted.seed)


class Kind(NamedTuple):
    """A kind of history."""

    simulate: Callable[[int], Outcome]
    faults: tuple[str, ...]
    option: str


SINGLE: Final = Kind(simulate, KINDS, "")
PAIRS: Final = Kind(simulate_pair, KINDS_OF_PAIRS, " ARGS=--pairs")


def replay(kind: Kind, seed: int) -> int:
    outcome = kind.simulate(seed)
    print("\n".join(outcome.history))
    print(f"seed {seed}: {len(outcome.history)} events, sha256 {outcome.digest}")
    for anomaly in outcome.anomalies:
        print(f"anomaly: {anomaly}")
    return 1 if outcome.anomalies else 0


def run_many(kind: Kind, first: int, count: int) -> int:
    began = time.monotonic()
    fired: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    anomalies: Counter[str] = Counter()
    events = 0
    for seed in range(first, first + count):
        outcome = kind.simulate(seed)
        fired += outcome.fired
        operations += outcome.operations
        events += len(outcome.history)
        for anomaly in outcome.anomalies:
            name, _, text = anomaly.partition(": ")
            anomalies[name] += 1
            print(f"seed {seed}: {name}: {text}")
        if seed % PROGRESS_SEEDS == PROGRESS_SEEDS - 1 and sys.stderr.isatty():
            print(f"{seed - first + 1} histories", file=sys.stderr, end="\r")
        if outcome.anomalies:
            print(f"    replay it with: make sim SEED={seed}{kind.option}", flush=True)
    missing = never_fired(fired, kind.faults)
    print(f"histories: {count}, from seed {first}, in {time.monotonic() - began:.0f} s")
    print(f"events noted: {events}")
    _print_table("operations", operations)
    _print_table("faults fired", fired)
    _print_table("anomalies", anomalies)
    for fault in missing:
        print(f"never fired: {fault}")
    if path := os.environ.get("SEMEL_FIGURES"):
        figures = {"histories": count, "operations": operations, "fired": fired, "anomalies": anomalies}
        Path(path).write_text(json.dumps(figures))
    return 1 if anomalies or missing else 0


def _print_table(title: str, counts: Counter[str]) -> None:
    print(f"{title}: {counts.total()}")
    for name, count in sorted(counts.items()):
        print(f"{count:10}  {name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
