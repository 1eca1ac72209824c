"""Takeovers on real stores, with real clients: what was lost, doubled or disordered, and how long each took.

    PYTHONPATH=tests python -m takeovers.run [--store NAME] [--records N] [--takeovers N] [--seed N]

Exit code 1 if a promise was broken. A store that this machine cannot run is named, and left out. SEMEL_FIGURES names a
file that gets the figures as JSON.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.process import SkipReason

from semel.chaos.copy import CopyReport
from takeovers.servers import SERVERS
from takeovers.trial import KILL_STORE, FaultyPair, Takeover, faulty_pair, run_trial


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make takeovers", description="Takeovers on real stores, with real clients.")
    parser.add_argument("--store", action="append", choices=SERVERS, help="on this one; may be given again (all)")
    parser.add_argument("--records", type=int, default=100_000, metavar="N", help="how many are copied (100000)")
    parser.add_argument("--takeovers", type=int, default=20, metavar="N", help="how many faults of the brokers (20)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="what chance begins from (7)")
    options = parser.parse_args(arguments)
    figures = {}
    for name in options.store or SERVERS:
        print(f"-- {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="semel-takeovers-") as directory:
            try:
                with faulty_pair(Path(directory), SERVERS[name]) as pair:
                    report = run_trial(pair, options.records, options.takeovers, options.seed, note=lambda _: None)
            except SkipReason as missing:
                print(f"left out: {missing}")
                continue
        print("\n".join([*report.lines(), f"{KILL_STORE:<20} {pair.store_kills}", *lines_of(pair.takeovers)]))
        for violation in report.violations:
            print(f"BROKEN: {violation}")
        figures[name] = figures_of(report, pair)
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps(figures))
    return 1 if not figures or any(one["violations"] for one in figures.values()) else 0


def lines_of(takeovers: Sequence[Takeover]) -> list[str]:
    """The times by kind, until the next broker was active."""
    return [
        f"{kind:<20} {len(times)} takeovers in {statistics.median(times):.1f} s (median; longest {max(times):.1f} s)"
        for kind, times in by_kind(takeovers).items()
    ]


def by_kind(takeovers: Sequence[Takeover]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for takeover in takeovers:
        times.setdefault(takeover.kind, []).append(takeover.seconds)
    return times


def figures_of(report: CopyReport, pair: FaultyPair) -> dict[str, object]:
    times = by_kind(pair.takeovers)
    return {
        "counts": {
            "records": report.copied,
            "workers killed": report.workers_killed,
            **{kind: len(times[kind]) for kind in times},
            KILL_STORE: pair.store_kills,
            "lost": report.lost,
            "doubled": report.doubled,
            "out of order": report.out_of_order,
            "foreign": report.foreign,
            "seen otherwise": report.seen_otherwise,
        },
        "seconds": {kind: statistics.median(times[kind]) for kind in times},
        "violations": report.violations,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
