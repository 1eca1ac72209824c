"""Keeps the transaction of a claim open until its work is done, whatever kind of connection the caller has.

`kept_open` is for a block. On a connection of SQLAlchemy, and so on its sessions, a commit inside of the block and a
statement after a rollback are refused at once. On a driver's own connection, which has no events, the end of the block
says that the transaction is another one; that costs two short statements. This module must never begin, commit or roll
back the caller's transaction.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from semel.database.connections import AsyncHandle, Handle, dialect_of_raw
from semel.database.dialects import IsClaimed, OpenRawTransaction
from semel.database.effects import effects_on
from semel.database.refusals import TransactionBroken
from semel.database.transactions import OpenTransaction


def keep_open(handle: Handle) -> "OpenTransaction | OpenRawTransaction":
    """Call it in the transaction that has the claim."""
    if isinstance(handle, scoped_session):
        handle = handle()
    if isinstance(handle, Session):
        return OpenTransaction(handle.connection(), handle)
    return OpenTransaction(handle) if isinstance(handle, Connection) else dialect_of_raw(handle).open_raw(handle)


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
