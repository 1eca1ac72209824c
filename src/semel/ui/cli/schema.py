"""`semel schema`: makes the tables of the application kit, checks them, or prints the SQL that makes them.

`semel.schema` does the work; a program can call it as well. It must never touch anything but semel's tables.
"""

import argparse
from typing import TYPE_CHECKING, Final

from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.schema import Made

EXAMPLE: Final = """  semel schema --database sqlite:///app.db
  semel schema inbox http --database postgresql://host/app
  semel schema --check --database postgresql://host/app
  semel schema --print --database postgresql:// > migrations/0007_semel.sql"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"{_rooms()} (all)")
    add_database(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="change nothing; fail if a table is missing or of another version"
    )
    instead.add_argument(
        "--print",
        action="store_true",
        help="print the SQL for an empty database of this kind, without connecting to it",
    )


def _rooms() -> str:
    try:
        from semel.schema.tables import ROOMS
    except ImportError:
        # Without the packages of applications, which `run` asks for.
        return "the packages whose tables are meant"
    *names, last = (room.name for room in ROOMS)
    return f"{', '.join(names)} or {last}"


def run(options: argparse.Namespace) -> int:
    with opened(options.database, may_be_new=not options.check) as engine:
        from semel import schema
        from semel.database.dialects import dialect_of

        try:
            if options.print:
                print(schema.ddl(dialect_of(engine).name, *options.rooms), end="")
            elif options.check:
                schema.check(engine, *options.rooms)
                print("the tables are as this version of semel needs them")
            else:
                for made in schema.make(engine, *options.rooms):
                    print(f"{made.room}: {_summary(made)}")
        except (schema.SchemaDiffers, schema.UnknownRoom) as error:
            raise Failure(str(error)) from error
    return 0


def _summary(made: "Made") -> str:
    came = [f"made {', '.join(made.tables)}"] if made.tables else []
    if made.version_before is not None and made.version_before < made.version:
        came.append(f"migrated from version {made.version_before} to {made.version}")
    return "; ".join(came) or f"unchanged, version {made.version}"
