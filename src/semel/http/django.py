"""The transaction of Django's ORM as a database of the HTTP keys: `Idempotency(transactions, scope=...)`.

It begins around Django, before Django begins a request, and ends after it. Django drops a connection that it finds
in a transaction when a request begins, so for that time the connection is not looked at. It must never end without an
error where Django rolls back by itself, as it does after an error of the database that a view has caught: all of it, or
the block that the view is, under ATOMIC_REQUESTS or `@transaction.atomic`. Nor may it be begun in another thread than
the view's, where the ORM has another connection.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from semel.database import TransactionBroken
from semel.http.transactions import of_one_thread


@of_one_thread
@contextlib.contextmanager
def transactions(using: str = "default") -> Iterator[Any]:
    """A transaction of this thread on the database `using`; of another one, hand over `partial(transactions, name)`."""
    with transaction.atomic(using=using, durable=True):
        connection = connections[using]
        with _not_looked_at(connection), _undone_blocks(connection) as undone:
            yield connection.connection
        if undone or connection.needs_rollback or connection.closed_in_transaction:
            raise TransactionBroken


@contextlib.contextmanager
def _not_looked_at(connection: Any) -> Iterator[None]:
    connection.close_if_unusable_or_obsolete = _do_nothing
    try:
        yield
    finally:
        del connection.close_if_unusable_or_obsolete


@contextlib.contextmanager
def _undone_blocks(connection: Any) -> Iterator[list[str]]:
    """The savepoints of those `atomic` blocks that Django has undone at their end although no error left them. Such a
    block releases its savepoint after that; a view that goes back to one of its own need not."""
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
    """The connection is in use, and is neither unusable nor obsolete before that ends."""
