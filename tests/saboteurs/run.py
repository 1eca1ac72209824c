"""`make saboteurs`: plants each known bug in semel, and runs the tests over it that must catch it.

    PYTHONPATH=tests python -m saboteurs.run [--mutants] [--only WORDS] [--some N] [--seconds N] [--jobs N]
                                               [--slowest N]

`make mutants` does the same with the mutants, of which there are more than a change has to wait for. Python, pytest and
all libraries are loaded once; each bug has a process that is forked from that. In the end the tests that caught a bug
run without it, and must pass. SEMEL_FIGURES names a file that gets the figures as JSON, for docs/RELIABILITY.md. With
`--some N` it plants that many, others for each commit, and with `--seconds N` only those for which there is time. Exit
code 1 if a bug was not caught, or could not be planted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from hypothesis.internal.conjecture import providers

from mutants.all_mutants import ALL_MUTANTS
from saboteurs.all_bugs import ALL_BUGS
from saboteurs.judging import Outcome, Verdict, judge, judge_again, trials_without_bugs
from saboteurs.planting import Bug
from saboteurs.trial import Ending, Process, Trial

# Fewer than there are workers in `make test`: each trial has a time in which its tests must end.
_JOBS_PER_CORE: Final = 2
# What the tests import most, and what takes longest. Nothing that starts a thread of Python.
_LIBRARIES: Final = (
    *("_hypothesis_pytestplugin", "hypothesis.strategies", "xdist.plugin", "xdist.newhooks", "tomllib"),
    # What pytest loads when it begins.
    *(f"_pytest.{name}" for name in ("helpconfig", "pastebin", "setuponly", "setupplan", "skipping", "unittest")),
    *(f"_pytest.{name}" for name in ("faulthandler", "threadexception", "tracemalloc", "unraisableexception")),
    *("_pytest._argcomplete", "_pytest.warnings"),
    *("kio.serial", "kafka", "confluent_kafka.admin", "uvloop", "crc32c", "cramjam", "lz4.frame", "snappy"),
    *("numpy.typing", "pandas", "pyarrow.compute", "pyarrow.parquet", "cryptography.x509"),
    *("sqlalchemy.orm", "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite"),
    *("psycopg", "aiosqlite", "asyncpg", "django.http", "fastapi", "flask", "httpx", "litestar"),
)


def main(arguments: Sequence[str]) -> int:
    prog = "make mutants" if "--mutants" in arguments else "make saboteurs"
    parser = argparse.ArgumentParser(prog=prog, description="Plant known bugs: the tests must catch them.")
    parser.add_argument("--mutants", action="store_true", help="plant the mutants instead")
    parser.add_argument("--only", metavar="WORDS", help="those with these words in their name or their place")
    parser.add_argument("--some", type=int, metavar="N", help="plant only this many: others for each commit")
    parser.add_argument("--seconds", type=int, metavar="N", help="plant no more of them after so much time")
    parser.add_argument(
        "--jobs",
        type=int,
        default=_JOBS_PER_CORE * len(os.sched_getaffinity(0)),
        help="how many at once (two a core)",
    )
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="name those that took longest")
    options = parser.parse_args(arguments)
    known = ALL_MUTANTS if options.mutants else ALL_BUGS
    bugs = [bug for bug in known if (options.only or "").lower() in f"{bug.name}\n{bug.place}".lower()]
    if not bugs:
        parser.error(f"no bug has {options.only!r} in its name or its place")
    if options.some is not None:
        bugs = some_of(bugs, options.some, _commit())
    # So that what was begun is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _databases():
        return run(bugs, options.jobs, options.slowest, options.seconds)


def run(bugs: Sequence[Bug], jobs: int, slowest: int = 0, seconds_max: int | None = None) -> int:
    """Plant them, say what became of each, and answer with an exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="semel-saboteurs-", ignore_cleanup_errors=True) as scratch:
        _keep_compiled(Path(scratch))
        _keep_what_hypothesis_reads(Path(scratch))
        verdicts = list(_verdicts(bugs, jobs, Path(scratch), seconds_max))
        verdicts = judge_again(verdicts, list(_endings_without_bugs(verdicts, jobs, Path(scratch))))
    _tell_slowest(verdicts, slowest)
    if len(verdicts) < len(bugs):
        print(f"\nThere was no time for {len(bugs) - len(verdicts)} more.")
    return _tell_all(verdicts, round(time.monotonic() - began))


def some_of(bugs: Sequence[Bug], count: int, commit: str) -> list[Bug]:
    """The same ones for the same commit, and each one sooner or later: no bug waits for ever."""
    return sorted(bugs, key=lambda bug: sha256(f"{commit} {bug.name}".encode()).digest())[:count]


def begun_before(end: float, trials: Iterable[Trial]) -> Iterator[Trial]:
    """One in any case, and then each for which somebody asks before that time."""
    for number, trial in enumerate(trials):
        if number and time.monotonic() >= end:
            return
        yield trial


def _commit() -> str:
    """The commit of this checkout; empty if there is no git, or none that wants to read it."""
    with contextlib.suppress(OSError):
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        return asked.stdout.strip()
    return ""


def endings(trials: Iterable[Trial], jobs: int, scratch: Path) -> Iterator[Ending]:
    """What came of each trial, as soon as it has ended; so many run at the same time."""
    waiting = iter(trials)
    running: list[Process] = []
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(running) < jobs and (trial := next(waiting, None)) is not None:
                    running.append(Process(trial, scratch))
                    selector.register(running[-1].pipe, selectors.EVENT_READ, running[-1])
                if not running:
                    return
                ready = selector.select(max(0.0, min(process.seconds_left for process in running)))
                done = [key.data for key, _ in ready if key.data.hear()]
                for process in [one for one in running if one in done or one.seconds_left <= 0]:
                    running.remove(process)
                    selector.unregister(process.pipe)
                    yield process.end()
        finally:
            for process in running:
                process.end()


def _verdicts(bugs: Sequence[Bug], jobs: int, scratch: Path, seconds_max: int | None) -> Iterator[Verdict]:
    trials: Iterable[Trial] = [Trial(bug.caught_by, bug) for bug in bugs]
    if seconds_max is None:
        # What takes longest begins first, so that no process is left with it at the end: Spark, and then what is
        # caught by waiting for it, for which less time is set than for the others.
        trials = sorted(trials, key=lambda trial: (not trial.starts_spark, trial.seconds_max))
    else:
        # The quick ones would never have their turn.
        trials = begun_before(time.monotonic() + seconds_max, trials)
    for number, ending in enumerate(endings(trials, jobs, scratch), start=1):
        assert ending.trial.bug is not None
        verdict = judge(ending.trial.bug, ending)
        _tell_progress(f"{number}/{len(bugs)}", ending, f"{verdict.outcome.value}: {verdict.bug.name}")
        yield verdict


def _endings_without_bugs(verdicts: Sequence[Verdict], jobs: int, scratch: Path) -> Iterator[Ending]:
    trials = trials_without_bugs(verdicts)
    for number, ending in enumerate(endings(trials, jobs, scratch), start=1):
        _tell_progress(f"{number}/{len(trials)}", ending, f"without a bug: {' '.join(ending.trial.arguments)}")
        yield ending


def _tell_progress(place: str, ending: Ending, what: str) -> None:
    print(f"{place:>8} {ending.seconds:5.1f} s  {what}", flush=True)


def _tell_slowest(verdicts: Iterable[Verdict], count: int) -> None:
    for verdict in sorted(verdicts, key=lambda verdict: verdict.ending.seconds, reverse=True)[:count]:
        ending = verdict.ending
        print(f"{ending.seconds:6.1f} s, {ending.cpu_seconds:5.1f} of them computing: {verdict.bug.name}, {verdict.by}")


def _tell_all(verdicts: Sequence[Verdict], seconds: int) -> int:
    """What nobody has caught, with its output; then two lines that say how it went. Answers with the exit code."""
    others = [verdict for verdict in verdicts if verdict.outcome is not Outcome.CAUGHT]
    wrong = [verdict for verdict in others if verdict.outcome is not Outcome.NOT_HERE]
    for verdict in others:
        print(f"\n{verdict.outcome.value}: {verdict.bug.name}\n{verdict.by}\n{' '.join(verdict.bug.caught_by)}")
        print(verdict.ending.output)
    figures = {"planted": len(verdicts) - len(others) + len(wrong), "caught": len(verdicts) - len(others)}
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps(figures))
    caught = "all caught" if not wrong else f"{len(wrong)} of them not caught"
    print(f"{figures['planted']} planted bugs, {caught}, in {seconds} s")
    print(f"{figures['caught']} passed, {len(wrong)} failed")
    return 1 if wrong else 0


# -- what all processes have in common -------------------------------------------------------------------------------


@contextlib.contextmanager
def _databases() -> Iterator[None]:
    """One server of each kind for all; the libraries are loaded while it starts."""
    if "SEMEL_TEST_POSTGRES" in os.environ:
        _load_libraries()
        yield
        return
    command = [sys.executable, "-m", "saboteurs.database"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as server:
        _load_libraries()
        assert server.stdout is not None
        for variable in ("SEMEL_TEST_POSTGRES", "SEMEL_TEST_MARIADB"):
            if url := server.stdout.readline().strip():
                os.environ.setdefault(variable, url)
        yield


def _load_libraries() -> None:
    # A process that was forked has none of its threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What is there already is no garbage, and nobody has to look at it again.
    gc.collect()
    gc.freeze()


def _keep_compiled(scratch: Path) -> None:
    """What the first process compiles, the others find, also where Python was told to write nothing beside the code."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(scratch / "compiled")


def _keep_what_hypothesis_reads(scratch: Path) -> None:
    """The kinds of all characters, and the constants of each module: whichever process looks them up first keeps them
    for the others. All know from this one which modules are libraries, where Hypothesis looks for none."""
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(scratch / "hypothesis")
    providers._get_local_constants()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
