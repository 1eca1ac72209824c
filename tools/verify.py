"""`make verify`: everything that is too slow for `make test`, one part after another, and how long each took.

    python tools/verify.py [--only WORDS] [--list]

A part that fails does not keep the others from running. What each says goes into a file of its own below build/verify,
and the end of it is shown if the part failed. Exit code 1 if any part failed. A part is not run if all of its tests are
skipped, because the machine lacks what they need. It must not change the work tree.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
OUTPUT: Final = ROOT / "build" / "verify"
# Enough to hold the summary of a failed test run.
LINES_SHOWN: Final = 40
# What pytest says in the end if it has skipped all tests.
ALL_SKIPPED: Final = re.compile(r"\d+ skipped in ")


class Part(NamedTuple):
    """Something to run, in words for a person and as a command."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}


class Verdict(NamedTuple):
    """How a part ended, and what its last line says."""

    part: Part
    code: int
    seconds: float
    last_line: str


def make(target: str, **variables: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", target, *(f"{name}={value}" for name, value in variables.items()))


# The shortest parts first: what is wrong is known sooner.
PARTS: Final = (
    Part("logins of Go's clients", make("test-go")),
    Part("each alarm of Prometheus", make("test-alarms")),
    Part("values of a schema registry, which runs on semel", make("test-registry")),
    Part("Java clients and Kafka's console tools", make("test-java")),
    Part("the payment service under load", make("example")),
    Part("the console in a browser", make("test-browser")),
    Part("the same verdicts by access rules as Apache Kafka's", make("verdicts")),
    Part("every state of the replicated journal", make("failover")),
    Part("each object of a store, damaged in each way", make("damaged-stores")),
    Part("damage to every file of a data directory", make("damage")),
    Part("the same tests against Apache Kafka", make("test-kafka")),
    Part(
        "a move to Apache Kafka, killed three times",
        (
            *(sys.executable, "-m", "bench.on_kafka"),
            *(sys.executable, "-m", "pytest", "tests/ui/transfer", "-m", "slow or not slow"),
        ),
    ),
    Part(
        "all tests, the slow ones too, with new examples",
        make("test", ARGS="-n auto -m 'slow or not slow'"),
        {"SEMEL_TEST_EXPLORE": "1"},
    ),
    Part(
        "every fault there is: crashes, kills, chaos, soak, histories, takeovers, planted bugs",
        (sys.executable, "tools/reliability.py", "--page", str(OUTPUT / "RELIABILITY.md")),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs everything that is too slow for `make test`.")
    parser.add_argument("--only", default="", metavar="WORDS", help="run the parts whose names hold these words")
    parser.add_argument("--list", action="store_true", help="name the parts and run none")
    options = parser.parse_args()
    parts = [part for part in PARTS if options.only in part.name]
    if not parts:
        sys.exit(f"verify: no part is named like {options.only!r}; see --list")
    if options.list:
        print("\n".join(part.name for part in parts))
        return 0
    return report([verdict_on(part, number, len(parts)) for number, part in enumerate(parts, start=1)])


def verdict_on(part: Part, number: int, total: int) -> Verdict:
    """Run the part, and say so before and after."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    log = OUTPUT / f"{part.name.replace(' ', '-').replace(',', '').replace(chr(39), '')}.log"
    print(f"[{number} of {total}] {part.name} ...", flush=True)
    began = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.call(
            part.command, cwd=ROOT, env={**os.environ, **part.environment}, stdout=output, stderr=subprocess.STDOUT
        )
    seconds = time.monotonic() - began
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if code != 0:
        print("\n".join(f"    {line}" for line in lines[-LINES_SHOWN:]))
        print(f"    all it said: {log.relative_to(ROOT)}")
    return Verdict(part, code, seconds, lines[-1] if lines else "")


def report(verdicts: Sequence[Verdict]) -> int:
    """Print the table of all parts; answer the exit code."""
    width = max(len(verdict.part.name) for verdict in verdicts)
    print()
    for verdict in verdicts:
        state = state_of(verdict)
        print(f"{verdict.part.name:{width}}  {duration(verdict.seconds):>8}  {state:10}  {verdict.last_line[:100]}")
    broken = [verdict.part.name for verdict in verdicts if verdict.code != 0]
    skipped = [verdict.part.name for verdict in verdicts if state_of(verdict) == "not run"]
    total = duration(sum(verdict.seconds for verdict in verdicts))
    print(f"\nverify: {len(verdicts)} parts in {total}, {len(broken)} failed, {len(skipped)} not run")
    return 1 if broken else 0


def state_of(verdict: Verdict) -> str:
    if verdict.code != 0:
        return f"FAILED ({verdict.code})"
    return "not run" if ALL_SKIPPED.match(verdict.last_line) else "held"


def duration(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("verify: interrupted")
