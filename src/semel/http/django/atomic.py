"""Lets the HTTP keys use the transaction of Django's ORM: `Idempotency(transactions, scope=...)`.

The transaction begins before Django begins the request, and ends after it. When a request begins, Django closes a
connection that is in a transaction, so this check is turned off meanwhile. The transaction must never end without an
error if Django has rolled it back, as it does after a database error that a view has caught: the whole transaction, or
the view's block under ATOMIC_REQUESTS or `@transaction.atomic`. It must begin in the view's thread, because in another
thread the ORM has another connection.
"""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from django.db import connections, transaction

from semel.database import TransactionBroken
from semel.steps.transactions import of_one_thread, raises_at_rollback


@of_one_thread
@raises_at_rollback
def transactions(using: str = "default") -> AbstractContextManager[Any]:
    """A transaction of this thread on the database `using`; for another database than "default", pass
    `partial(transactions, name)`."""
    return _Transaction(using)


class _Transaction(AbstractContextManager[Any]):
    """A transaction that knows whether the ORM has used it."""

    def __init__(self, using: str) -> None:
        self.is_used = False
        self._manager = self._transaction(using)

    def __enter__(self) -> Any:
        return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def _transaction(self, using: str) -> Iterator[Any]:
        with transaction.atomic(using=using, durable=True):
            connection = connections[using]
            noted = connection.execute_wrapper(self._noted)
            with _not_looked_at(connection), _undone_blocks(connection) as undone, noted:
                yield connection.connection
            if undone or connection.needs_rollback:
                raise TransactionBroken

    def _noted(self, execute: Any, *statement: Any) -> Any:
        self.is_used = True
        return execute(*statement)


@contextlib.contextmanager
def _not_looked_at(connection: Any) -> Iterator[None]:
    connection.close_if_unusable_or_obsolete = _do_nothing
    try:
        yield
    finally:
        del connection.close_if_unusable_or_obsolete


@contextlib.contextmanager
def _undone_blocks(connection: Any) -> Iterator[list[str]]:
    """The savepoints of the `atomic` blocks that Django has rolled back although no error left them. Such a block
    releases its savepoint after that; a view that rolls back to its own savepoint need not."""
    roll_back, release = connection.savepoint_rollback, connection.savepoint_commit
    left: list[str] = []
    undone: list[str] = []

    def noted_rollback(savepoint: str) -> None:
        if sys.exception() is None:
            left.append(savepoint)
        roll_back(savepoint)

    def noted_release(savepoint: str) -> None:
        if left[-1:] == [savepoint]:
            undone.append(savepoint)
        release(savepoint)

    connection.savepoint_rollback, connection.savepoint_commit = noted_rollback, noted_release
    try:
        yield undone
    finally:
        del connection.savepoint_rollback, connection.savepoint_commit


def _do_nothing() -> None:
    """The connection is in use, so Django must not close it as unusable or obsolete."""
