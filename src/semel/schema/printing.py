"""The SQL that makes the tables in an empty database, for those who keep migrations by hand. It asks no database."""

import re
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Dialect, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from semel.database import UnknownDatabase
from semel.schema.rooms import chosen, versions

_DIALECTS: Final[dict[str, Any]] = {"postgresql": postgresql.dialect, "sqlite": sqlite.dialect}


def ddl(database: str, *rooms: str) -> str:
    """For "postgresql" or "sqlite", the tables of these rooms, or of all."""
    if database not in _DIALECTS:
        raise UnknownDatabase(f"{database!r} is no database that semel knows; there are {', '.join(_DIALECTS)}")
    dialect: Dialect = _DIALECTS[database]()
    return "\n\n".join(f"{_tidied(statement, dialect)};" for statement in _statements(rooms)) + "\n"


def _statements(names: tuple[str, ...]) -> Iterator[Any]:
    rooms = chosen(names)
    # The one table that is there already where another room's were made before.
    yield CreateTable(versions, if_not_exists=True)
    for room in rooms:
        for table in room.tables:
            yield CreateTable(table)
            yield from (CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
        yield insert(versions).values(room=room.name, version=room.version)


def _tidied(statement: Any, dialect: Dialect) -> str:
    written = str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})).strip()
    return re.sub(r"[ \t]+$", "", written.replace("\t", "    "), flags=re.MULTILINE)
