"""Finds the SQLAlchemy connection for the caller's object, and checks its transaction.

All statements are written once, in SQLAlchemy Core. This module must never end a transaction, nor begin one that the
caller does not know about.
"""

import contextlib
import os
import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import NullPool

from semel.database.errors import (
    NotImmediate,
    NotInTransaction,
    UnknownConnection,
    UnknownDatabase,
    told_remedy,
)
from semel.database.poolers import check_prepares_nothing_through_pooler
from semel.database.transactions import watch
from semel.database.writers import PATH

if TYPE_CHECKING:
    import psycopg

    Handle: TypeAlias = Connection | Session | scoped_session[Session] | sqlite3.Connection | psycopg.Connection[Any]
    AsyncHandle: TypeAlias = AsyncConnection | AsyncSession | async_scoped_session[AsyncSession]
else:
    Handle = AsyncHandle = Any

T = TypeVar("T")

_SQLITE_BEGIN: Final = "execute BEGIN IMMEDIATE first"
# The driver under SQLAlchemy begins a transaction when something is written first, which is too late.
_SQLALCHEMYS_BEGIN: Final = (
    "make the engine by semel.database.engine_of(url), or call semel.database.begin_immediately(engine) when it is "
    "made (for an AsyncEngine, with its sync_engine)"
)
_POSTGRESQL_BEGIN: Final = "take a connection that is not on autocommit, or begin a transaction on it first"


@contextlib.contextmanager
def within(handle: Handle) -> Iterator[Connection]:
    """The connection of `handle`, in the caller's transaction. Raises if a claim could be lost in it."""
    with told_remedy():
        if isinstance(handle, Connection):
            yield _watched(handle)
        elif isinstance(handle, Session | scoped_session):
            yield _watched(handle.connection())
        else:
            with borrowed(handle) as connection:
                yield _checked(connection)


async def within_async(handle: AsyncHandle, work: Callable[[Connection], T]) -> T:
    """Do `work` on the connection of an asynchronous handle, with the same checks and without blocking the event
    loop."""
    if isinstance(handle, AsyncSession | async_scoped_session):
        handle = await handle.connection()
    if not isinstance(handle, AsyncConnection):
        raise UnknownConnection(handle)
    with told_remedy():
        return await handle.run_sync(lambda connection: work(_watched(connection)))


def _watched(connection: Connection) -> Connection:
    """Checks the transaction, and has it watched until it ends, unless the caller begins and ends it in SQL."""
    _checked(connection)
    dbapi: Any = connection.connection.dbapi_connection
    if not (connection.dialect.name == "postgresql" and dbapi.autocommit):
        if not connection.in_transaction():
            # As the next statement would do.
            connection.begin()
        watch(connection)
    return connection


def _checked(connection: Connection) -> Connection:
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        _check_sqlite(connection, driver)
    elif connection.dialect.name == "postgresql":
        _check_postgresql(connection, driver)
    else:
        raise UnknownDatabase(
            f"{connection.dialect.name} is no database that semel knows; there are SQLite and PostgreSQL"
        )
    return connection


def _check_sqlite(connection: Connection, driver: Any) -> None:
    path = connection.info.get(PATH)
    if path is None or not connection.in_transaction():
        # SQLAlchemy begins the caller's transaction with the first statement, so this sends one. On a connection that
        # was lent there is none to begin, and the driver itself is faster.
        is_lent = isinstance(connection.dialect, _Borrowing)
        ask = driver.execute if is_lent else connection.exec_driver_sql
        main = ask("PRAGMA database_list").fetchone()
        path = connection.info[PATH] = main[2] if main is not None else ""
    if not driver.in_transaction:
        is_lent = isinstance(connection.dialect, _Borrowing)
        raise NotInTransaction(_SQLITE_BEGIN if is_lent else _SQLALCHEMYS_BEGIN)
    if not may_be_immediate(path):
        raise NotImmediate


def _check_postgresql(connection: Connection, driver: Any) -> None:
    """Without autocommit, the driver begins a transaction with the first statement; with it, the caller may have sent
    BEGIN."""
    adapted: Any = connection.connection.dbapi_connection
    if adapted.autocommit:
        asyncpg_like = hasattr(driver, "is_in_transaction")
        if not (driver.is_in_transaction() if asyncpg_like else driver.info.transaction_status):
            raise NotInTransaction(_POSTGRESQL_BEGIN)
    check_prepares_nothing_through_pooler(connection)


# -- a driver's own connection, lent to SQLAlchemy ---------------------------------------------------------------------


_DRIVER: Final = "semel_borrowed"


@contextlib.contextmanager
def borrowed(raw: Any) -> Iterator[Connection]:
    """An SQLAlchemy connection that sends its statements over this one."""
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
    """The kind of database, and the attributes with which its connection returns rows as tuples."""
    if isinstance(raw, sqlite3.Connection):
        return "sqlite", {"row_factory": None, "text_factory": str}
    # A caller with such a connection has imported psycopg; other callers need not have it installed.
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
    """Turns off everything that SQLAlchemy does to a connection besides sending statements."""

    def on_connect_url(self, _url: object) -> None:
        """Sets nothing up: SQLAlchemy would do it again each time the connection is lent, and add one more handler of
        notices."""

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


# -- is a SQLite transaction IMMEDIATE? --------------------------------------------------------------------------------


# How many databases one thread has probes for; the probe that was unused for the longest time is closed first.
PROBES_MAX: Final = 8


class _Probes(threading.local):
    """One connection for each file and thread. A file that was deleted and created again is another file."""

    def __init__(self) -> None:
        self._probes: OrderedDict[tuple[str, int], sqlite3.Connection] = OrderedDict()

    def of(self, path: str) -> sqlite3.Connection:
        key = (path, os.stat(path).st_ino)
        probe = self._probes.get(key)
        if probe is None:
            probe = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._probes[key] = probe
            if len(self._probes) > PROBES_MAX:
                self._probes.popitem(last=False)[1].close()
        self._probes.move_to_end(key)
        return probe


_probes = _Probes()


def may_be_immediate(path: str) -> bool:
    """False if no connection has the write lock of this file. True for a database in memory (an empty path), which has
    one connection."""
    if not path:
        return True
    probe = _probes.of(path)
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    probe.execute("ROLLBACK")
    return False
