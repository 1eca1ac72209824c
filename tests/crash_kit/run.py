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
from collections.abc import Iterator
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
    Piece("crash_kit.inbox_scenario", "sqlite"),
    Piece("crash_kit.inbox_scenario", "postgresql"),
)
_TESTS: Final = Path(__file__).parent.parent
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
def _urls() -> Iterator[dict[str, str]]:
    """A database of each kind that is needed; a machine without PostgreSQL does without."""
    wanted = {piece.database for piece in PIECES}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {"": "", "sqlite": f"sqlite:///{directory}/kit.db"}
        if "postgresql" in wanted:
            try:
                server = PostgresServer()
            except PostgresMissing as missing:
                print(f"without PostgreSQL: {missing}")
            else:
                stack.callback(server.stop)
                urls["postgresql"] = server.new_database()
        yield urls


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash", description="Kill the application kit wherever it does IO.")
    names = list(dict.fromkeys(piece.name for piece in PIECES))
    parser.add_argument("--only", choices=names, action="append", help="this piece alone; may be given again")
    parser.add_argument("--every", type=int, default=1, metavar="STEP", help="only every so many points (default 1)")
    options = parser.parse_args()
    all_found: list[Survey] = []
    print(f"{'scenario':<36}" + "".join(f"{column:>13}" for column in _COLUMNS), flush=True)
    with semel.broker() as broker, _urls() as urls:
        bootstrap = FOREIGN_CLUSTER or broker.bootstrap
        for piece in PIECES:
            if piece.database not in urls or piece.name not in (options.only or names):
                continue
            for found in surveys(piece, bootstrap, urls[piece.database], options.every):
                counts = (found.points, found.killed, found.not_reached, len(found.wrong))
                print(f"{found.scenario:<36}" + "".join(f"{count:>13}" for count in counts), flush=True)
                all_found.append(found)
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps([asdict(found) for found in all_found]))
    wrong = [f"{found.scenario}: {what}" for found in all_found for what in found.wrong]
    for what in wrong:
        print(f"\n{what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
