"""Lets a person handle messages that the broker refused, or that cannot be records: list, retry or drop them.

After a retry or a drop, the messages that waited for them can be published. Each call runs in the caller's transaction.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select

from semel.database.dialects import dialect_of
from semel.database.errors import told_remedy
from semel.outbox.bell import wake
from semel.outbox.errors import Unsettled
from semel.outbox.rows import ADDED_AT_MS, SHOWN, shown_text
from semel.outbox.tables import messages, quarantine


class RefusedMessage(NamedTuple):
    """A message that was refused. What another program has written into its row is shown as far as it can be: a time
    that is none as 0, and of a row that is too large to be read neither key nor value."""

    number: int
    topic: str
    key: bytes | None
    value: bytes | None
    aggregate: bytes | None
    reason: str
    added_at_ms: int
    refused_at_ms: int
    # How many messages of its aggregate wait because of it.
    behind: int


@told_remedy()
def refused_messages(
    connection: Connection, count_max: int | None = None, number: int | None = None
) -> list[RefusedMessage]:
    """The refused messages in the order in which they were added: all, the first `count_max`, or the one with this
    number."""
    other = messages.alias()
    behind = (
        select(func.count())
        .where(other.c.aggregate == messages.c.aggregate, other.c.number != messages.c.number)
        .scalar_subquery()
    )
    dialect = dialect_of(connection).name
    topic, *content = SHOWN[dialect]
    statement = (
        select(
            *(messages.c.number, topic, *content, quarantine.c.reason),
            *(func.coalesce(ADDED_AT_MS[dialect], 0), quarantine.c.refused_at_ms, behind),
        )
        .join(quarantine, quarantine.c.number == messages.c.number)
        .order_by(messages.c.number)
        .limit(count_max)
    )
    if number is not None:
        statement = statement.where(quarantine.c.number == number)
    rows: Sequence[Any] = connection.execute(statement).all()
    return [RefusedMessage(number, shown_text(topic), *rest) for number, topic, *rest in rows]


@told_remedy()
def retry(connection: Connection, numbers: Sequence[int]) -> None:
    """Let the relay try them again, before the messages that wait for them."""
    for number in numbers:
        _take_out(connection, number)
    wake(connection)


@told_remedy()
def drop(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete them: they are never published, and the messages that waited for them can be."""
    for number in numbers:
        _take_out(connection, number)
        connection.execute(delete(messages).where(messages.c.number == number))
    wake(connection)


def _take_out(connection: Connection, number: int) -> None:
    if connection.execute(delete(quarantine).where(quarantine.c.number == number)).rowcount == 0:
        raise Unsettled(f"there is no {number} in the quarantine")
