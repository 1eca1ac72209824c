"""The errors with which semel refuses a connection, and what the errors of a database mean: a missing table, or a fault
that passes.

Each refusal names its remedy. One rule for all rooms that wait says which errors pass. This module must never wait.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted


class UnknownConnection(TypeError):
    """The handle is no connection on which semel can send statements."""

    def __init__(self, value: object) -> None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        # Before Django has used its connection, the driver's own is None.
        is_djangos = value is None or kind.startswith("django.")
        super().__init__(
            f"{kind} is no connection that semel knows; hand over a SQLAlchemy Connection or Session "
            "(or the asynchronous ones), a sqlite3.Connection or a psycopg.Connection"
            + ("; with Django, hand over connection.connection inside of transaction.atomic()" if is_djangos else "")
        )


class UnknownDatabase(ValueError):
    """The database is neither SQLite nor PostgreSQL, or the URL names none."""


class NotInTransaction(RuntimeError):
    """Each statement would commit by itself, so the claim and the effect would not commit together."""

    def __init__(self, remedy: str) -> None:
        super().__init__(f"no transaction is open, so the claim would not commit with your effect: {remedy}")


class NotImmediate(RuntimeError):
    """A SQLite transaction that began as a reader: it may fail when it first writes, whatever the busy timeout is."""

    def __init__(self) -> None:
        super().__init__(
            "this SQLite transaction is not IMMEDIATE, so it can fail as soon as another connection writes: begin it "
            "with BEGIN IMMEDIATE (with SQLAlchemy: make the engine by semel.database.engine_of(url))"
        )


class PreparesThroughPooler(RuntimeError):
    """A connection to PostgreSQL through a pooler prepares statements, and may execute one of another client."""

    def __init__(self) -> None:
        super().__init__(
            "this connection prepares statements, and goes through a pooler such as PgBouncer, which may give each "
            "transaction another session of the server, with the statements of other clients: make the engine by "
            "semel.database.engine_of(url), set prepare_threshold=None on psycopg's own connections, and for asyncpg "
            "see 'Through PgBouncer' in docs/how-to/schema.md"
        )


class WaitsForItself(RuntimeError):
    """A second transaction on SQLite would wait for the one in which its caller works, until the busy timeout is
    over."""

    def __init__(self, file: str) -> None:
        super().__init__(
            f"the transaction in which this handler works holds the write lock of {file}, so a second one on another "
            "connection waits for it until it fails: do the work on the connection or session that the handler was "
            "handed, or read on semel.database.read_only(engine)"
        )


class WrittenElsewhere(RuntimeError):
    """The work of a claim writes on another connection, so its effect would commit apart from the claim."""

    def __init__(self, statement: str, connection: str, remedy: str) -> None:
        begins = " ".join(statement.split()[:3])
        super().__init__(
            f"{begins} ... goes over {connection}, and the claim of this event or request is on another one: the two "
            f"would not commit together, and a repetition would write it again. So {remedy}. What may happen twice, "
            "write inside of `with semel.database.elsewhere():`"
        )


class TransactionBroken(RuntimeError):
    """The transaction was rolled back, and its commit would still report success."""

    def __init__(self) -> None:
        super().__init__(
            "the transaction was undone before its end, by an error of the database that was caught, or by a rollback: "
            "let the error go on, or do what may fail inside of connection.begin_nested()"
        )


class CommitTooEarly(TransactionBroken):
    """A commit between a claim and the end of its work. What came after it could fail, and the event would count as
    done."""

    def __init__(self) -> None:
        RuntimeError.__init__(
            self,
            "the transaction of a claim would end before its work: leave out commit(), and COMMIT and ROLLBACK in SQL. "
            "The code that began the transaction commits it afterwards; connection.begin_nested() may be used inside",
        )


class NotFlushed(TransactionBroken):
    """A session on the connection of a claim has not written its changes."""

    def __init__(self, changed: str) -> None:
        RuntimeError.__init__(
            self,
            f"a session on this connection was closed or left before it has written a {changed}: call session.flush() "
            "or session.commit() before that, or hand over the session itself (an Inbox takes a sessionmaker)",
        )


class EffectFailed(TransactionBroken):
    """A commit of a claim whose work has failed."""

    def __init__(self) -> None:
        RuntimeError.__init__(
            self,
            "an exception left the block of a claim, so its work is not done, and the commit would count it as done: "
            "roll the transaction back; or let the exception leave connection.begin_nested(), and catch it outside",
        )


@contextlib.contextmanager
def told_of_end(is_over: Callable[[], bool]) -> Iterator[None]:
    """Adds what it means to the error with which SQLAlchemy refuses what comes after a rollback."""
    try:
        yield
    except InvalidRequestError as error:
        if is_over():
            error.add_note(str(TransactionBroken()))
        raise


# -- what the database says --------------------------------------------------------------------------------------------


# The higher bits of an error number only add detail.
_PRIMARY_CODE: Final = 0xFF


def one_line(error: Exception) -> str:
    raised = error.orig if isinstance(error, DBAPIError) else error
    return str(raised).strip().partition("\n")[0]


def sqlite_code(raised: BaseException | None) -> int | None:
    """The primary code of the driver's own exception; None if it is not from SQLite."""
    code: int | None = getattr(raised, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


def sqlstate(raised: BaseException | None) -> str | None:
    """The SQLSTATE of the driver's own exception; None if it has none."""
    code = getattr(raised, "sqlstate", None) or getattr(raised, "pgcode", None)
    return code if isinstance(code, str) else None


# -- a table of semel's is missing -------------------------------------------------------------------------------------


# It has the real command but not the real URL, which may contain a password.
REMEDY: Final = "make semel's tables by: semel schema --database URL"
_POSTGRESQL_UNDEFINED_TABLE: Final = "42P01"


def is_missing_table(error: DBAPIError) -> bool:
    """Whether a table of semel's is missing. PostgreSQL's message depends on its language, so its code decides."""
    raised: Any = error.orig
    undefined = sqlstate(raised) == _POSTGRESQL_UNDEFINED_TABLE
    return (undefined or "no such table" in str(raised)) and "semel_" in str(raised)


@contextlib.contextmanager
def told_remedy() -> Iterator[None]:
    """Adds the remedy to the error of a missing table, at the end of its traceback."""
    try:
        yield
    except DBAPIError as error:
        if is_missing_table(error) and REMEDY not in getattr(error, "__notes__", ()):
            error.add_note(REMEDY)
        raise


# -- errors that pass by themselves ------------------------------------------------------------------------------------


# Classes of SQLSTATE that pass: lost connections, conflicts with other transactions, too few resources, a server that
# shuts down.
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "57"})
# Only the codes of locks from class 55; its other codes are about statements that never work. 25006: a write to a
# server that has just become a standby.
_PASSING_STATES: Final = frozenset({"55P03", "55006", "25006"})
# SQLite's codes that pass: BUSY, LOCKED, IOERR, FULL, PROTOCOL.
_PASSING_CODES: Final = frozenset({5, 6, 10, 13, 15})
_NO_CONNECTION: Final = frozenset({"psycopg.OperationalError", "psycopg2.OperationalError"})
# What PostgreSQL says of a database or a user that is not there, which no waiting makes. psycopg passes its words on
# without the code; of a server that speaks another language nobody can tell it from one that is away.
_IS_NOT_THERE: Final = "does not exist"


def is_passing(error: BaseException) -> bool:
    """Whether the error passes by itself. An error that is not from a database does not."""
    return all(
        next((verdict for one in causes(single) if (verdict := _verdict(one)) is not None), False)
        for single in singly(error)
    )


def singly(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, as a `TaskGroup` raises it, or the error itself. A group passes only if each of its errors
    does."""
    group = next((one for one in causes(error) if isinstance(one, BaseExceptionGroup)), None)
    if group is None:
        yield error
        return
    for member in group.exceptions:
        yield from singly(member)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then its cause, and so on."""
    visited: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in visited:
        visited.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Whether this error passes; None if it does not show."""
    if isinstance(error, PoolExhausted):
        return True
    if not isinstance(error, DBAPIError):
        return _verdict_of_driver(error)
    if error.connection_invalidated:
        return True
    verdict = _verdict_of_statement(error.orig)
    # The error of a connection that could not be made, or was lost in its COMMIT, has no SQLSTATE and no statement. If
    # it has a statement, the connection is still open, and a statement that could not be sent (too many values) never
    # can be. An InterfaceError decides nothing: asyncpg also raises it for a value that does not fit.
    return isinstance(error, OperationalError) and error.statement is None if verdict is None else verdict


def _verdict_of_driver(raised: BaseException) -> bool | None:
    """The same for a driver's exception, because an application may also use a driver directly."""
    verdict = _verdict_of_statement(raised)
    # psycopg raises this if a connection could not be made, or was lost.
    return True if verdict is None and is_of_a_kind(raised, _NO_CONNECTION) else verdict


def _verdict_of_statement(raised: Any) -> bool | None:
    """The verdict by the code that the database has given for a statement."""
    code = sqlite_code(raised)
    if code is not None:
        return code in _PASSING_CODES
    if isinstance(raised, sqlite3.Error):
        return False
    state = sqlstate(raised)
    if state is None:
        is_wrong = is_of_a_kind(raised, _NO_CONNECTION) and _IS_NOT_THERE in str(raised)
        return False if is_wrong else None
    return state[:2] in _PASSING_CLASSES or state in _PASSING_STATES


def is_of_a_kind(error: BaseException, names: frozenset[str]) -> bool:
    """Compares the full names of the error's classes, so that libraries which the program does not use need not be
    installed."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in names for kind in type(error).__mro__)
