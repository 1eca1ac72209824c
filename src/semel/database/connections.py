"""From what the caller has to the SQLAlchemy connection that statements are sent on, and the checks of it.

All statements exist once, in SQLAlchemy Core. This must never end a transaction, nor begin one that the caller does not
know of.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from semel.database.borrowing import borrowed
from semel.database.errors import NotImmediate, NotInTransaction, UnknownConnection, UnknownDatabase
from semel.database.immediate import may_be_immediate
from semel.database.missing import add_remedy

if TYPE_CHECKING:
    import psycopg

    Given: TypeAlias = Connection | Session | scoped_session[Session] | sqlite3.Connection | psycopg.Connection[Any]
    AsyncGiven: TypeAlias = AsyncConnection | AsyncSession | async_scoped_session[AsyncSession]
else:
    Given = AsyncGiven = Any

T = TypeVar("T")

# Where the file of a SQLite connection is noted: it is asked for once for each that is pooled.
_PATH: Final = "semel.path"
_SQLITE_BEGIN: Final = "execute BEGIN IMMEDIATE first"
_POSTGRESQL_BEGIN: Final = "take a connection that is not on autocommit, or begin a transaction on it first"


@contextlib.contextmanager
def within(given: Given) -> Iterator[Connection]:
    """The connection behind `given`, in a transaction of the caller's that can be trusted; else one of our errors."""
    try:
        if isinstance(given, Connection):
            yield _checked(given)
        elif isinstance(given, Session | scoped_session):
            yield _checked(given.connection())
        else:
            with borrowed(given) as connection:
                yield _checked(connection)
    except DBAPIError as error:
        add_remedy(error)
        raise


async def within_async(given: AsyncGiven, work: Callable[[Connection], T]) -> T:
    """Do `work` on the connection behind an asynchronous one, with the same checks; the loop goes on meanwhile."""
    if isinstance(given, AsyncSession | async_scoped_session):
        given = await given.connection()
    if not isinstance(given, AsyncConnection):
        raise UnknownConnection(given)
    try:
        return await given.run_sync(lambda connection: work(_checked(connection)))
    except DBAPIError as error:
        add_remedy(error)
        raise


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
    path = connection.info.get(_PATH)
    if path is None or not connection.in_transaction():
        # The first statement is where SQLAlchemy begins the caller's transaction.
        main = connection.exec_driver_sql("PRAGMA database_list").first()
        path = connection.info[_PATH] = main[2] if main is not None else ""
    if not driver.in_transaction:
        raise NotInTransaction(_SQLITE_BEGIN)
    if not may_be_immediate(path):
        raise NotImmediate


def _check_postgresql(connection: Connection, driver: Any) -> None:
    """A driver that is not on autocommit begins with the first statement; one that is may have been told BEGIN."""
    adapted: Any = connection.connection.dbapi_connection
    if not adapted.autocommit:
        return
    asyncpg_like = hasattr(driver, "is_in_transaction")
    if not (driver.is_in_transaction() if asyncpg_like else driver.info.transaction_status):
        raise NotInTransaction(_POSTGRESQL_BEGIN)
