"""A connection of a driver, lent to SQLAlchemy for as long as some statements take.

It belongs to somebody else, who goes on with it: so SQLAlchemy may neither end a transaction on it nor set anything,
and it gets rows as it expects them, whatever the owner has made of his.
"""

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import NullPool

from semel.database.errors import UnknownConnection

_DRIVER: Final = "semel_borrowed"


@contextlib.contextmanager
def borrowed(raw: Any) -> Iterator[Connection]:
    """An SQLAlchemy connection that sends its statements on this one."""
    backend, plainly = _backend_of(raw)
    with _set(raw, plainly):
        token = _lent.set(raw)
        try:
            connection = _borrower(backend).connect()
        finally:
            _lent.reset(token)
        with connection:
            yield connection


# The raw connection that the next connect() of a borrowing engine gets.
_lent: ContextVar[Any] = ContextVar("lent")


def _backend_of(raw: Any) -> tuple[str, dict[str, Any]]:
    """The kind of database, and what a connection to it has to be set to for rows to be tuples."""
    if isinstance(raw, sqlite3.Connection):
        return "sqlite", {"row_factory": None, "text_factory": str}
    # Who has such a connection has imported psycopg; who has not need not have it.
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(raw, psycopg.Connection):
        return "postgresql", {"row_factory": psycopg.rows.tuple_row, "cursor_factory": psycopg.Cursor}
    raise UnknownConnection(raw)


@contextlib.contextmanager
def _set(raw: Any, attributes: dict[str, Any]) -> Iterator[None]:
    own = {name: getattr(raw, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(raw, name, value)
        yield
    finally:
        for name, value in own.items():
            setattr(raw, name, value)


@cache
def _borrower(backend: str) -> Engine:
    return create_engine(f"{backend}+{_DRIVER}://", creator=_lent.get, poolclass=NullPool, pool_reset_on_return=None)


class _Borrowing:
    """What SQLAlchemy does to connections besides sending statements."""

    def on_connect_url(self, _url: object) -> None:
        """Nothing is set up: it would be once more each time, as a handler of notices that is added to the others."""

    def do_begin(self, _connection: object) -> None:
        pass

    def do_commit(self, _connection: object) -> None:
        pass

    def do_rollback(self, _connection: object) -> None:
        pass

    def do_close(self, _connection: object) -> None:
        pass

    def do_terminate(self, _connection: object) -> None:
        pass


class BorrowingSqlite(_Borrowing, SQLiteDialect_pysqlite):
    supports_statement_cache = True


class BorrowingPostgresql(_Borrowing, PGDialect_psycopg):
    supports_statement_cache = True


registry.register(f"sqlite.{_DRIVER}", __name__, BorrowingSqlite.__name__)
registry.register(f"postgresql.{_DRIVER}", __name__, BorrowingPostgresql.__name__)
