"""Finds sessions of SQLAlchemy that lose their changes: on a connection in the caller's transaction, and never flushed.

`with Session(connection) as session: session.add(row)` sends nothing at all, because a session flushes at its commit,
and this one is only closed. Without an error, the claim would commit without its effect. This module must never flush a
session: it may be the caller's wish that nothing is written.
"""

from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection, event, inspect
from sqlalchemy.engine import RootTransaction
from sqlalchemy.orm import Session, SessionTransaction

# The sessions that are bound to a connection. They refer to it, and so must not be kept here.
_joined: Final[WeakKeyDictionary[Connection, WeakSet[Session]]] = WeakKeyDictionary()
# The connections on which a session was closed before it has written its changes, with one of these, and when.
_lost: Final[WeakKeyDictionary[Connection, tuple[str, ref[RootTransaction]]]] = WeakKeyDictionary()
# What a session has lost in case that it ends like this.
_unwritten: Final[WeakKeyDictionary[Session, str]] = WeakKeyDictionary()


def lost_on(connection: Connection) -> str | None:
    """An object whose changes were not written by a session on this connection; None if there is none."""
    if connection not in _joined:
        return None
    for session in list(_joined[connection]):
        for changed in (*session.new, *session.dirty, *session.deleted):
            return type(changed).__name__
    name, transaction = _lost.get(connection, (None, None))
    return name if transaction is not None and transaction() is connection.get_transaction() else None


def _has_begun(session: Session, transaction: SessionTransaction) -> None:
    connection = session.bind
    if not isinstance(connection, Connection) or transaction.parent is not None:
        return
    joined = _joined.setdefault(connection, WeakSet())
    if session not in joined:
        joined.add(session)
        for name, listener in _LISTENERS.items():
            event.listen(session, name, listener)


def _is_detached(session: Session, instance: object) -> None:
    # A session that is closed drops all its objects at once; an application that takes out one object means it.
    if not session.identity_map and not session.new:
        state: Any = inspect(instance)
        if state.key is None or state.modified:
            _unwritten.setdefault(session, type(instance).__name__)


def _has_decided(session: Session, *_transaction: object) -> None:
    """A commit, which has written everything, or a rollback."""
    _unwritten.pop(session, None)


def _has_ended(session: Session, transaction: SessionTransaction) -> None:
    unwritten = _unwritten.pop(session, None)
    if unwritten is None or transaction.parent is not None or not isinstance(session.bind, Connection):
        return
    root = session.bind.get_transaction()
    if root is not None:
        _lost[session.bind] = unwritten, ref(root)


_LISTENERS: Final[dict[str, Any]] = {
    "pending_to_transient": _is_detached,
    "persistent_to_detached": _is_detached,
    "after_commit": _has_decided,
    "after_soft_rollback": _has_decided,
    "after_transaction_end": _has_ended,
}

# For every session, because one may begin before anything of semel's is done on its connection.
event.listen(Session, "after_transaction_create", _has_begun)
