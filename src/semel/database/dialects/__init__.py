"""The databases that semel knows, each with what it promises and how it is spoken to.

A further database is one more module, and a line here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Executable, Table

from semel.database.dialects.dialect import (
    COMMENTS,
    LENDER,
    PROMPTLY,
    READS,
    Dialect,
    IsClaimed,
    LockHeld,
    News,
    OpenRawTransaction,
    is_of_a_kind,
)
from semel.database.dialects.mysql import Mysql
from semel.database.dialects.postgresql import Postgresql
from semel.database.dialects.sqlite import Sqlite
from semel.database.refusals import UnknownDatabase

T = TypeVar("T")

SQLITE: Final = Sqlite()
# Drivers of MySQL give a SQLSTATE, too, which says less than their numbers; so those are asked first.
DIALECTS: Final[tuple[Dialect, ...]] = (SQLITE, Mysql(), Postgresql())
_BY_BACKEND: Final = {backend: dialect for dialect in DIALECTS for backend in dialect.backends}


def dialect_named(backend: str) -> Dialect:
    """By SQLAlchemy's name."""
    known = _BY_BACKEND.get(backend)
    if known is None:
        there = ", ".join(dialect.title for dialect in DIALECTS)
        raise UnknownDatabase(f"{backend} is no database that semel knows; there are {there}")
    return known


def dialect_of(bind: Any) -> Dialect:
    """The kind of database of a connection or an engine."""
    return dialect_named(bind.dialect.name)


def per_dialect(build: Callable[[Dialect], T]) -> dict[str, T]:
    """What has a form for each database, by the database's name."""
    return {dialect.name: build(dialect) for dialect in DIALECTS}


def insert_new(table: Table) -> dict[str, Executable]:
    """The insert of a row unless there is one with its key, for `is_new`. The inserted rows are counted, which is
    cheaper than RETURNING."""
    # By default SQLAlchemy does not keep the row count of an insert, and fetches a key that the database has generated.
    return per_dialect(lambda dialect: dialect.insert_new(table).inline().execution_options(preserve_rowcount=True))


def is_new(connection: Connection, statements: Mapping[str, Executable], values: Mapping[str, Any]) -> bool:
    """Inserts the row if it is missing. True if it was."""
    dialect = dialect_of(connection)
    return dialect.inserted_rows(connection, connection.execute(statements[dialect.name], values)) > 0
