"""The connection of a command to an application's database: one option, one engine, and one line for each error."""

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from sqlalchemy import Engine

_SHOWS_PASSWORD: Final = "every process on this machine can read the password in the URL of the database: leave it out"
_ELSEWHERE: Final = {
    "postgresql": ", and set PGPASSWORD or use ~/.pgpass",
    **dict.fromkeys(
        ("mysql", "mariadb"),
        ", and add ?read_default_file=FILE to it, where FILE is one that only you can read, with password=... below "
        "[client]",
    ),
}

_PASSWORD: Final = re.compile(r"[\w+]+://[^/?#@]*:[^/?#]*@|[\w+]+://[^?#]*\?(?:.*&)?password=")


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database", required=True, metavar="URL", help="sqlite:///FILE, postgresql://HOST/NAME or mysql://HOST/NAME"
    )


def warn_of_password(url: str) -> None:
    """Tell the user, if an argument of the command has a password."""
    if _PASSWORD.match(url):
        elsewhere = _ELSEWHERE.get(re.split(r"[+:]", url)[0], "")
        print(f"semel: {_SHOWS_PASSWORD}{elsewhere}", file=sys.stderr)


@contextlib.contextmanager
def opened(url: str, *, may_be_new: bool = False) -> Iterator["Engine"]:
    """A context with an engine for the command. Missing packages and errors of the database become a `Failure`.

    SQLite creates a missing file. So that a mistyped name leaves no file behind, the file must exist, unless it
    `may_be_new`.
    """
    try:
        from sqlalchemy.exc import DBAPIError, NoSuchModuleError

        from semel.database import REMEDY, UnknownDatabase, is_missing_table
        from semel.database.engines import blocking_engine_of, missing_file
        from semel.database.errors import one_line
    except ImportError as missing:
        raise Failure("this command needs SQLAlchemy, which is missing: pip install 'semel[app]'") from missing
    try:
        engine = blocking_engine_of(url)
        warn_of_password(url)
        if not may_be_new and (file := missing_file(engine)) is not None:
            raise Failure(f"{file}: there is no such file")
        try:
            yield engine
        finally:
            engine.dispose()
    except (UnknownDatabase, NoSuchModuleError, ImportError) as error:
        raise Failure(str(error)) from error
    except TypeError as error:
        # So PyMySQL says that it does not know an option.
        if "unexpected keyword argument" not in str(error):
            raise
        raise Failure(f"the database: an option of the URL is unknown: {error}") from error
    except DBAPIError as error:
        remedy = f"; {REMEDY}" if is_missing_table(error) else ""
        raise Failure(f"the database: {one_line(error)}{remedy}") from error
