"""Watches the transaction into which semel has written: what commits in the end has to be that transaction, whole.

A database may undo a transaction by itself (SQLite: RAISE(ROLLBACK) in a trigger, ON CONFLICT ROLLBACK, a full disk),
and an application may end it too early. On SQLite the driver is then on autocommit, and each later statement would
commit without the claim. So on a connection of SQLAlchemy, each statement and each commit first looks whether the
transaction is still there. That is what the drivers know, and costs no statement.

A driver's own connection has no events: there, only the end of a block looks. This module must never begin or commit a
transaction, and rolls one back only where it refuses its commit.
"""

import re
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext, RootTransaction
from sqlalchemy.orm import Session, SessionTransaction

from semel.database import joined_sessions
from semel.database.dialects import COMMENTS, IsClaimed, dialect_of
from semel.database.refusals import CommitTooEarly, EffectFailed, NotFlushed, TransactionBroken
from semel.database.writers import file_of

_END: Final = (
    r"(?:(?P<commit>COMMIT|END|PREPARE\s+TRANSACTION)|ABORT|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b"
)
_ENDS: Final = re.compile(COMMENTS + _END, re.IGNORECASE)
# A text of several statements, of which a later one may end the transaction. A function's body looks the same.
_MAY_END: Final = re.compile(r";" + COMMENTS + _END, re.IGNORECASE)


class Watched:
    """What is known about the transaction of one connection."""

    def __init__(self, root: RootTransaction) -> None:
        # It refers to its connection, which must not be kept by what is known about it.
        self._root = ref(root)
        # How many blocks need it to stay open.
        self.holders = 0
        # The driver begins a transaction with the first statement.
        self.is_begun = False
        self.is_over = False
        # With what semel has refused the first work or commit that would have been lost.
        self.refusal: TransactionBroken | None = None
        self.error: BaseException | None = None
        self.failed: list[IsClaimed] = []
        # Kept while it has to stay open, so that a session which nobody keeps does not vanish with its changes.
        self.sessions: list[Session] = []
        self.mark: Any = None
        # After the statement that is being sent it may be over.
        self.is_ending = False

    def is_of(self, connection: Connection) -> bool:
        """Whether this is still the transaction of the connection, as far as SQLAlchemy knows."""
        root = self._root()
        return root is not None and connection.get_transaction() is root

    def broken(self) -> TransactionBroken:
        broken = TransactionBroken()
        broken.__cause__ = self.error
        self.refusal = self.refusal or broken
        return broken

    def ended_too_early(self) -> CommitTooEarly:
        self.is_over = True
        self.refusal = self.refusal or CommitTooEarly()
        return CommitTooEarly()


_watched: Final[WeakKeyDictionary[Connection, Watched]] = WeakKeyDictionary()


def watch(connection: Connection) -> Watched:
    """Watch the present transaction of this connection until it ends. The caller has checked that there is one."""
    root = connection.get_transaction()
    assert root is not None, "SQLAlchemy begins a transaction with the first statement"
    watched = _watched.get(connection)
    if watched is not None and (watched.holders or watched.is_of(connection)):
        _check_open(connection, watched)
        return watched
    _listen(connection.engine)
    watched = _watched[connection] = Watched(root)
    _check_open(connection, watched)
    return watched


def refuse_commit(connection: Connection | None) -> None:
    """Refuse to commit what is the transaction of this connection now, if it is watched."""
    watched = None if connection is None else _watched.get(connection)
    if watched is not None:
        watched.failed.append(lambda _: True)


class OpenTransaction:
    """The transaction of a claim, which has to stay open until the work is done: until `release`, each commit by
    anybody is refused, and once the transaction is gone, so is each statement."""

    def __init__(self, connection: Connection, session: Session | None = None) -> None:
        """`session` is the one that has this connection, if there is one: it gets another connection when it has ended
        its transaction."""
        self._connection = connection
        # If the application ends its transactions in SQL, nobody watches it before and after.
        self._was_watched = connection in _watched
        self._watched = watch(connection)
        _check_open(connection, self._watched)
        self._watched.holders += 1
        self._is_released = False
        self.driver: object = connection.connection.driver_connection
        self.file = file_of(connection)
        if session is not None:
            _needed_by[session] = self._watched

    @property
    def is_over(self) -> bool:
        """Whether it was rolled back."""
        return self._watched.is_over

    @property
    def refusal(self) -> TransactionBroken | None:
        """With what semel has refused, after the end of the transaction or in place of it, what would have been
        lost."""
        return self._watched.refusal

    def check(self) -> None:
        """Raise TransactionBroken if a commit would not commit everything since the claim."""
        _check_sound(self._connection, self._watched)

    def release(self) -> None:
        """Let the transaction end. Call it once the work is done and checked, or has failed."""
        if not self._is_released:
            self._is_released = True
            self._watched.holders -= 1
            self._watched.sessions.clear()
            is_needed = self._was_watched or self._watched.failed
            if not self._watched.holders and (self._watched.is_over or not is_needed):
                _forget(self._connection, self._watched)

    def fail(self, is_claimed: IsClaimed) -> None:
        """An exception has ended the work: refuse to commit the transaction while the claim is in it."""
        self._watched.failed.append(is_claimed)


# -- the events of SQLAlchemy ------------------------------------------------------------------------------------------


# What sessions have to keep open.
_needed_by: Final[WeakKeyDictionary[Session, Watched]] = WeakKeyDictionary()
_heard: Final[WeakSet[Engine]] = WeakSet()
_mutex: Final = threading.Lock()


def _listen(engine: Engine) -> None:
    if engine in _heard:
        return
    with _mutex:
        if not _heard:
            event.listen(Session, "after_transaction_create", _session_has_begun)
            event.listen(Session, "after_begin", _session_has_connection)
        if engine not in _heard:
            for name, listener in _LISTENERS.items():
                event.listen(engine, name, listener)
            _heard.add(engine)


def _session_has_begun(session: Session, transaction: SessionTransaction) -> None:
    """Keep a session on a connection whose transaction has to stay open."""
    watched = _watched.get(session.bind) if isinstance(session.bind, Connection) else None
    if watched is not None and watched.holders and session not in watched.sessions:
        watched.sessions.append(session)


def _session_has_connection(session: Session, _transaction: object, connection: Connection) -> None:
    needed = _needed_by.get(session)
    if needed is None:
        return
    if not needed.holders:
        del _needed_by[session]
    elif needed.is_over:
        # So nothing can be done on the connection that the session has got instead.
        _listen(connection.engine)
        _watched[connection] = needed


def _before_statement(
    connection: Connection, _cursor: object, statement: str, _parameters: object, _context: object, _many: bool
) -> None:
    watched = _watched.get(connection)
    if watched is None:
        return
    if not watched.is_of(connection):
        if watched.holders:
            raise watched.broken()
        _forget(connection, watched)
        return
    _check_open(connection, watched)
    if end := _ENDS.match(statement):
        _before_end_in_sql(connection, watched, is_commit=end["commit"] is not None)
        _forget(connection, watched)
        return
    dialect = dialect_of(connection)
    if dialect.commits_by_itself(statement):
        _before_end_in_sql(connection, watched, is_commit=True)
        watched.is_ending = True
    elif watched.holders and ((";" in statement and _MAY_END.search(statement)) or dialect.may_commit(statement)):
        watched.mark = dialect.mark(connection)


def _before_end_in_sql(connection: Connection, watched: Watched, *, is_commit: bool) -> None:
    """A statement such as COMMIT: an application may end its own transaction in this way, if nobody needs it."""
    if watched.holders:
        raise CommitTooEarly
    if is_commit:
        _check_commit(connection, watched)


def _after_statement(connection: Connection, *_statement: object) -> None:
    watched = _watched.get(connection)
    if watched is not None and watched.is_ending:
        watched.is_ending = False
        if not _is_in_transaction(connection):
            _forget(connection, watched)
    elif watched is not None and watched.mark is not None:
        mark, watched.mark = watched.mark, None
        if not _is_in_transaction(connection) or not dialect_of(connection).is_marked(connection, mark):
            raise watched.ended_too_early()


def _at_error(context: ExceptionContext) -> None:
    watched = None if context.connection is None else _watched.get(context.connection)
    is_ours = isinstance(context.original_exception, TransactionBroken)
    if watched is not None and watched.error is None and not is_ours:
        watched.error = context.sqlalchemy_exception or context.original_exception
    if watched is not None and context.connection is not None and not context.is_disconnect:
        dialect_of(context.connection).after_error(context.connection)


def _at_rollback_to_savepoint(connection: Connection, *_savepoint: object) -> None:
    watched = _watched.get(connection)
    if watched is not None and _is_in_transaction(connection):
        watched.error = None


def _before_commit(connection: Connection, *_two_phase: object) -> None:
    watched = _watched.get(connection)
    if watched is None:
        return
    is_another = not watched.is_of(connection)
    try:
        if watched.holders:
            raise watched.broken() if is_another else watched.ended_too_early()
        if is_another:
            _forget(connection, watched)
            return
        _check_commit(connection, watched)
    except BaseException:
        # SQLAlchemy takes the transaction for ended now, and would not roll it back: the claim would commit with
        # whatever comes next on this connection.
        watched.is_over = True
        _roll_back(connection)
        raise
    _forget(connection, watched)


def _at_rollback(connection: Connection, *_two_phase: object) -> None:
    watched = _watched.get(connection)
    if watched is not None and watched.is_of(connection):
        watched.is_over = True
        if not watched.holders:
            _forget(connection, watched)


_LISTENERS: Final[dict[str, Any]] = {
    "before_cursor_execute": _before_statement,
    "after_cursor_execute": _after_statement,
    "handle_error": _at_error,
    "rollback_savepoint": _at_rollback_to_savepoint,
    "commit": _before_commit,
    "prepare_twophase": _before_commit,
    "commit_twophase": _before_commit,
    "rollback": _at_rollback,
    "rollback_twophase": _at_rollback,
}


def _forget(connection: Connection, watched: Watched) -> None:
    if _watched.get(connection) is watched:
        del _watched[connection]


def _roll_back(connection: Connection) -> None:
    if not connection.closed and not connection.invalidated:
        connection.dialect.do_rollback(connection.connection)


# -- what the drivers know ---------------------------------------------------------------------------------------------


def _check_open(connection: Connection, watched: Watched) -> None:
    if watched.is_over or connection.closed or not watched.is_of(connection):
        raise watched.broken()
    if _is_in_transaction(connection):
        watched.is_begun = True
    elif watched.is_begun:
        watched.is_over = True
        raise watched.broken()


def _check_commit(connection: Connection, watched: Watched) -> None:
    _check_sound(connection, watched)
    failed, watched.failed = watched.failed, []
    if any(is_claimed(connection) for is_claimed in failed):
        watched.failed = failed
        raise EffectFailed


def _check_sound(connection: Connection, watched: Watched) -> None:
    """Raise TransactionBroken if the commit would report success and commit nothing, or only a part."""
    _check_open(connection, watched)
    if dialect_of(connection).has_failed(connection, watched.error):
        raise watched.broken()
    lost = joined_sessions.lost_on(connection)
    if lost is not None:
        raise NotFlushed(lost)


def _is_in_transaction(connection: Connection) -> bool:
    if connection.invalidated:
        return False
    return dialect_of(connection).is_in_transaction(connection.connection.driver_connection)
