"""Refuses what an application writes beside the transaction of a claim: such an effect commits although its claim does
not, and happens again when the event or the request is repeated.

Code that does the work of a claim notes so in its context, with the connection of the claim. Each engine of SQLAlchemy
and each connection of Django looks there before a statement, and refuses one that writes on another connection. Nobody
sees what goes past both, such as a driver's own connection. This module must never refuse a statement that only reads,
nor one outside of a claim's work.
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
from weakref import ref

from sqlalchemy import Connection, Engine, event

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
        # What has to happen at once, because nobody checks at the end.
        self.fail: Callable[[], None] = lambda: None
        self._refused: WrittenElsewhere | None = None

    def begin(self) -> None:
        """What comes next in the caller's context is this work, as long as it is open."""
        listen()
        _works.set((*_works_without(self), self))

    def end(self) -> None:
        """Remove this work from the caller's context."""
        _works.set(_works_without(self))

    def refuse(self, error: WrittenElsewhere) -> None:
        self._refused = error
        self.fail()
        raise error

    def check(self) -> None:
        """Raise the refusal again, in case that the application has caught it: the effect is missing."""
        if self._refused is not None:
            raise self._refused


_works: Final[ContextVar[tuple[Work, ...]]] = ContextVar("works", default=())


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
    work.fail = lambda: refuse_commit(its_connection())
    return work


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """What is written in here on another connection is no part of a claim's effect: it commits by itself, and happens
    again when the event or the request is repeated."""
    works = _works.get()
    _works.set(())
    try:
        yield
    finally:
        _works.set(works)


def driver_of(connection: Connection) -> object:
    return connection.connection.driver_connection


def _elsewhere_from(driver: object) -> Work | None:
    """The work that a statement on this connection would be beside of; None if it is no work, or on its connection."""
    works = [one for one in _works.get() if one.is_open()]
    return works[-1] if works and not any(one.driver is driver for one in works) else None


def writes(statement: Any) -> bool:
    """Whether this changes rows, other than those of claims."""
    text = _text_of(statement)
    return _WRITES.search(text) is not None and not _OF_CLAIMS.search(text)


def _text_of(statement: Any) -> str:
    """psycopg composes statements of parts."""
    as_string = getattr(statement, "as_string", None)
    return str(statement) if as_string is None else str(as_string(None))


# -- who looks ---------------------------------------------------------------------------------------------------------


_OF_SQLALCHEMY: Final = (
    "write on the connection or session of the claim: the one that the handler was handed, or takes by "
    "idempotency.connection(request) or step.connection()"
)
_OF_DJANGO: Final = (
    "let the claim use the connection of Django: configure Idempotency(semel.http.django.transactions), and take "
    "step.connection() before the work of a step; for events, write a handler of semel.django.inbox"
)


def _before_statement(_cursor: object, statement: str, _parameters: object, context: Any) -> None:
    if _works.get():
        work = _elsewhere_from(driver_of(context.root_connection))
        if work is not None and writes(statement):
            work.refuse(WrittenElsewhere(statement, "another connection of SQLAlchemy", _OF_SQLALCHEMY))


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
            work.refuse(WrittenElsewhere(_text_of(statement), name, _OF_DJANGO))
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
