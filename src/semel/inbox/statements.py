"""The insert that the databases spell differently: one that leaves alone what is there, and says whether it was new."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Executable, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_new(table: Table) -> dict[str, Executable]:
    """By the name of the dialect. Its rows are counted, which is cheaper than to have the new one given back."""
    return {
        "postgresql": _counted(postgresql.insert(table).on_conflict_do_nothing()),
        "sqlite": _counted(sqlite.insert(table).on_conflict_do_nothing()),
    }


def _counted(insert: Insert) -> Executable:
    # SQLAlchemy keeps the count of an insert only if it is told to, and asks for a key that the database has made
    # unless it is told not to.
    return insert.inline().execution_options(preserve_rowcount=True)


def is_new(connection: Connection, statements: Mapping[str, Executable], values: Mapping[str, Any]) -> bool:
    """Whether there was no such row; it is there now."""
    return connection.execute(statements[connection.dialect.name], values).rowcount > 0
