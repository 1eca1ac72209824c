"""A message: added in the caller's transaction, kept as a row of the table, and published as a record.

A message is published if its transaction commits, and never if it does not. Data that cannot be a record, or that the
database would not keep as it is, is refused when it is added, while the application can still correct it. A session's
own changes are written first: their row locks make the order of the messages the order of the changes. This module must
never begin, commit or roll back the transaction. On PostgreSQL the commit wakes a relay that is asleep; see `bell.py`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, insert
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from semel.database import AsyncHandle, Handle, within, within_async
from semel.database.clock import Clock, now_ms
from semel.database.dialects import dialect_of
from semel.metrics.traces import trace_headers
from semel.outbox.bell import WAKES_RELAY, wake
from semel.outbox.errors import MessageRefused
from semel.outbox.tables import messages
from semel.publish.clients import TOPIC_PREFIX
from semel.publish.rules import Headers

# What stands under a topic that begins with this is for a function that sends it: no relay publishes it into a log.
SEND_PREFIX: Final = "semel-send-"
_BUCKET_BYTES: Final = 4
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that becomes a record. Messages of one aggregate keep their order; by default the aggregate is the
    key."""

    topic: str
    key: bytes | str | None = None
    value: bytes | str | None = None
    headers: Headers = ()
    aggregate: bytes | str | None = None


def columns_of(message: Message, added_at_ms: int) -> dict[str, Any]:
    """The columns of a new row."""
    obstacle = obstacle_of_topic(message.topic)
    if obstacle is not None:
        raise MessageRefused(f"{message.topic!r} {obstacle}")
    key = _bytes("a key", message.key)
    aggregate = key if message.aggregate is None else _bytes("an aggregate", message.aggregate)
    return {
        "topic": message.topic,
        "key": key,
        "value": _bytes("a value", message.value),
        "headers": _headers_text(message.headers),
        "aggregate": aggregate,
        "bucket": _bucket(aggregate),
        "added_at_ms": added_at_ms,
    }


def obstacle_of_topic(topic: Any) -> str | None:
    """Why no message can go to this topic; None if one can."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return "is no topic: letters, digits, '.', '_' and '-', 249 at most"
    if topic.startswith(TOPIC_PREFIX):
        return "is a topic in which a publisher keeps its progress, and nothing else may be written there"
    return None


def _bucket(aggregate: bytes | None) -> int:
    """The same in every process and version. Messages without an aggregate share a bucket, and so keep their order,
    too."""
    return int.from_bytes(hashlib.blake2b(aggregate or b"", digest_size=_BUCKET_BYTES).digest())


def _headers_text(headers: Headers) -> str | None:
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not pairs:
        return None
    written = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise MessageRefused(f"{pair!r} is no header: a name and a value are, in a mapping or as pairs")
        name, value = pair
        _bytes("a header's name", name)
        if "\0" in name:
            raise MessageRefused(f"{name!r} is no name of a header: librdkafka would end it at the NUL")
        data = _bytes("a header's value", value)
        written.append([name, None if data is None else data.hex()])
    return json.dumps(written)


def _bytes(what: str, data: bytes | str | None) -> bytes | None:
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise MessageRefused(f"{what} is text with half a character in it, {data!r}: hand over bytes") from None
    if data is None or isinstance(data, bytes):
        return data
    raise MessageRefused(f"{what} is bytes, text or None, and not {type(data).__qualname__}")


# -- adding ------------------------------------------------------------------------------------------------------------


_ADD: Final = insert(messages)
# One statement, and so one round trip to the database.
_ADD_AND_WAKE: Final = {
    dialect: insert(messages).inline().returning(wakes) for dialect, wakes in WAKES_RELAY.items() if wakes is not None
}


def add(
    handle: Handle,
    topic: str,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
    headers: Headers = (),
    *,
    aggregate: bytes | str | None = None,
    clock: Clock = now_ms,
) -> None:
    """Publish this record once, when the transaction has committed, and after the earlier messages of its aggregate.

    Messages of one `aggregate` keep their order; by default the aggregate is the key.
    """
    add_many(handle, [Message(topic, key, value, headers, aggregate)], clock=clock)


def add_many(handle: Handle, added: Iterable[Message], *, clock: Clock = now_ms) -> None:
    """`add` for several messages at once, in their order."""
    rows = _rows(added, clock)
    if isinstance(handle, Session | scoped_session):
        # The session's unwritten changes lock the aggregate's rows, and must do so before the message gets its number.
        handle.flush()
    with within(handle) as connection:
        _insert(connection, rows)


async def add_async(
    handle: AsyncHandle,
    topic: str,
    key: bytes | str | None = None,
    value: bytes | str | None = None,
    headers: Headers = (),
    *,
    aggregate: bytes | str | None = None,
    clock: Clock = now_ms,
) -> None:
    """`add` on an asynchronous connection or session."""
    await add_many_async(handle, [Message(topic, key, value, headers, aggregate)], clock=clock)


async def add_many_async(handle: AsyncHandle, added: Iterable[Message], *, clock: Clock = now_ms) -> None:
    """`add_many` on an asynchronous connection or session."""
    rows = _rows(added, clock)
    if isinstance(handle, AsyncSession | async_scoped_session):
        await handle.flush()
    await within_async(handle, lambda connection: _insert(connection, rows))


def _rows(added: Iterable[Message], clock: Clock) -> list[dict[str, object]]:
    at_ms, trace = clock(), trace_headers()
    return [columns_of(_in_trace(message, trace), at_ms) for message in added]


def _in_trace(message: Message, trace: Mapping[str, str]) -> Message:
    """The message with the program's current trace, unless it has one itself."""
    if not trace:
        return message
    headers = list(message.headers.items() if isinstance(message.headers, Mapping) else message.headers)
    if any(isinstance(pair, tuple | list) and pair and pair[0] in trace for pair in headers):
        return message
    return replace(message, headers=[*headers, *trace.items()])


def _insert(connection: Connection, rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    both = _ADD_AND_WAKE.get(dialect_of(connection).name)
    if both is not None and len(rows) == 1:
        connection.execute(both, rows[0])
        return
    connection.execute(_ADD, rows)
    wake(connection)
