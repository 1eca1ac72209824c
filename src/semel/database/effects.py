"""Refuses what an application writes beside the transaction of a claim: such an effect commits although its claim does
not, and happens again when the event or the request is repeated.

Code that does the work of a claim notes so in its context, with the connection of the claim. Each engine of SQLAlchemy
and each connection of Django looks there before a statement, and refuses one that writes on another connection. A
session that begins in the work, takes an object in, or was open in the same context before, belongs to it, also if it
sends its changes only later, when its owner commits it: they are refused at the end of the work, and whenever they
would be sent. Nobody sees what goes past all of these, such as a driver's own connection. This module must never refuse
a statement that only reads, nor one outside of a claim's work.
"""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util import IdentitySet

from semel.database.dialects import COMMENTS
from semel.database.refusals import WrittenElsewhere, told_of_end
from semel.database.transactions import refuse_commit
from semel.database.writers import file_of, note_writer

# A statement that changes rows, or calls a procedure, which has no other use. It may come after others in the text. If
# it begins with a query, the change stands anywhere, and FOR UPDATE is none.
_WRITES: Final = re.compile(
    rf"(?:^|;){COMMENTS}(?:(?:INSERT|UPDATE|DELETE|REPLACE|MERGE|TRUNCATE|CALL|DO)\b"
    r"|WITH\b.*\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|(?<!FOR )(?<!KEY )UPDATE)\s)",
    re.IGNORECASE | re.DOTALL,
)
_LOCKS: Final = re.compile(COMMENTS + r"BEGIN\s+(?:IMMEDIATE|EXCLUSIVE)\b", re.IGNORECASE)
# A claim inside of another one's work has its own effect, on its own connection.
_OF_CLAIMS: Final = re.compile(r"\bsemel_(?:http|inbox|offsets|steps)")


class Work:
    """The work of one claim. Its effect belongs on the claim's connection, whose `driver` and SQLite file are set once
    they are known."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self.is_open = is_open
        self.driver: object = None
        self.file = ""
        # What has to happen at once with a refusal, because nobody checks at the end.
        self.fail: Callable[[WrittenElsewhere], None] = lambda _error: None
        self.refused: WrittenElsewhere | None = None
        # Whether `end` is called, so that sessions which were open before belong to this work as well.
        self.has_end = True
        # With the objects whose changes each of them held before. No WeakSet, because the handler's own threads may add
        # to it while it is copied.
        self.sessions: dict[ref[Session], IdentitySet] = {}

    def begin(self) -> None:
        """What comes next in the caller's context is this work, as long as it is open."""
        listen()
        _works.set((*_works_without(self), self))
        for session in _begun_here() if self.has_end else ():
            its = _work_of(session)
            if (its is None or not its.is_open()) and not _is_on_any(session, self):
                _give(session, self)
                self.sessions[ref(session)] = _unsent(session)

    def end(self) -> None:
        """Remove this work from the caller's context. Sessions that hold no change of it belong to it no longer."""
        _works.set(_works_without(self))
        for session in self._members():
            if _change_of(self, session) is None or _is_on_any(session, self):
                session.info.pop(_WORK, None)

    def _members(self) -> list[Session]:
        sessions = (one() for one in list(self.sessions))
        return [one for one in sessions if one is not None and _work_of(one) is self]

    def refuse(self, error: WrittenElsewhere) -> None:
        self.fail(error)
        self.refused = error
        raise error

    def check(self) -> None:
        """Raise the refusal again, in case that the application has caught it: the effect is missing. A change that a
        session has not sent yet is missing as well, or would be sent apart from the claim."""
        if self.refused is not None:
            raise self.refused
        for session in self._members():
            changed = _change_of(self, session)
            if changed is not None and not _is_on_any(session, self):
                self.refuse(_refusal_of(changed))


_works: Final[ContextVar[tuple[Work, ...]]] = ContextVar("works", default=())
_is_apart: Final[ContextVar[bool]] = ContextVar("is_apart", default=False)


def _works_without(work: Work) -> tuple[Work, ...]:
    """The others that are open: a context that was copied, or that has seen no end, keeps some that are not."""
    return tuple(one for one in _works.get() if one is not work and one.is_open())


class KeptTransaction(Protocol):
    """The transaction of a claim: the connection of its driver, its file if it is SQLite's, and whether it was rolled
    back."""

    driver: object
    file: str

    @property
    def is_over(self) -> bool: ...


@contextlib.contextmanager
def effects_on(transaction: KeptTransaction) -> Iterator[None]:
    """What runs in here is the work of a claim in this transaction."""
    is_open = True
    work = Work(lambda: is_open)
    work.driver, work.file = transaction.driver, transaction.file
    work.begin()
    note_writer(work.file, work.is_open)
    try:
        with told_of_end(lambda: transaction.is_over):
            yield
        work.check()
    finally:
        is_open = False
        work.end()


def work_on(connection: Connection) -> Work:
    """The work of a claim that has no block, which lasts until the transaction of this connection ends. After a refusal
    that transaction cannot be committed. If a driver's own connection was lent, nobody knows when that is, and the work
    ends at once."""
    transaction, its_connection = connection.get_transaction(), ref(connection)
    root = None if transaction is None else ref(transaction)
    work = Work(lambda: root is not None and (one := root()) is not None and one.is_active)
    work.driver, work.file = driver_of(connection), file_of(connection)
    work.fail = lambda _error: refuse_commit(its_connection())
    work.has_end = False
    return work


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """What is written in here on another connection is no part of a claim's effect: it commits by itself, and happens
    again when the event or the request is repeated."""
    works, was_apart = _works.get(), _is_apart.get()
    _works.set(())
    _is_apart.set(True)
    try:
        yield
    finally:
        _works.set(works)
        _is_apart.set(was_apart)


def driver_of(connection: Connection) -> object:
    return connection.connection.driver_connection


def _elsewhere_from(driver: object) -> Work | None:
    """The work that a statement on this connection would be beside of; None if it is no work, or on its connection."""
    works = _open_works()
    return works[-1] if works and not any(one.driver is driver for one in works) else None


def _open_works() -> list[Work]:
    return [one for one in _works.get() if one.is_open()]


def writes(statement: Any) -> bool:
    """Whether this changes rows, other than those of claims."""
    text = _text_of(statement)
    return _WRITES.search(text) is not None and not _OF_CLAIMS.search(text)


def _text_of(statement: Any) -> str:
    """psycopg composes statements of parts."""
    as_string = getattr(statement, "as_string", None)
    return str(statement) if as_string is None else str(as_string(None))


# -- who looks ---------------------------------------------------------------------------------------------------------


_OF_DJANGO: Final = (
    "let the claim use the connection of Django: configure Idempotency(semel.http.django.transactions), and take "
    "step.connection() before the work of a step; for events, write a handler of semel.django.inbox, and for tasks of "
    "Celery take semel.django.celery.once"
)


def _refusal_of_statement(statement: str, connection: str, remedy: str = "") -> WrittenElsewhere:
    return WrittenElsewhere(f"{' '.join(statement.split()[:3])} ... goes over {connection}", remedy)


def _before_statement(_cursor: object, statement: str, _parameters: object, context: Any) -> None:
    if _works.get():
        work = _elsewhere_from(driver_of(context.root_connection))
        if work is not None and writes(statement):
            work.refuse(_refusal_of_statement(statement, "another connection of SQLAlchemy"))
    if _session_on:
        session = _session_on.get(context.root_connection, _nobody)()
        work = None if session is None else _left_by(session)
        if work is not None and writes(statement):
            work.refuse(_refusal_of_statement(statement, "a session of another connection"))


def _before_bare_statement(cursor: object, statement: str, context: Any) -> None:
    _before_statement(cursor, statement, (), context)


# Events of the dialects, which are told of statements alone. With one of the engines, each engine of the program would
# prepare all its events for each statement, which takes as long as a third of a small one on SQLite.
_LISTENERS: Final[dict[str, Callable[..., None]]] = {
    "do_execute": _before_statement,
    "do_executemany": _before_statement,
    "do_execute_no_params": _before_bare_statement,
}


def _around_djangos(execute: Any, statement: Any, parameters: Any, many: bool, context: Any) -> Any:
    if _works.get():
        connection = context["connection"]
        work = _elsewhere_from(connection.connection)
        if work is not None and (writes(statement) or _waits(connection, statement, work)):
            name = f"the connection {connection.alias!r} of Django"
            work.refuse(_refusal_of_statement(_text_of(statement), name, _OF_DJANGO))
    return execute(statement, parameters, many, context)


def _waits(connection: Any, statement: Any, work: Work) -> bool:
    """Whether it waits for the lock on a file of SQLite that the work has, until the timeout is over."""
    is_lock = connection.vendor == "sqlite" and _LOCKS.match(_text_of(statement)) is not None
    return is_lock and os.path.realpath(connection.settings_dict["NAME"]) == work.file


# Whether this thread has looked for connections that Django had made before it was listened to.
_of_thread: Final = threading.local()


def listen() -> None:
    """Listen to SQLAlchemy; and to Django, if the program uses it: to connections that it makes from here on, and those
    of this thread."""
    _listen_to_sqlalchemy()
    django = sys.modules.get("django.db")
    if django is None or getattr(_of_thread, "has_looked", False):
        return
    from django.conf import settings
    from django.db.backends.signals import connection_created

    connection_created.connect(_djangos_is_made, dispatch_uid=__name__)
    if settings.configured:
        for connection in django.connections.all(initialized_only=True):
            _djangos_is_made(connection=connection)
        _of_thread.has_looked = True


@cache
def _listen_to_sqlalchemy() -> None:
    for name, listener in _LISTENERS.items():
        event.listen(Engine, name, listener)


def _djangos_is_made(*, connection: Any, **_more: object) -> None:
    if _around_djangos not in connection.execute_wrappers:
        # The first one: a block of `execute_wrapper` takes away the last one at its end.
        connection.execute_wrappers.insert(0, _around_djangos)


# -- sessions that send their changes later ----------------------------------------------------------------------------


# Where in `Session.info` stands to which work the transaction of a session belongs. The work may refer to the session,
# so a dictionary with weak keys would keep both.
_WORK: Final = "semel.database.effects"
_connections_of: Final[WeakKeyDictionary[Session, WeakSet[Connection]]] = WeakKeyDictionary()
# The sessions that belong to a work. No listener at the connection itself: each savepoint would add one.
_session_on: Final[WeakKeyDictionary[Connection, Callable[[], Session | None]]] = WeakKeyDictionary()
# The sessions that have begun in this context outside of any work. A tuple, because contexts are copied.
_begun: Final[ContextVar[tuple[ref[Session], ...]]] = ContextVar("begun", default=())


def _nobody() -> None:
    return None


def _work_of(session: Session) -> Work | None:
    work: Work | None = session.info.get(_WORK)
    return work


def _begun_here() -> list[Session]:
    sessions = (one() for one in _begun.get())
    return [one for one in sessions if one is not None and one.in_transaction()]


def _unsent(session: Session) -> IdentitySet:
    """The objects whose changes this session has not sent. If a thread that the handler has left changes the session
    meanwhile, SQLAlchemy raises a RuntimeError."""
    for _ in range(_LOOKS_MAX):
        with contextlib.suppress(RuntimeError):
            return _unsent_now(session)
    return _unsent_now(session)


_LOOKS_MAX: Final = 100


def _unsent_now(session: Session) -> IdentitySet:
    return IdentitySet((*session.new, *session.deleted, *(one for one in session.dirty if session.is_modified(one))))


def _change_of(work: Work, session: Session) -> str | None:
    """The kind of an object that was changed in this work, and that this session has not sent."""
    before = work.sessions.get(ref(session))
    changed = _unsent(session) if before is None else _unsent(session) - before
    return next((type(one).__name__ for one in changed), None)


def _is_on(session: Session, driver: object) -> bool:
    """Whether this session works on the connection of this driver."""
    own = {session.bind} if isinstance(session.bind, Connection) else _connections_of.get(session, ())
    return any(not one.closed and not one.invalidated and driver_of(one) is driver for one in own)


def _is_on_any(session: Session, work: Work) -> bool:
    """Whether it works on the connection of this work, or of another one that is open around it."""
    return any(_is_on(session, one.driver) for one in (work, *_open_works()))


def _refusal_of(changed: str) -> WrittenElsewhere:
    return WrittenElsewhere(
        f"a session on a connection of its own holds an unsent change of {changed} (if it is for the answer alone, and "
        "not to be written, call expunge() or rollback() of that session before the answer)"
    )


def _give(session: Session, work: Work) -> None:
    session.info[_WORK] = work
    for connection in _connections_of.get(session, ()):
        _hear(session, connection)


def _hear(session: Session, connection: Connection) -> None:
    if not isinstance(session.bind, Connection):
        _session_on[connection] = ref(session)


def _belongs(session: Session, _object: object) -> None:
    works = _open_works() if _works.get() else []
    if works and _work_of(session) is not works[-1]:
        _give(session, works[-1])
        works[-1].sessions.setdefault(ref(session), IdentitySet())


def _begins(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:
        return
    session.info.pop(_WORK, None)
    _connections_of.pop(session, None)
    works = _open_works() if _works.get() else []
    if works:
        _give(session, works[-1])
        works[-1].sessions[ref(session)] = IdentitySet()
    elif not _is_apart.get():
        _begun.set((*(ref(one) for one in _begun_here() if one is not session), ref(session)))


def _left_by(session: Session) -> Work | None:
    """The work that has ended, and has left this session to send its changes now, apart from the claim."""
    work = _work_of(session)
    if work is None or work.is_open() or _is_apart.get():
        return None
    return None if _is_on_any(session, work) else work


def _has_connection(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    # A savepoint is on the connection of its transaction.
    if transaction.parent is None:
        # One that it takes after the end may be the claim's by chance: it is from the same pool.
        if _left_by(session) is None:
            _connections_of.setdefault(session, WeakSet()).add(connection)
        if _work_of(session) is not None:
            _hear(session, connection)


def _sends(session: Session, *_flush: object) -> None:
    work = _left_by(session)
    changed = None if work is None else _change_of(work, session)
    if work is not None and changed is not None:
        work.refuse(_refusal_of(changed))


# From the import on, because a session may begin before the first claim, and be the one that a claim is handed.
_OF_SESSIONS: Final[dict[str, Callable[..., None]]] = {
    "after_transaction_create": _begins,
    "after_begin": _has_connection,
    "transient_to_pending": _belongs,
    "before_flush": _sends,
}
for _name, _listener in _OF_SESSIONS.items():
    event.listen(Session, _name, _listener)
