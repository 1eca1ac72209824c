"""Writes docs/RELIABILITY.md: runs what injects faults into semel, and puts down what happened, zeros included.

Run by `make reliability` from the root of the repository; it takes the better part of an hour. As many of its parts run
side by side as there are cores. Where a promise is broken, or a fault never fires, the other parts go on, and the page
stays as it was. It must never round a figure or leave one out.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "RELIABILITY.md"

CRASH_MATRIX = ("tests/crash/test_matrix.py",)
COMPACTION = ("tests/crash/test_compaction_crashes.py",)
KILLS = ("tests/crash/test_kill.py",)
ANY_BYTES = ("tests/wire/test_any_bytes.py", "tests/wire/test_codec.py", "tests/log/broker/test_bad_input.py")
MACHINES = ("tests/log/core", "tests/log/storage/test_log_machine.py", "tests/log/storage/test_journal.py")

# In the statistics that Hypothesis prints for each of its tests.
EXAMPLES = re.compile(r"- (\d+) passing, (\d+) failing")
# What a run on a lossy network must count none of, in the words that `semel chaos` prints.
MUST_BE_ZERO = ("lost", "doubled", "out of order", "misplaced", "unanswered", "foreign", "seen otherwise")


# Tests try a share of these otherwise: every call to the disk, fifty kills, examples that are not always the same.
THOROUGH = {"SEMEL_TEST_EXPLORE": "1", "SEMEL_CRASH_EVERY": "1", "SEMEL_KILL_ROUNDS": "50"}
# So that no two seeds of this page share a history.
SEEDS_APART = 100_000
# What no history may show, as `semel.testing.checkers` and the simulated clients name it.
ANOMALIES = (
    *("lost write", "duplicate", "non-monotonic send", "non-monotonic poll", "unseen", "aborted read"),
    *("torn transaction", "zombie write", "dirty offsets", "non-monotonic offsets", "two owners"),
    *("gap for the next number", "repetition elsewhere", "repetition refused", "commit refused"),
    *("read past the last stable offset", "stuck last stable offset", "lost commit", "stray record", "damage"),
    *("no progress", "traceback"),
)


class Broken(Exception):
    """Something that was run failed; the message is all that it printed."""


class Suite(NamedTuple):
    """The result of some of the tests."""

    passed: int
    failed: int
    skipped: int
    examples: int
    fired: Mapping[str, int]
    judged: Mapping[str, int]


class Survey(NamedTuple):
    """The result for a piece of the application kit that was killed at all points where it does IO."""

    scenario: str
    points: int
    killed: int
    not_reached: int
    wrong: int


class Takeovers(NamedTuple):
    """The result of real clients on two brokers that share a store of this kind."""

    store: str
    counts: Mapping[str, int]
    # How long each kind of takeover took, the median.
    seconds: Mapping[str, float]


class Figures(NamedTuple):
    """All results."""

    matrix: Suite
    compaction: Suite
    kills: Suite
    network: Mapping[str, int]
    copy: Mapping[str, int]
    histories: Mapping[str, int]
    pairs: Mapping[str, int]
    takeovers: Sequence[Takeovers]
    pipeline: Mapping[str, object]
    kit: Sequence[Survey]
    any_bytes: Suite
    machines: Suite
    saboteurs: Mapping[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="what all chance begins from (7)")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="how long the network is lossy (60)")
    parser.add_argument("--histories", type=int, default=2000, metavar="N", help="how many are simulated (2000)")
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="how long the pipeline is soaked (10)")
    parser.add_argument(
        "--page", type=Path, default=PAGE, metavar="FILE", help="where to write it (docs/RELIABILITY.md)"
    )
    options = parser.parse_args()
    figures = try_everything(options.seed, options.seconds, options.histories, options.minutes)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text("\n".join(page(options.seed, figures)))
    print(f"wrote {options.page}")
    return 0


def try_everything(seed: int, seconds: int, histories: int, minutes: float) -> Figures:
    """Run the parts side by side, the longest ones first; end with an error if one of them failed."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def begin(what: str, part: Callable[..., Any], *arguments: object) -> Future[Any]:
            return pool.submit(timed, what, part, *arguments)

        parts = {
            "pairs": begin("simulated histories of brokers on a store", run_simulation, histories, seed, "--pairs"),
            "histories": begin("simulated histories", run_simulation, histories, seed),
            "matrix": begin("the crash matrix", run_tests, CRASH_MATRIX, seed),
            "pipeline": begin("the pipeline on Spark, soaked", run_soak, minutes, seed),
            "takeovers": begin("takeovers on real stores", run_takeovers, seed),
            "kit": begin("the application kit, killed", run_crashes),
            "compaction": begin("compaction on a disk that fails", run_tests, COMPACTION, seed),
            "machines": begin("the rules and the log against models", run_tests, MACHINES, seed),
            "any_bytes": begin("any bytes whatsoever", run_tests, ANY_BYTES, seed),
            "kills": begin("kill -9", run_tests, KILLS, seed),
            "copy": begin("a transactional copy", run_chaos, "copy", "--seed", str(seed)),
            "network": begin("a lossy network", run_chaos, "--seconds", str(seconds), "--seed", str(seed)),
            "saboteurs": begin("planted bugs", figures_of_program, "saboteurs.run"),
        }
    if any(isinstance(part.exception(), Broken) for part in parts.values()):
        sys.exit("reliability: a promise was broken, and the page was not written")
    return Figures(**{name: part.result() for name, part in parts.items()})


def timed(what: str, part: Callable[..., Any], *arguments: object) -> Any:
    """What the part returns; say when it begins and how long it took, or what it printed before it failed."""
    print(f"{what} ...", flush=True)
    began = time.monotonic()
    try:
        figures = part(*arguments)
    except Broken as broken:
        print(f"{broken}\n{what}: FAILED", flush=True)
        raise
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)
    return figures


def run_tests(paths: Sequence[str], seed: int) -> Suite:
    """Run these tests, at every call to the disk and with examples that the seed chooses."""
    with tempfile.TemporaryDirectory() as folder:
        results, figures = Path(folder) / "results.xml", Path(folder) / "figures.json"
        options = ["--hypothesis-show-statistics", f"--hypothesis-seed={seed}", f"--junitxml={results}"]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "slow or not slow", *options, *paths],
            cwd=ROOT,
            env={
                **os.environ,
                "SEMEL_FIGURES": str(figures),
                "SEMEL_KILL_SEED": str(seed),
                **THOROUGH,
            },
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            raise Broken(f"{run.stdout}{run.stderr}")
        counts = ElementTree.parse(results).getroot()[0].attrib
        found = json.loads(figures.read_text()) if figures.exists() else {"fired": {}, "judged": {}}
    failed = int(counts["failures"]) + int(counts["errors"])
    skipped = int(counts["skipped"])
    examples = sum(int(passing) + int(failing) for passing, failing in EXAMPLES.findall(run.stdout))
    if not examples and not found["fired"]:
        raise Broken("no fault fired and nothing was made up, which proves nothing")
    return Suite(int(counts["tests"]) - failed - skipped, failed, skipped, examples, found["fired"], found["judged"])


def run_chaos(*words: str) -> dict[str, int]:
    """The figures of `semel chaos`."""
    command = [sys.executable, "-m", "semel", "chaos", *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise Broken(f"{run.stdout}{run.stderr}")
    rows = (line.rsplit(None, 1) for line in run.stdout.splitlines())
    # A run's own duration is no promise, and the only figure with a fraction.
    return {name.strip(): int(value) for name, value in rows if "." not in value}


def figures_of_program(module: str, *words: str) -> Any:
    """The result that a program of the tests prints."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "SEMEL_FIGURES": str(figures)}
        command = [sys.executable, "-m", module, *words]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if run.returncode != 0:
            raise Broken(f"{run.stdout}{run.stderr}")
        return json.loads(figures.read_text())


def run_simulation(count: int, seed: int, *words: str) -> dict[str, int]:
    """The figures of `make sim`."""
    first = str(seed * SEEDS_APART)
    found = figures_of_program("sim.run", "--first", first, "--seeds", str(count), *words)
    return {
        "histories": found["histories"],
        "requests": sum(found["operations"].values()),
        **{f"fault {kind}": times for kind, times in sorted(found["fired"].items())},
        **{f"**{name}**": found["anomalies"].get(name, 0) for name in ANOMALIES},
    }


def run_takeovers(seed: int) -> list[Takeovers]:
    """The figures of `make takeovers`."""
    found = figures_of_program("takeovers.run", "--seed", str(seed))
    return [Takeovers(store, figures["counts"], figures["seconds"]) for store, figures in found.items()]


def run_soak(minutes: float, seed: int) -> dict[str, object]:
    """The figures of `make soak`."""
    words = ("--minutes", str(minutes), "--seed", str(seed))
    found = figures_of_program("soak.run", *words)
    return {
        "minutes": f"{found['minutes']:g}",
        "payments": found["payments"],
        **{f"micro-batches of the query {name}": count for name, count in sorted(found["batches"].items())},
        **{f"fault {kind}": times for kind, times in found["struck"].items()},
        "repetitions that the broker knew again": found["absorbed"],
        "requests turned away as late": found["fenced"],
        **{f"**{kind}, over all sinks**": count for kind, count in found["wrong"].items()},
        **{f"memory, {kind}, MB a minute": f"{grown:+.2f}" for kind, grown in found["mb_per_minute"].items()},
    }


def run_crashes() -> list[Survey]:
    """The figures of `make crash`, which leaves nothing to chance."""
    found = figures_of_program("crash_kit.run")
    return [Survey(**{**survey, "wrong": len(survey["wrong"])}) for survey in found]


def page(seed: int, figures: Figures) -> Iterator[str]:
    yield from (
        "# Reliability",
        "",
        "<!-- Written by `make reliability`; change tools/reliability.py, not this page. -->",
        "",
        "Every fault that was injected, and the result. `make reliability ARGS='--seed N'` does it all again",
        "with another seed. A broken promise, or a fault that never fired, fails the run, and no page is written.",
        "",
        *table(
            [
                ("commit", commit()),
                ("seed", seed),
                ("Python", platform.python_version()),
                ("system", f"{platform.system()}, {os.cpu_count()} cores"),
            ]
        ),
        "## A disk that crashes, tears, loses and refuses",
        "",
        "A log goes through everything that it ever does: appends, rolls, retention, deleted records and topics,",
        "transactions and their ends, offsets of groups, checkpoints, a stop, a kill, recoveries. It does so again for",
        "every call to the disk and every fault that can happen to that call. After each, recovery must bring back",
        "every acknowledged batch, once, at its offset, and each transaction whole or not at all, answer the retries",
        "of every producer as duplicates, and go on. The disk is the double of `semel.testing`, which forgets what was",
        "not synced: this is what the promise of durability rests on.",
        "",
        *table(
            [
                *((f"fault {kind}", count) for kind, count in sorted(figures.matrix.fired.items())),
                *sorted(figures.matrix.judged.items()),
                ("promises broken", figures.matrix.failed),
            ]
        ),
        "## Compaction on such a disk",
        "",
        "The same for a pass that rewrites segments: whatever happens to any call, each key's last value is there, at",
        "its offset, and what a crash leaves of a pass is gone after the next start.",
        "",
        *table(
            [
                *((f"fault {kind}", count) for kind, count in sorted(figures.compaction.fired.items())),
                *sorted(figures.compaction.judged.items()),
                ("promises broken", figures.compaction.failed),
            ]
        ),
        "## `kill -9`",
        "",
        "A real process is killed in the middle of a burst of three idempotent producers, over and over on the same",
        "directory. After each start they send again what was in flight, and the last five batches that were",
        "acknowledged. The page cache outlives a process, so this proves nothing about a loss of power.",
        "",
        *table(
            [
                *sorted(figures.kills.fired.items()),
                *sorted(figures.kills.judged.items()),
                ("promises broken", figures.kills.failed),
            ]
        ),
        "## A lossy network",
        "",
        "Two idempotent librdkafka producers and three partitions, through a proxy that loses answers, delays,",
        "truncates, cuts, resets, and sends byte by byte: `semel chaos`. In the end the log is read past the proxy and",
        "compared with what was sent and what was acknowledged.",
        "",
        *table([(f"**{name}**" if name in MUST_BE_ZERO else name, count) for name, count in figures.network.items()]),
        "## A transactional copy",
        "",
        "Workers copy records from topic to topic, in transactions with their offsets: `semel chaos copy`. Workers and",
        "broker are killed with `kill -9` while a reader of committed records follows. In the end the copy is compared",
        "with the original, record by record, and with what the reader saw.",
        "",
        *table([(f"**{name}**" if name in MUST_BE_ZERO else name, count) for name, count in figures.copy.items()]),
        "## Histories of the whole broker",
        "",
        "The broker as it is, in one thread, on a clock that is counted and not waited for, with a network and a disk",
        "in memory that fail as the seed says: idempotent and transactional producers of both versions, zombies,",
        "consumers of both isolation levels, workers that consume, transform and produce, groups of both protocols,",
        "each alone and mixed, static members, compacted topics, topics that are deleted and recreated; crashes,",
        "losses of power, a full disk, clocks that jump. Each history is healed in the end, and what clients",
        "were told is compared with what stands there. `make sim SEED=N` replays one to the byte.",
        "",
        *table(list(figures.histories.items())),
        "## Histories of brokers on a store",
        "",
        "The same clients, network and clocks, with two or three brokers that share a store, and a store that is late,",
        "slow or away, loses requests and answers, and does again what it did before. Brokers are killed, stand still",
        "while another one takes over, and lose their disks; the next one goes on with what the store has.",
        "`make sim SEED=N ARGS=--pairs` replays one.",
        "",
        *table(list(figures.pairs.items())),
        "## Takeovers on real stores",
        "",
        "Two processes of semel on one store, and two workers that copy records in transactions with librdkafka:",
        "`make takeovers`. The workers are killed, and in turn the active broker is killed with `kill -9`, killed and",
        "its disk wiped, stopped by a signal and continued when the other one has taken over, lost for good while a",
        "new one joins at another address, and asked to end; and the store is killed and started. In the end the copy",
        "is compared with the original, and with what a reader of committed records saw on the way. Seconds are those",
        "until the next broker was active, the median; the lease is 3 s. A store that is missing here could not be run",
        "on this machine.",
        "",
        *takeovers_table(figures.takeovers),
        "## The pipeline on Spark, over time",
        "",
        "A stream of payments by an idempotent producer, and two streaming queries at once: from topic to topic",
        "through lanes, and from there, deduplicated, into SQLite twice (upserted payments, merged balances) and into",
        "Delta. ACKs are lost and connections cut before both, the network hangs, Python workers are killed in their",
        "tasks, the broker with `kill -9`, and the driver with its Java and its workers: `make soak`. In the end each",
        "of five places is audited against what was sent, by ids and by amounts. Memory is what is a process's own,",
        "once it is warm: the smaller step from one third of a life to the next, of the life in which that is largest.",
        "",
        *table(list(figures.pipeline.items())),
        "## The pieces for applications, killed wherever they do IO",
        "",
        "Every piece of the application kit does a job and is killed in it, once for each point: before and after",
        "every call to the broker, and every statement, begin, commit and rollback of the database. Then it starts",
        "again and goes on, and what it has made is audited. After that the same with a rival, which does the same",
        "work under the same names at the same time; a point is not reached where the rival has been there first:",
        "`make crash`.",
        "",
        "| | points | killed | not reached | **wrong** |",
        "|---|---:|---:|---:|---:|",
        *(f"| {' | '.join([found.scenario, *(f'{count:,}' for count in found[1:])])} |" for found in figures.kit),
        "",
        "## Bad input",
        "",
        "Random bytes, truncated and altered messages, impossible lengths at every place, for every API. Each is",
        "decoded or refused with the protocol's one error, and a length that lies costs no memory. Then a real process",
        "is given every kind of bad input, with an honest producer beside it that notices nothing.",
        "",
        *table(figures_of(figures.any_bytes)),
        "## Rules and log against models",
        "",
        "Hypothesis makes up histories: producers that repeat, skip, overlap, start over, fall silent; checkpoints",
        "that fail, losses of power, restarts. What the rules and the log say is compared with a naive list of",
        "everything that was ever sent.",
        "",
        *table(figures_of(figures.machines)),
        "## Planted bugs",
        "",
        "Mistakes that could be made, or were made in systems of this kind, are planted one at a time, one piece of",
        "the source each: `make saboteurs`. The tests named beside each must fail over it, and must pass without it; a",
        "bug that nobody catches fails the run.",
        "",
        *table([(f"bugs {what}", count) for what, count in figures.saboteurs.items()]),
        "## What is not shown here",
        "",
        "- No disk was unplugged and no machine was switched off. The double of the disk stands in for that; it is no",
        "  kinder than POSIX, but it is a double.",
        "- A disk that silently returns other bytes than it was given is noticed where somebody reads a checksum: the",
        "  journal and the checkpoint at recovery, batches by `semel dump --segments` and by consumers.",
        "- A broker without a store has one disk; when that is lost, so is the log. With a store, it is the store that",
        "  must not be lost. All brokers and stores here ran on one machine.",
        "",
    )


def figures_of(suite: Suite) -> list[tuple[str, int]]:
    return [
        ("tests", suite.passed),
        ("inputs and histories made up by Hypothesis", suite.examples),
        ("skipped", suite.skipped),
        ("promises broken", suite.failed),
    ]


def takeovers_table(trials: Sequence[Takeovers]) -> Iterator[str]:
    """A column for each store."""
    yield from (f"| | {' | '.join(trial.store for trial in trials)} |", f"|---|{'---:|' * len(trials)}")
    for name in dict.fromkeys(name for trial in trials for name in trial.counts):
        title = f"**{name}**" if name in MUST_BE_ZERO else name
        yield f"| {title} | {' | '.join(f'{trial.counts.get(name, 0):,}' for trial in trials)} |"
    for kind in dict.fromkeys(kind for trial in trials for kind in trial.seconds):
        yield f"| seconds after {kind} | {' | '.join(f'{trial.seconds[kind]:.1f}' for trial in trials)} |"
    yield ""


def table(rows: Sequence[tuple[str, object]]) -> Iterator[str]:
    yield from ("| | |", "|---|---:|")
    for name, value in rows:
        yield f"| {name} | {f'{value:,}' if isinstance(value, int) else value} |"
    yield ""


def commit() -> str:
    """The commit that was tried, and whether it was exactly that."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    name = f"`{git('rev-parse', '--short=12', 'HEAD') or 'unknown'}`"
    return f"{name}, with changes" if git("status", "--porcelain", "--", "src", "tests") else name


if __name__ == "__main__":
    sys.exit(main())
