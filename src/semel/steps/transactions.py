"""One transaction on the database that the user configured. Only this file begins it, commits it and rolls it back.

HTTP keys and workflows end these transactions because they also begin them: a handler or a step works on a connection
that was passed to it. A transaction must end exactly once, even if a task is cancelled meanwhile.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker

from semel.database import AsyncHandle, Handle, OpenTransaction, keep_open, within, within_async
from semel.database.dialects import OpenRawTransaction, dialect_of
from semel.database.kinds import WrongKind, check_engine, check_kind
from semel.database.procedures import Procedure
from semel.database.refusals import TransactionBroken, told_of_end
from semel.steps.slots import Slots

T = TypeVar("T")
# A context manager, and what the handler gets of it.
M = TypeVar("M")
H = TypeVar("H")

Begin: TypeAlias = Callable[[], AbstractContextManager[Handle]]
AsyncBegin: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncHandle]]
Database: TypeAlias = Engine | sessionmaker[Any] | Begin
AsyncDatabase: TypeAlias = AsyncEngine | async_sessionmaker[Any]

# How many transactions of requests with keys are open at once in one process; other requests wait in order. A pool of
# SQLAlchemy has 15 connections, and the rest of the application needs some, too. SQLite has one writer.
TRANSACTIONS_MAX: Final = 10
TRANSACTIONS_MAX_ONE_WRITER: Final = 1

_OF_ANOTHER_LOOP: Final = (
    "the pool of this asynchronous engine has connections that were made in another event loop: make it with "
    "poolclass=sqlalchemy.NullPool where one application runs in several loops, or hand over a synchronous Engine"
)
# SQLAlchemy's event of a session that begins a transaction.
_BEGINS: Final = "after_transaction_create"


class _RolledBack(Exception):
    """Raised through the context manager of a transaction, so that it rolls back."""


class Ended(RuntimeError):
    """What a request has worked on is used after its answer."""

    def __init__(self) -> None:
        super().__init__(
            "this request has its answer, and its transaction has ended: nothing would commit what is done now. Take a "
            "connection or session of your own for what comes after the answer, or do it before"
        )


# Whether the function that is the database begins a transaction in this thread: it may use one session again and again.
_begins = threading.local()


def _refuse(_session: Session, transaction: SessionTransaction) -> None:
    """In place of the transaction that a session begins by itself, and that nobody would end."""
    if not getattr(_begins, "here", False):
        transaction.close()
        raise Ended


def refuse_from_now_on(handle: AsyncHandle | Handle) -> None:
    """A connection that was closed cannot be used again; a session would begin another transaction."""
    session = session_of(handle)
    if session is not None:
        event.listen(session, _BEGINS, _refuse)


def session_of(handle: AsyncHandle | Handle) -> Session | None:
    """The session that this is, or that is under it; None for a connection."""
    session = handle.sync_session if isinstance(handle, AsyncSession) else handle
    return session if isinstance(session, Session) else None


def _refuse_no_more(handle: Handle) -> None:
    if isinstance(handle, Session) and event.contains(handle, _BEGINS, _refuse):
        event.remove(handle, _BEGINS, _refuse)


def nothing(_connection: Connection) -> None:
    """No work: only commit."""


def is_asynchronous(database: Database | AsyncDatabase) -> bool:
    return isinstance(database, AsyncEngine | async_sessionmaker)


BeginT = TypeVar("BeginT", bound=Callable[..., Any])


def of_one_thread(begin: BeginT) -> BeginT:
    """Marks a function whose transaction exists only in the thread that has begun it."""
    begin.is_of_one_thread = True  # type: ignore[attr-defined]
    return begin


def raises_at_rollback(begin: BeginT) -> BeginT:
    """Marks a function whose transaction ends with an error whenever it is not committed."""
    begin.raises_at_rollback = True  # type: ignore[attr-defined]
    return begin


def is_of_one_thread(database: object) -> bool:
    return _is_marked(database, "is_of_one_thread")


def may_end_silently(database: object) -> bool:
    """Whether a transaction may end without a commit and without an error: that of a function which does not say
    otherwise. Another transaction then has to look what was committed."""
    return not hasattr(database, "begin") and not _is_marked(database, "raises_at_rollback")


def _is_marked(database: object, mark: str) -> bool:
    return getattr(database.func if isinstance(database, partial) else database, mark, False)


def check_database(database: Any) -> None:
    """Refuse what cannot begin one transaction for each request."""
    bind = database.kw.get("bind") if isinstance(database, sessionmaker | async_sessionmaker) else None
    if isinstance(database, AsyncEngine | Engine):
        check_engine("the database", database, (Engine, AsyncEngine))
    elif isinstance(database, async_sessionmaker):
        if bind is not None:
            check_engine("the engine of the async_sessionmaker", bind, (AsyncEngine, AsyncConnection))
    elif isinstance(database, sessionmaker):
        if issubclass(database.class_, AsyncSession):
            raise WrongKind("the sessionmaker makes asynchronous sessions: hand over an async_sessionmaker")
        if bind is not None:
            check_engine("the engine of the sessionmaker", bind, (Engine, Connection))
    elif hasattr(database, "begin") or isinstance(database, type) or not callable(database):
        check_kind("the database", database, (Engine, AsyncEngine, sessionmaker, async_sessionmaker))


def begin_of(database: Any) -> Any:
    """The function that begins a transaction on the database; the database itself, if it is such a function."""
    return getattr(database, "begin", database)


def transactions_max(database: Any) -> int:
    bind = database.kw.get("bind") if isinstance(database, sessionmaker | async_sessionmaker) else database
    has_one_writer = hasattr(bind, "dialect") and dialect_of(bind).has_one_writer
    return TRANSACTIONS_MAX_ONE_WRITER if has_one_writer else TRANSACTIONS_MAX


class _Managed(Generic[M, H]):
    """A transaction that a context manager of the database begins and ends."""

    _handle: H
    _manager: M | None = None
    # What keeps it open until it is committed here.
    _kept: OpenTransaction | OpenRawTransaction | None = None

    @property
    def handle(self) -> H:
        if self._manager is None:
            raise Ended
        return self._handle

    @property
    def is_open(self) -> bool:
        return self._manager is not None

    @property
    def is_over(self) -> bool:
        """Whether it was rolled back, and has not ended here."""
        return self._kept is not None and self._kept.is_over

    @property
    def refusal(self) -> TransactionBroken | None:
        """With what semel has refused work or a commit after the end of the transaction, or in place of its end."""
        return None if self._kept is None else self._kept.refusal

    def _released(self) -> M | None:
        """The manager, which may end the transaction now; it is not open here any more."""
        manager, self._manager = self._manager, None
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.release()
        return manager


class Transaction(_Managed[AbstractContextManager[Handle], Handle]):
    """A transaction in this thread; the handler works on `handle`."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    @property
    def is_used(self) -> bool | None:
        """Whether the framework has sent statements in it; None if the function that is the database does not say."""
        return getattr(self._manager, "is_used", None)

    def start(self, work: Callable[[Connection], T]) -> T:
        """Begin the transaction and do some work. If the work fails, the transaction is still open."""
        _begins.here = True
        try:
            manager = self._begin()
            self._handle = manager.__enter__()
        finally:
            _begins.here = False
        self._manager = manager
        _refuse_no_more(self._handle)
        if isinstance(self._handle, Connection | Session) and not self._handle.in_transaction():
            # SQLAlchemy would begin a transaction by itself, and nothing would commit it.
            raise TypeError(
                "the function that is the database hands over what is in no transaction, so nothing would be "
                "committed: give it an Engine, a sessionmaker, or a function that begins, as engine.begin does"
            )
        with within(self.handle) as connection:
            done = work(connection)
        self._kept = keep_open(self._handle)
        return done

    def commit(self, work: Callable[[Connection], object] = nothing) -> None:
        """Do the last work and commit. If the work fails, the transaction is still open. It is refused if the
        transaction is not the one that was begun, or not whole."""
        assert self._kept is not None
        if work is not nothing:
            with told_of_end(lambda: self.is_over), within(self.handle) as connection:
                work(connection)
        self._kept.check()
        self._end(None)

    def roll_back(self) -> None:
        with contextlib.suppress(_RolledBack):
            self._end(_RolledBack())

    def _end(self, error: _RolledBack | None) -> None:
        manager = self._released()
        if manager is not None:
            try:
                manager.__exit__(None if error is None else type(error), error, None)
            finally:
                refuse_from_now_on(self._handle)


class LoopTransaction(ABC):
    """A transaction for coroutines. If a task is cancelled during one of its steps, the cancellation takes effect after
    the step.

    There are as few steps as possible, because each may need a switch to a thread and back.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._has_slot = False

    async def start(self, work: Callable[[Connection], T]) -> T:
        await self._slots.acquire()
        self._has_slot = True
        return await self._step(self._start(work))

    async def commit(self, work: Callable[[Connection], object] = nothing) -> None:
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
    def is_used(self) -> bool | None:
        """Nobody but the handler knows of it."""
        return None

    @property
    @abstractmethod
    def handle(self) -> Any: ...

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @property
    @abstractmethod
    def is_over(self) -> bool: ...

    @property
    @abstractmethod
    def refusal(self) -> TransactionBroken | None: ...

    @abstractmethod
    def _start(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...

    @abstractmethod
    def _commit(self, work: Callable[[Connection], object]) -> Awaitable[None]: ...

    @abstractmethod
    def _roll_back(self) -> Awaitable[None]: ...


class AsyncTransaction(_Managed[AbstractAsyncContextManager[AsyncHandle], AsyncHandle], LoopTransaction):
    """A transaction on an asynchronous engine."""

    def __init__(self, begin: AsyncBegin, slots: Slots) -> None:
        super().__init__(slots)
        self._begin = begin

    async def _start(self, work: Callable[[Connection], T]) -> T:
        manager = self._begin()
        try:
            self._handle = await manager.__aenter__()
        except (RuntimeError, DBAPIError) as error:
            if "loop" in str(error):
                error.add_note(_OF_ANOTHER_LOOP)
            raise
        self._manager = manager
        return await within_async(self._handle, lambda connection: self._begun(connection, work))

    def _begun(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        done = work(connection)
        session = self._handle.sync_session if isinstance(self._handle, AsyncSession) else None
        self._kept = OpenTransaction(connection, session)
        return done

    async def _commit(self, work: Callable[[Connection], object]) -> None:
        with told_of_end(lambda: self.is_over):
            await within_async(self._handle, lambda connection: self._done(connection, work))
        await self._end(None)

    def _done(self, connection: Connection, work: Callable[[Connection], object]) -> None:
        assert self._kept is not None
        work(connection)
        self._kept.check()

    async def _roll_back(self) -> None:
        with contextlib.suppress(_RolledBack):
            await self._end(_RolledBack())

    async def _end(self, error: _RolledBack | None) -> None:
        manager = self._released()
        if manager is not None:
            try:
                await manager.__aexit__(None if error is None else type(error), error, None)
            finally:
                refuse_from_now_on(self._handle)


class ThreadTransaction(LoopTransaction):
    """A transaction on a synchronous engine, in threads of our own. A transaction with a slot always gets a free
    thread, so its commit never waits for requests that wait for it.
    """

    def __init__(self, begin: Begin, slots: Slots, threads: Executor) -> None:
        super().__init__(slots)
        self._transaction = Transaction(begin)
        self._threads = threads

    @property
    def handle(self) -> Handle:
        return self._transaction.handle

    @property
    def is_open(self) -> bool:
        return self._transaction.is_open

    @property
    def is_over(self) -> bool:
        return self._transaction.is_over

    @property
    def refusal(self) -> TransactionBroken | None:
        return self._transaction.refusal

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


class NotCommitted(RuntimeError):
    """The transaction has ended without an error, but was not committed."""

    def __init__(self, title: str) -> None:
        super().__init__(
            f"the transaction of {title} was rolled back without an error, by the framework or by the function that is "
            "the database: nothing was committed, and the next try executes"
        )


def confirmed(
    title: str, transaction: Transaction | LoopTransaction, is_there: Callable[[Connection], bool]
) -> Procedure[None]:
    """Check, in another transaction, whether the one that has ended was committed."""
    try:
        was_committed = yield transaction.start(is_there)
    finally:
        yield transaction.roll_back()
    if not was_committed:
        raise NotCommitted(title)


NewTransaction: TypeAlias = Callable[[], Transaction | LoopTransaction]


def briefly(new: NewTransaction, work: Callable[[Connection], T]) -> Procedure[T]:
    """Do the work in a new transaction."""
    transaction = new()
    try:
        done: T = yield transaction.start(work)
        yield transaction.commit()
    finally:
        yield transaction.roll_back()
    return done
