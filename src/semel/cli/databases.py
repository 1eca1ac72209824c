"""How the commands for an application's database reach it: one option, one engine, and one line for what goes wrong."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from semel.cli.errors import Failure

if TYPE_CHECKING:
    from sqlalchemy import Engine


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", required=True, metavar="URL", help="sqlite:///FILE or postgresql://HOST/NAME")


@contextlib.contextmanager
def opened(url: str, *, may_be_new: bool = False) -> Iterator["Engine"]:
    """An engine for the time of the command. What the block imports and what its database says may fail in it, too.

    SQLite makes a file that is not there. A slip of the pen is not to leave one behind, unless the file `may_be_new`.
    """
    try:
        from sqlalchemy.exc import DBAPIError, NoSuchModuleError

        from semel.database import REMEDY, UnknownDatabase, engine_of, is_missing_table
        from semel.database.errors import one_line
    except ImportError as missing:
        raise Failure("this command needs SQLAlchemy, which is missing: pip install 'semel[app]'") from missing
    try:
        engine = engine_of(url)
        if engine.dialect.is_async:
            # The URL of an application on asyncio will do: the command takes a driver of its own.
            engine = engine_of(engine.url.set(drivername=engine.url.get_backend_name()))
        if not may_be_new:
            _refuse_missing_file(engine)
        try:
            yield engine
        finally:
            engine.dispose()
    except (UnknownDatabase, NoSuchModuleError, ImportError) as error:
        raise Failure(str(error)) from error
    except DBAPIError as error:
        remedy = f"; {REMEDY}" if is_missing_table(error) else ""
        raise Failure(f"the database: {one_line(error)}{remedy}") from error


def _refuse_missing_file(engine: "Engine") -> None:
    file = engine.url.database or ":memory:"
    is_file = engine.dialect.name == "sqlite" and not file.startswith((":memory:", "file:"))
    if is_file and not Path(file).exists():
        raise Failure(f"{file}: there is no such file")
