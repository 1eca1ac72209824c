"""Adding messages, in the transaction of the caller. They are sent if it commits, and as if they had never been if not.

What a session has not written yet is written first: it locks what the order rests on. This must never begin, commit or
roll back the transaction. On PostgreSQL a relay that is asleep is woken by the
commit; see `waking.py`.
"""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, insert
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from semel.database import AsyncGiven, Given, within, within_async
from semel.database.clock import Clock, now_ms
from semel.outbox.messages import Message, columns_of
from semel.outbox.tables import messages
from semel.outbox.waking import WAKES_RELAY, wake
from semel.publish.rules import Headers

_ADD: Final = insert(messages)
# One statement, and one way to the database and back.
_ADD_AND_WAKE: Final = insert(messages).inline().returning(WAKES_RELAY)


def add(
    given: Given,
    topic: str,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
    headers: Headers = (),
    *,
    aggregate: bytes | str | None = None,
    clock: Clock = now_ms,
) -> None:
    """Have this record published once the transaction commits, once, and behind what it has to be behind.

    Order is kept among messages of one `aggregate`, which is the key if nothing else is said.
    """
    add_many(given, [Message(topic, key, value, headers, aggregate)], clock=clock)


def add_many(given: Given, added: Iterable[Message], *, clock: Clock = now_ms) -> None:
    """`add` for many, in their order, at once."""
    rows = _rows(added, clock)
    if isinstance(given, Session | scoped_session):
        # What the session still has to write locks the aggregate, and has to before the message takes its number.
        given.flush()
    with within(given) as connection:
        _insert(connection, rows)


async def add_async(
    given: AsyncGiven,
    topic: str,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
    headers: Headers = (),
    *,
    aggregate: bytes | str | None = None,
    clock: Clock = now_ms,
) -> None:
    """`add` on an asynchronous connection or session."""
    await add_many_async(given, [Message(topic, key, value, headers, aggregate)], clock=clock)


async def add_many_async(given: AsyncGiven, added: Iterable[Message], *, clock: Clock = now_ms) -> None:
    """`add_many` on an asynchronous connection or session."""
    rows = _rows(added, clock)
    if isinstance(given, AsyncSession | async_scoped_session):
        await given.flush()
    await within_async(given, lambda connection: _insert(connection, rows))


def _rows(added: Iterable[Message], clock: Clock) -> list[dict[str, object]]:
    at_ms = clock()
    return [columns_of(message, at_ms) for message in added]


def _insert(connection: Connection, rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    if connection.dialect.name == "postgresql" and len(rows) == 1:
        connection.execute(_ADD_AND_WAKE, rows[0])
        return
    connection.execute(_ADD, rows)
    wake(connection)
