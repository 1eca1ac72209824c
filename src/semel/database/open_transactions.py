"""Keeps the transaction of a claim open until its work is done, whatever kind of connection the caller has.

`kept_open` is for a block. On a connection of SQLAlchemy, and so on its sessions, a commit inside of the block and a
statement after a rollback are refused at once. On a driver's own connection, which has no events, the end of the block
says that the transaction is another one; that costs two short statements. This module must never begin, commit or roll
back the caller's transaction.
"""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from semel.database.connections import AsyncHandle, Handle, borrowed
from semel.database.effects import effects_on
from semel.database.errors import TransactionBroken
from semel.database.transactions import IsClaimed, OpenTransaction, transaction_id


def keep_open(handle: Handle) -> "OpenTransaction | OpenRawTransaction":
    """Call it in the transaction that has the claim."""
    if isinstance(handle, scoped_session):
        handle = handle()
    if isinstance(handle, Session):
        return OpenTransaction(handle.connection(), handle)
    return OpenTransaction(handle) if isinstance(handle, Connection) else OpenRawTransaction(handle)


@contextlib.contextmanager
def kept_open(handle: Handle, is_claimed: IsClaimed) -> Iterator[None]:
    """The block of a claim: it raises if the transaction is not the same, and whole, at its end. If an exception leaves
    it, the transaction cannot be committed while the claim is in it."""
    transaction = keep_open(handle)
    try:
        with effects_on(transaction):
            yield
        transaction.check()
    except BaseException:
        transaction.fail(is_claimed)
        raise
    finally:
        transaction.release()


class AsyncOpenTransaction:
    """The transaction of a claim on an asynchronous connection; the event loop is never blocked."""

    def __init__(self, connection: AsyncConnection, transaction: OpenTransaction) -> None:
        self._connection = connection
        self._transaction = transaction
        self.driver = transaction.driver
        self.file = transaction.file
        self.release = transaction.release
        self.fail = transaction.fail

    @property
    def is_over(self) -> bool:
        return self._transaction.is_over

    async def check(self) -> None:
        """Raise TransactionBroken if a commit would not commit everything since the claim."""
        if self._connection.closed:
            raise TransactionBroken
        await self._connection.run_sync(lambda _: self._transaction.check())


async def keep_open_async(handle: AsyncHandle) -> AsyncOpenTransaction:
    """`keep_open` on an asynchronous connection or session."""
    if isinstance(handle, async_scoped_session):
        handle = handle()
    if not isinstance(handle, AsyncSession):
        return AsyncOpenTransaction(handle, await handle.run_sync(OpenTransaction))
    connection, session = await handle.connection(), handle.sync_session
    return AsyncOpenTransaction(connection, await connection.run_sync(lambda one: OpenTransaction(one, session)))


@contextlib.asynccontextmanager
async def kept_open_async(handle: AsyncHandle, is_claimed: IsClaimed) -> AsyncIterator[None]:
    """`kept_open` on an asynchronous connection or session."""
    transaction = await keep_open_async(handle)
    try:
        with effects_on(transaction):
            yield
        await transaction.check()
    except BaseException:
        transaction.fail(is_claimed)
        raise
    finally:
        transaction.release()


# -- a driver's own connection -----------------------------------------------------------------------------------------


_SAVEPOINT: Final = "semel_open"

# The one thing that makes a COMMIT of PostgreSQL's fail: a constraint that is checked only then, and is not met. It is
# gone with the transaction, or with the savepoint around the claim.
_REFUSING_TABLE: Final = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS semel_refuses_commit (number integer CONSTRAINT "
    '"roll back: an exception left the block of a claim" UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP'
)
_REFUSING_ROWS: Final = "INSERT INTO pg_temp.semel_refuses_commit VALUES (1), (1)"


class OpenRawTransaction:
    """The transaction of a claim on a `sqlite3.Connection` or a `psycopg.Connection`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.driver = raw
        # Its file is unknown without a statement.
        self.file = ""
        # The driver says so itself.
        self.is_over = False
        self._is_sqlite = isinstance(raw, sqlite3.Connection)
        self._is_released = False
        if self._is_sqlite:
            # It is gone as soon as the transaction ends in any way.
            raw.execute(f"SAVEPOINT {_SAVEPOINT}")
        else:
            self._id = self._on_postgresql(transaction_id)

    def check(self) -> None:
        """Raise TransactionBroken if a commit would not commit everything since the claim."""
        if not self._is_same():
            raise TransactionBroken

    def release(self) -> None:
        """Let the transaction end."""
        if self._is_sqlite and not self._is_released:
            self._release_savepoint()
        self._is_released = True

    def fail(self, is_claimed: IsClaimed) -> None:
        """An exception has ended the work: have the database refuse the commit."""
        if self._is_sqlite:
            self._raw.set_authorizer(_refusal_of_commit())
        elif self._is_usable():
            # If this user may make no tables, the transaction has failed by that, and its COMMIT undoes it.
            with contextlib.suppress(DBAPIError):
                self._on_postgresql(_refuse_commit)

    def _is_same(self) -> bool:
        if not self._is_sqlite:
            return self._is_usable() and self._on_postgresql(transaction_id) == self._id
        if self._is_released or not self._release_savepoint():
            return False
        self._raw.execute(f"SAVEPOINT {_SAVEPOINT}")
        return True

    def _release_savepoint(self) -> bool:
        try:
            self._raw.execute(f"RELEASE {_SAVEPOINT}")
        except sqlite3.Error:
            return False
        return True

    def _is_usable(self) -> bool:
        status = self._raw.info.transaction_status
        return bool(status == type(status).INTRANS)

    def _on_postgresql(self, work: Callable[[Connection], Any]) -> Any:
        with borrowed(self._raw) as connection:
            return work(connection)


def _refuse_commit(connection: Connection) -> None:
    for statement in (_REFUSING_TABLE, _REFUSING_ROWS):
        connection.exec_driver_sql(statement)


def _refusal_of_commit() -> Callable[..., int]:
    """An authorizer of SQLite that denies COMMIT until the claim was rolled back: with its transaction, or to a
    savepoint from before now."""
    is_refused = True
    later: set[str] = set()

    def authorize(action: int, operation: str | None, name: str | None, *_place: object) -> int:
        nonlocal is_refused
        if action == sqlite3.SQLITE_TRANSACTION:
            if operation == "COMMIT":
                return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK
            # ROLLBACK; or BEGIN, if the database has rolled back by itself.
            is_refused = False
        elif action == sqlite3.SQLITE_SAVEPOINT and operation == "BEGIN":
            later.add(str(name))
        elif action == sqlite3.SQLITE_SAVEPOINT and operation == "ROLLBACK" and name not in later:
            is_refused = False
        return sqlite3.SQLITE_OK

    return authorize
