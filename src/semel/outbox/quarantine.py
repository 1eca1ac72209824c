"""What a person does with messages that the broker refused: look at them, have them tried again, or drop them.

After either, the messages that waited for them can go on. Each call is in the caller's transaction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, select

from semel.outbox.bell import wake
from semel.outbox.errors import Unsettled
from semel.outbox.tables import messages, quarantine


class RefusedMessage(NamedTuple):
    """A message that was refused."""

    number: int
    topic: str
    key: bytes | None
    value: bytes | None
    aggregate: bytes | None
    reason: str
    added_at_ms: int
    refused_at_ms: int
    # How many of its aggregate wait because of it.
    behind: int


def refused_messages(connection: Connection, count_max: int | None = None) -> list[RefusedMessage]:
    """In the order in which they were added; the first of them, or all."""
    other = messages.alias()
    behind = (
        select(func.count())
        .where(other.c.aggregate == messages.c.aggregate, other.c.number != messages.c.number)
        .scalar_subquery()
    )
    statement = (
        select(
            *(messages.c.number, messages.c.topic, messages.c.key, messages.c.value, messages.c.aggregate),
            *(quarantine.c.reason, messages.c.added_at_ms, quarantine.c.refused_at_ms, behind),
        )
        .join(quarantine, quarantine.c.number == messages.c.number)
        .order_by(messages.c.number)
        .limit(count_max)
    )
    return [RefusedMessage(*row) for row in connection.execute(statement)]


def retry(connection: Connection, numbers: Sequence[int]) -> None:
    """Let them wait again, before the messages that wait for them."""
    for number in numbers:
        _take_out(connection, number)
    wake(connection)


def drop(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete them. They never get into the log, and the messages that waited for them go on."""
    for number in numbers:
        _take_out(connection, number)
        connection.execute(delete(messages).where(messages.c.number == number))
    wake(connection)


def _take_out(connection: Connection, number: int) -> None:
    if connection.execute(delete(quarantine).where(quarantine.c.number == number)).rowcount == 0:
        raise Unsettled(f"there is no {number} in the quarantine")
