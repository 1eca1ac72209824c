"""One transaction on the database that the user configured. Only this file begins it, commits it and rolls it back.

The HTTP keys end these transactions because they also begin them: the handler works on a connection that the middleware
passes to it. A transaction must end exactly once, even if a task is cancelled meanwhile.
"""

import asyncio
import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from semel.database import AsyncHandle, Handle, within, within_async
from semel.database.errors import sqlstate
from semel.database.procedures import Procedure
from semel.http.claims import Name, NotCommitted

T = TypeVar("T")

Begin: TypeAlias = Callable[[], AbstractContextManager[Handle]]
AsyncBegin: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncHandle]]
Database: TypeAlias = Engine | sessionmaker[Any] | Begin
AsyncDatabase: TypeAlias = AsyncEngine | async_sessionmaker[Any]

# How many transactions of requests with keys are open at once in one process; other requests wait in order. A pool of
# SQLAlchemy has 15 connections, and the rest of the application needs some, too. SQLite has one writer.
TRANSACTIONS_MAX: Final = 10
TRANSACTIONS_MAX_SQLITE: Final = 1

_CANNOT_SERIALIZE: Final = "40001"


class _RolledBack(Exception):
    """Raised through the context manager of a transaction, so that it rolls back."""


def _nothing(_connection: Connection) -> None:
    """No work: only commit."""


def is_asynchronous(database: Database | AsyncDatabase) -> bool:
    return isinstance(database, AsyncEngine | async_sessionmaker)


BeginT = TypeVar("BeginT", bound=Callable[..., Any])


def of_one_thread(begin: BeginT) -> BeginT:
    """Marks a function whose transaction exists only in the thread that has begun it."""
    begin.is_of_one_thread = True  # type: ignore[attr-defined]
    return begin


def is_of_one_thread(database: object) -> bool:
    return getattr(database.func if isinstance(database, partial) else database, "is_of_one_thread", False)


def begin_of(database: Any) -> Any:
    """The function that begins a transaction on the database; the database itself, if it is such a function."""
    return getattr(database, "begin", database)


def transactions_max(database: Any) -> int:
    bind = database.kw.get("bind") if isinstance(database, sessionmaker | async_sessionmaker) else database
    dialect = getattr(bind, "dialect", None)
    return TRANSACTIONS_MAX_SQLITE if dialect is not None and dialect.name == "sqlite" else TRANSACTIONS_MAX


def is_busy(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for another writer, or PostgreSQL gave a transaction up because it does not see
    what another one has committed."""
    if isinstance(error, OperationalError | sqlite3.OperationalError) and "database is locked" in str(error):
        return True
    return sqlstate(error.orig if isinstance(error, DBAPIError) else error) == _CANNOT_SERIALIZE


class Transaction:
    """A transaction in this thread; the handler works on `handle`."""

    handle: Handle

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._manager: AbstractContextManager[Handle] | None = None

    @property
    def is_open(self) -> bool:
        return self._manager is not None

    def start(self, work: Callable[[Connection], T]) -> T:
        """Begin the transaction and do some work. If the work fails, the transaction is still open."""
        manager = self._begin()
        self.handle = manager.__enter__()
        self._manager = manager
        if isinstance(self.handle, Connection | Session) and not self.handle.in_transaction():
            # SQLAlchemy would begin a transaction by itself, and nothing would commit it.
            raise TypeError(
                "the function that is the database hands over what is in no transaction, so nothing would be "
                "committed: give it an Engine, a sessionmaker, or a function that begins, as engine.begin does"
            )
        with within(self.handle) as connection:
            return work(connection)

    def commit(self, work: Callable[[Connection], object] = _nothing) -> None:
        """Do the last work and commit. If the work fails, the transaction is still open."""
        if work is not _nothing:
            with within(self.handle) as connection:
                work(connection)
        self._end(None)

    def roll_back(self) -> None:
        with contextlib.suppress(_RolledBack):
            self._end(_RolledBack())

    def _end(self, error: _RolledBack | None) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.__exit__(None if error is None else type(error), error, None)


class LoopTransaction(ABC):
    """A transaction for coroutines. If a task is cancelled during one of its steps, the cancellation takes effect after
    the step.

    There are as few steps as possible, because each may need a switch to a thread and back.
    """

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._has_slot = False

    async def start(self, work: Callable[[Connection], T]) -> T:
        await self._slots.acquire()
        self._has_slot = True
        return await self._step(self._start(work))

    async def commit(self, work: Callable[[Connection], object] = _nothing) -> None:
        await self._step(self._commit(work))

    async def roll_back(self) -> None:
        if self.is_open:
            await self._step(self._roll_back())

    async def _step(self, step: Awaitable[T]) -> T:
        try:
            return await whole(step)
        finally:
            if self._has_slot and not self.is_open:
                self._has_slot = False
                self._slots.release()

    @property
    @abstractmethod
    def handle(self) -> Any: ...

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def _start(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...

    @abstractmethod
    def _commit(self, work: Callable[[Connection], object]) -> Awaitable[None]: ...

    @abstractmethod
    def _roll_back(self) -> Awaitable[None]: ...


class AsyncTransaction(LoopTransaction):
    """A transaction on an asynchronous engine."""

    def __init__(self, begin: AsyncBegin, slots: asyncio.Semaphore) -> None:
        super().__init__(slots)
        self._begin = begin
        self._manager: AbstractAsyncContextManager[AsyncHandle] | None = None
        self._handle: AsyncHandle

    @property
    def handle(self) -> AsyncHandle:
        return self._handle

    @property
    def is_open(self) -> bool:
        return self._manager is not None

    async def _start(self, work: Callable[[Connection], T]) -> T:
        manager = self._begin()
        self._handle = await manager.__aenter__()
        self._manager = manager
        return await within_async(self._handle, work)

    async def _commit(self, work: Callable[[Connection], object]) -> None:
        if work is not _nothing:
            await within_async(self._handle, work)
        await self._end(None)

    async def _roll_back(self) -> None:
        with contextlib.suppress(_RolledBack):
            await self._end(_RolledBack())

    async def _end(self, error: _RolledBack | None) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            await manager.__aexit__(None if error is None else type(error), error, None)


class ThreadTransaction(LoopTransaction):
    """A transaction on a synchronous engine, in threads of our own. A transaction with a slot always gets a free
    thread, so its commit never waits for requests that wait for it.
    """

    def __init__(self, begin: Begin, slots: asyncio.Semaphore, threads: Executor) -> None:
        super().__init__(slots)
        self._transaction = Transaction(begin)
        self._threads = threads

    @property
    def handle(self) -> Handle:
        return self._transaction.handle

    @property
    def is_open(self) -> bool:
        return self._transaction.is_open

    def _start(self, work: Callable[[Connection], T]) -> Awaitable[T]:
        return self._in_thread(lambda: self._transaction.start(work))

    def _commit(self, work: Callable[[Connection], object]) -> Awaitable[None]:
        return self._in_thread(lambda: self._transaction.commit(work))

    def _roll_back(self) -> Awaitable[None]:
        return self._in_thread(self._transaction.roll_back)

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        # This is no coroutine: it returns the thread's own future, without a task around it.
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


async def whole(work: Awaitable[T]) -> T:
    """Do the work to its end, even if the task that waits for it is cancelled; the cancellation takes effect after
    that."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        while not doing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([doing])
        # Its error does not matter any more, but asyncio warns if nobody reads it.
        doing.exception()
        raise


def confirmed(
    name: Name, transaction: Transaction | LoopTransaction, is_there: Callable[[Connection], bool]
) -> Procedure[None]:
    """Check, in another transaction, whether the one that has ended was committed."""
    try:
        was_committed = yield transaction.start(is_there)
    finally:
        yield transaction.roll_back()
    if not was_committed:
        raise NotCommitted(name)
