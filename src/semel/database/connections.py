"""Finds the SQLAlchemy connection for the caller's object, and checks its transaction.

All statements are written once, in SQLAlchemy Core. This module must never end a transaction, nor begin one that the
caller does not know about.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import NullPool

from semel.database.dialects import DIALECTS, LENDER, Dialect, dialect_of
from semel.database.errors import told_remedy
from semel.database.refusals import UnknownConnection
from semel.database.transactions import watch

if TYPE_CHECKING:
    import psycopg

    Handle: TypeAlias = Connection | Session | scoped_session[Session] | sqlite3.Connection | psycopg.Connection[Any]
    AsyncHandle: TypeAlias = AsyncConnection | AsyncSession | async_scoped_session[AsyncSession]
else:
    Handle = AsyncHandle = Any

T = TypeVar("T")


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
    if not dialect_of(connection).ends_in_sql(connection):
        if not connection.in_transaction():
            # As the next statement would do.
            connection.begin()
        watch(connection)
    return connection


def _checked(connection: Connection) -> Connection:
    driver: Any = connection.connection.driver_connection
    dialect_of(connection).check(connection, driver)
    return connection


# -- a driver's own connection, lent to SQLAlchemy ---------------------------------------------------------------------


@contextlib.contextmanager
def borrowed(raw: Any) -> Iterator[Connection]:
    """An SQLAlchemy connection that sends its statements over this one."""
    dialect = dialect_of_raw(raw)
    with _set(raw, dialect.attributes_to_lend(raw) or {}):
        token = _lent.set(raw)
        try:
            connection = _borrower(dialect.name).connect()
        finally:
            _lent.reset(token)
        with connection:
            yield connection


# The raw connection that the next connect() of a borrowing engine gets.
_lent: ContextVar[Any] = ContextVar("lent")


def dialect_of_raw(raw: Any) -> Dialect:
    """The kind of database of a driver's own connection."""
    for dialect in DIALECTS:
        if dialect.attributes_to_lend(raw) is not None:
            return dialect
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
    return create_engine(f"{backend}+{LENDER}://", creator=_lent.get, poolclass=NullPool, pool_reset_on_return=None)
