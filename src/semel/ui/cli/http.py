"""`semel http`: deletes the HTTP keys that have expired; a timer of the system should run it.

It must never delete a key that a request holds.
"""

import argparse
from typing import Final

from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.subcommands import add_subcommand

EXAMPLE: Final = """  semel http reap --database sqlite:///app.db
  semel http reap --database postgresql://host/app"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="reap", required=True)
    purpose = "delete expired keys, in short transactions, and say how many they were"
    add_database(add_subcommand(actions, "reap", purpose))


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        from semel.http import reap

        count = reap(engine)
    print(f"{count} key{'' if count == 1 else 's'} deleted")
    return 0
