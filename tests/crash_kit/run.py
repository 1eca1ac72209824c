"""`make crash`: kills every piece of the application kit at every point where it does IO, and prints what came of it.

    PYTHONPATH=tests python -m crash_kit.run [--only PIECE] [--every STEP]

With SEMEL_TEST_BOOTSTRAP it runs against that cluster, else against a broker of its own. Pieces that write into a
database do so in SQLite and in PostgreSQL. SEMEL_FIGURES names a file that gets the figures as JSON, for
docs/RELIABILITY.md. Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import semel
from cluster_under_test import FOREIGN_CLUSTER
from crash_kit.survey import Survey
from semel.testing.postgres import PostgresMissing, PostgresServer


class Piece(NamedTuple):
    """A scenario, and the database it writes into, if any."""

    module: str
    database: str = ""

    @property
    def name(self) -> str:
        return self.module.removeprefix("crash_kit.").removesuffix("_scenario")


PIECES: Final = (
    Piece("crash_kit.publish_scenario"),
    Piece("crash_kit.outbox_scenario", "sqlite"),
    Piece("crash_kit.outbox_scenario", "postgresql"),
    Piece("crash_kit.http_scenario", "sqlite"),
    Piece("crash_kit.http_scenario", "postgresql"),
    Piece("crash_kit.steps_scenario", "sqlite"),
    Piece("crash_kit.steps_scenario", "postgresql"),
    Piece("crash_kit.inbox_scenario", "sqlite"),
    Piece("crash_kit.inbox_scenario", "postgresql"),
    Piece("crash_kit.django_scenario", "sqlite"),
    Piece("crash_kit.django_scenario", "postgresql"),
)
_TESTS: Final = Path(__file__).parent.parent
# They wait for one another and for sessions to end more than they compute.
_AT_ONCE: Final = 4
_COLUMNS: Final = ("points", "killed", "not reached", "wrong")


def surveys(piece: Piece, bootstrap: str, url: str, step: int = 1) -> Iterator[Survey]:
    """What came of a scenario, in a process of its own: whoever forks must not have a thread."""
    command = [sys.executable, "-m", "crash_kit.survey", piece.module, bootstrap, url, str(step)]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            found = Survey(**json.loads(line))
            found.scenario += f" ({piece.database})" if piece.database else ""
            yield found
    if running.returncode:
        yield Survey(piece.module, wrong=[f"the survey itself failed ({running.returncode})"])


@contextlib.contextmanager
def _urls(pieces: Sequence[Piece]) -> Iterator[list[tuple[Piece, str]]]:
    """Each piece with a database of its own; a machine without PostgreSQL does without those that need it."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = None
        try:
            if any(piece.database == "postgresql" for piece in pieces):
                server = PostgresServer()
                stack.callback(server.stop)
        except PostgresMissing as missing:
            print(f"without PostgreSQL: {missing}")
        urls = []
        for piece in pieces:
            if piece.database == "sqlite":
                urls.append((piece, f"sqlite:///{directory}/{piece.name}.db"))
            elif not piece.database:
                urls.append((piece, ""))
            elif server is not None:
                urls.append((piece, server.new_database()))
        yield urls


def _print_row(name: str, columns: Sequence[object]) -> None:
    print(f"{name:<36}" + "".join(f"{column:>13}" for column in columns), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash", description="Kill the application kit wherever it does IO.")
    names = list(dict.fromkeys(piece.name for piece in PIECES))
    parser.add_argument("--only", choices=names, action="append", help="this piece alone; may be given again")
    parser.add_argument("--every", type=int, default=1, metavar="STEP", help="only every so many points (default 1)")
    options = parser.parse_args()
    pieces = [piece for piece in PIECES if piece.name in (options.only or names)]
    _print_row("scenario", _COLUMNS)
    with semel.broker() as broker, _urls(pieces) as urls, ThreadPoolExecutor(_AT_ONCE) as pool:

        def surveyed(piece: Piece, url: str) -> list[Survey]:
            all_of_it = []
            for found in surveys(piece, FOREIGN_CLUSTER or broker.bootstrap, url, options.every):
                _print_row(found.scenario, (found.points, found.killed, found.not_reached, len(found.wrong)))
                all_of_it.append(found)
            return all_of_it

        all_found = [found for of_piece in pool.map(lambda one: surveyed(*one), urls) for found in of_piece]
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps([asdict(found) for found in all_found]))
    wrong = [f"{found.scenario}: {what}" for found in all_found for what in found.wrong]
    for what in wrong:
        print(f"\n{what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
