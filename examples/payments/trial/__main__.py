"""`python -m payments.trial`: runs the whole service on this machine with many failures in a short time, and then
checks the books.

Exit code 0 if they are balanced and each request has exactly one answer, 1 if not, 2 if the arguments are wrong.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from payments.trial.databases import Databases, InUse, PostgresqlSchemas, SqliteFiles
from payments.trial.plan import plan
from payments.trial.processes import NotWorking
from payments.trial.report import report
from payments.trial.stage import VICTIMS, TablesMissing
from payments.trial.trial import Outcome, Say, run
from payments.trial.verdict import wrong
from semel.database import UnknownDatabase


def main() -> int:
    options = _options()
    seed = random.randrange(2**31) if options.seed is None else options.seed
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    say(f"--seed {seed}: {options.requests:,} requests, and each process is killed so often: {options.kills}")
    try:
        return _try(options, seed, say)
    except (InUse, NotWorking, TablesMissing, UnknownDatabase, SQLAlchemyError) as error:
        print(f"trial: {error}", file=sys.stderr)
        return 1


def _try(options: argparse.Namespace, seed: int, say: Say) -> int:
    directory = Path(tempfile.mkdtemp(prefix="payments-"))
    databases: Databases = PostgresqlSchemas(options.database) if options.database else SqliteFiles(directory)
    try:
        databases.make()
    except (InUse, SQLAlchemyError):
        directory.rmdir()
        raise
    # After a failure, everything stays, so that a person can look at it.
    keeps = True
    try:
        steps = plan(seed, options.requests, VICTIMS, options.kills)
        outcome = asyncio.run(_until_told_to_end(run(steps, seed, databases, directory, say)))
        mistakes = list(wrong(outcome))
        print(report(outcome, mistakes))
        keeps = options.keep or bool(mistakes)
        return 1 if mistakes else 0
    except asyncio.CancelledError:
        keeps = options.keep
        return 130
    finally:
        if keeps:
            print(f"databases, log and what the processes said stay: {directory}")
        else:
            databases.drop()
            shutil.rmtree(directory)


async def _until_told_to_end(trial: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run the trial. If it is interrupted, even several times, it leaves no process behind."""
    task = asyncio.ensure_future(trial)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    return await task


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m payments.trial",
        description="Run the payment service under load, kill each of its processes, and check its books.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--seed", type=int, help="plan the same requests and kills again; how they interleave is up to the machine")
    add("--requests", type=_count, default=2000, metavar="N", help="how many different requests (2000)")
    add("--kills", type=_count, default=3, metavar="N", help="how often each process is killed (3)")
    add("--database", type=_postgresql, metavar="URL", help="postgresql://...; without it, SQLite in a new directory")
    add("--keep", action="store_true", help="leave databases, log and output of the processes where they are")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def _postgresql(text: str) -> str:
    if not text.startswith("postgresql://"):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL of PostgreSQL: postgresql://user@host/database is")
    return text


if __name__ == "__main__":
    sys.exit(main())
