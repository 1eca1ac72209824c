"""Reads a row of the outbox, which any program may have written: a trigger, a migration, another language.

A row that cannot be a record is told from the others by a reason that names its column. SQLite keeps any kind of value
in any column, so this asks it for the kinds, too: a driver that decodes the values by itself would fail for all rows of
an answer at once. This module must never raise for what stands in a row, except `Unreadable`.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, case, func

from semel.database.dialects import per_dialect
from semel.database.keys import is_unicode
from semel.outbox.messages import obstacle_of_topic
from semel.outbox.tables import messages
from semel.publish import Record

# A larger row is not read at all: it would take the relay's memory, and by default a broker reads no larger request
# (socket.request.max.bytes).
ROW_BYTES_MAX: Final = 100 * 1024 * 1024
# How many names of topics are kept that were found to be good ones.
_TOPICS_MAX: Final = 1024
# How much of a wrong value a reason shows.
_SHOWN_CHARACTERS_MAX: Final = 60


class Unreadable(ValueError):
    """A row cannot be a record; the message names the column."""


class UnreadableRow(NamedTuple):
    """A row that cannot be a record, and why."""

    number: int
    reason: str


# The columns of a record, as any program may have written them.
COLUMNS: Final = per_dialect(
    lambda dialect: (
        *(messages.c.number, dialect.as_text(messages.c.topic), dialect.as_bytes(messages.c.key)),
        *(dialect.as_bytes(messages.c.value), dialect.as_text(messages.c.headers)),
        dialect.as_integer(messages.c.added_at_ms),
    )
)
ADDED_AT_MS: Final = per_dialect(lambda dialect: dialect.as_integer(messages.c.added_at_ms))
BYTES: Final[ColumnElement[Any]] = (
    func.coalesce(func.length(messages.c.key), 0)
    + func.coalesce(func.length(messages.c.value), 0)
    + func.coalesce(func.length(messages.c.headers), 0)
)


def _unless_too_large(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((BYTES > ROW_BYTES_MAX, None), else_=column)


# What a person sees of a row, whatever is in it: topic, key, value and aggregate.
SHOWN: Final = per_dialect(
    lambda dialect: (
        *(dialect.as_shown(messages.c.topic), _unless_too_large(dialect.as_shown(messages.c.key))),
        *(_unless_too_large(dialect.as_shown(messages.c.value)), dialect.as_shown(messages.c.aggregate)),
    )
)
TOO_LARGE: Final = f"key, value and headers have more than {ROW_BYTES_MAX} bytes together, which no broker takes"


def record_of(topic: Any, key: Any, value: Any, headers: Any, added_at_ms: Any) -> Record:
    """The record of a row. Its timestamp is the time when the message was added. `Unreadable` if there can be none."""
    if not isinstance(key, bytes | None):
        raise Unreadable("column key is neither bytes nor null")
    if not isinstance(value, bytes | None):
        raise Unreadable("column value is neither bytes nor null")
    if not isinstance(added_at_ms, int) or added_at_ms < 0:
        raise Unreadable(f"column added_at_ms is no time in milliseconds since 1970: {added_at_ms}")
    return Record(_topic_of(topic), key, value, _headers_of(headers) if headers is not None else (), None, added_at_ms)


def shown_text(text: Any) -> str:
    """A text that may not be one, for a person."""
    return text.decode(errors="backslashreplace") if isinstance(text, bytes) else str(text)


@lru_cache(_TOPICS_MAX)
def _topic_of(topic: Any) -> str:
    text = _text_of("topic", topic)
    obstacle = obstacle_of_topic(text)
    if obstacle is not None:
        raise Unreadable(f"column topic: {_shortened(repr(text))} {obstacle}")
    return text


def _headers_of(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        pairs = json.loads(_text_of("headers", headers))
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"column headers is no JSON: {_shortened(str(error))}") from None
    if not isinstance(pairs, list):
        raise Unreadable("column headers is no list in JSON")
    return tuple(_header_of(pair) for pair in pairs)


def _header_of(pair: Any) -> tuple[str, bytes | None]:
    match pair:
        case [str(name), str() | None as digits]:
            pass
        case _:
            raise Unreadable("column headers is no list of pairs of a name and a value in hexadecimal digits or null")
    if "\0" in name or (not name.isascii() and not is_unicode(name)):
        raise Unreadable(f"column headers has a name that cannot be sent: {_shortened(repr(name))}")
    try:
        return name, None if digits is None else bytes.fromhex(digits)
    except ValueError:
        raise Unreadable(
            f"column headers has a value that is not in hexadecimal digits: {_shortened(repr(digits))}"
        ) from None


def _text_of(column: str, text: Any) -> str:
    if isinstance(text, str):
        return text
    if not isinstance(text, bytes):
        raise Unreadable(f"column {column} is no text")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"column {column} is no text in UTF-8") from None


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def read(rows: Iterable[Any]) -> tuple[list[int], list[Record], list[UnreadableRow]]:
    """The numbers and records of the rows before the first one that is unreadable, and all that are."""
    numbers: list[int] = []
    records: list[Record] = []
    unreadable: list[UnreadableRow] = []
    for number, *columns in rows:
        try:
            record = record_of(*columns)
        except Unreadable as reason:
            unreadable.append(UnreadableRow(number, str(reason)))
            continue
        if not unreadable:
            numbers.append(number)
            records.append(record)
    return numbers, records, unreadable
