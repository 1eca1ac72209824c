"""`semel http`: deletes the HTTP keys that have expired; run by a timer of the system, or as a service.

It must never delete a key that a request holds.
"""

import argparse
from typing import Final

from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.display import counted
from semel.ui.cli.services import add_every, reap
from semel.ui.cli.subcommands import add_subcommand

EXAMPLE: Final = """  semel http reap --database sqlite:///app.db
  semel http reap --database postgresql://host/app"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="reap", required=True)
    purpose = "delete expired keys, in short transactions, and say how many they were"
    own = add_subcommand(actions, "reap", purpose)
    add_database(own)
    add_every(own)


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        from semel import http

        return reap(
            options, engine, "deletes expired HTTP keys", lambda: f"{counted(http.reap(engine), 'key')} deleted"
        )
