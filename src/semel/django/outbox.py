"""The outbox in a transaction of the ORM: a message is published once if the block of `atomic` commits, and never if it
does not.

    with transaction.atomic():
        order.save()
        outbox.add("orders", key=str(order.pk), value=json.dumps(...))

This module must never begin a transaction: a message alone would have nothing to commit with.
"""

from collections.abc import Iterable
from typing import Any

from django.db import connections

from semel import outbox
from semel.database import NotInTransaction
from semel.django.aliases import alias
from semel.outbox import Message
from semel.publish.rules import Headers

__all__ = ["Message", "add", "add_many"]


def add(
    topic: str,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
    headers: Headers = (),
    *,
    aggregate: bytes | str | None = None,
    using: str | None = None,
) -> None:
    """Publish this record once, when the block of `atomic` around it has committed. `using` is the alias, by default
    that of the settings."""
    add_many([Message(topic, key, value, headers, aggregate)], using=using)


def add_many(added: Iterable[Message], *, using: str | None = None) -> None:
    """`add` for several messages at once, in their order."""
    outbox.add_many(in_atomic(using or alias()), added)


def in_atomic(using: str) -> Any:
    """The driver's connection of this alias, if what is added on it commits with the block around it."""
    connection = connections[using]
    if not connection.in_atomic_block:
        raise NotInTransaction(f"add the message inside of `with transaction.atomic(using={using!r}):`")
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    return connection.connection
