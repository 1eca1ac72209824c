"""What a request without a key works in, so that one dependency serves requests with a key and without: a session that
only reads for GET, and for other methods a transaction that commits before the answer leaves.

There is no claim: such a request is executed each time that it is sent. Nothing is begun for a handler that does not
ask. This module must never commit what a GET has changed, and never let it go without a word.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from semel.database.effects import writes
from semel.database.engines import read_only
from semel.database.procedures import Procedure, drive, drive_async, is_in_loop
from semel.http.answers import Fate
from semel.steps.transactions import (
    Ended,
    LoopTransaction,
    NewTransaction,
    Transaction,
    nothing,
    refuse_from_now_on,
    session_of,
)

# What a handler asks for it reads alone.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class OnlyReads(RuntimeError):
    """A GET has changed something."""

    def __init__(self) -> None:
        super().__init__(
            "the session of a GET only reads, and nothing would commit what it changes: change it in a POST, PUT, "
            "PATCH or DELETE, or in a session of your own"
        )


def reader_of(database: Any) -> Callable[[], Any] | None:
    """A function that makes a connection or session which only reads. None for a function that begins transactions: it
    may have the framework work in them, on GET as well."""
    is_maker = isinstance(database, sessionmaker | async_sessionmaker)
    engine: Any = database.kw.get("bind") if is_maker else database
    is_engine = isinstance(engine, Engine | AsyncEngine)
    if is_maker:
        # Without an engine of its own it has one for each class.
        return partial(database, bind=read_only(engine)) if is_engine else database
    return read_only(engine).connect if is_engine else None


class Unkeyed:
    """The work of one request without a key. In a loop, `new` makes a LoopTransaction."""

    def __init__(self, method: str, new_reader: Callable[[], Any] | None, new: NewTransaction) -> None:
        self._new_reader = new_reader if method in SAFE_METHODS else None
        self._new = new
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: Any = None
        self._transaction: Transaction | LoopTransaction | None = None
        self._has_ended = False

    @property
    def is_begun(self) -> bool:
        return self._reader is not None or self._transaction is not None

    # -- for the handler ----------------------------------------------------------------------------------------------

    def session(self) -> Any:
        """From a thread, or under WSGI."""
        if self._loop is None or self._new_reader is not None:
            return drive(self._begin())
        if is_in_loop():
            raise TypeError(
                "idempotency.session(request) would hold up the event loop while it waits for its transaction: take it "
                "by Depends(idempotency.session), or await asyncio.to_thread(idempotency.session, request)"
            )
        return asyncio.run_coroutine_threadsafe(drive_async(self._begin()), self._loop).result()

    async def session_async(self) -> Any:
        return await drive_async(self._begin())

    def _begin(self) -> Procedure[Any]:
        if self._has_ended:
            raise Ended
        if self._new_reader is not None:
            if self._reader is None:
                self._reader = self._new_reader()
                if isinstance(self._reader, AsyncConnection):
                    yield self._reader.start()
                _refuse_changes(self._reader)
            return self._reader
        if self._transaction is None:
            self._transaction = self._new()
            yield self._transaction.start(nothing)
            if self._has_ended:
                yield self._transaction.roll_back()
        return self._transaction.handle

    # -- for the middleware -------------------------------------------------------------------------------------------

    def in_loop(self) -> "Unkeyed":
        """The same for an application of ASGI, in this loop."""
        self._loop = asyncio.get_running_loop()
        return self

    def settle(self, fate: Fate) -> Procedure[None]:
        """The answer begins. Raises if what was done cannot be committed."""
        if self._reader is not None:
            _check_unchanged(self._reader)
        elif self._transaction is not None and self._transaction.is_open:
            if fate is Fate.KEPT:
                yield self._transaction.commit()
            else:
                yield self._transaction.roll_back()

    def end(self) -> Procedure[None]:
        """The application has come to its end."""
        self._has_ended = True
        if self._reader is not None:
            is_here = self._loop is None or isinstance(self._reader, AsyncConnection | AsyncSession)
            yield self._reader.close() if is_here else asyncio.to_thread(self._reader.close)
            refuse_from_now_on(self._reader)
        elif self._transaction is not None:
            yield self._transaction.roll_back()


# -- what a GET may not do ---------------------------------------------------------------------------------------------


def _refuse_changes(reader: Any) -> None:
    session = session_of(reader)
    if session is not None:
        event.listen(session, "after_begin", lambda _session, _transaction, connection: _listen(connection))
    else:
        _listen(getattr(reader, "sync_connection", reader))


def _listen(connection: Connection) -> None:
    event.listen(connection, "before_cursor_execute", _check_reads)


def _check_reads(_connection: Connection, _cursor: object, statement: str, *_more: object) -> None:
    if writes(statement):
        raise OnlyReads


def _check_unchanged(reader: Any) -> None:
    """An object that was changed is no matter: an application may do so for its answer."""
    session = session_of(reader)
    if session is not None and (session.new or session.deleted):
        raise OnlyReads
