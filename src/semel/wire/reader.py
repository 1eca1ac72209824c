"""Reads any message, with kio's dataclasses as the schema but without kio's own reader.

kio's reader is fast, but it reserves memory for all announced elements of an array before it checks whether they have
arrived: ten bytes from a stranger make it ask for 17 GB, which aborts the whole process if memory is limited. It also
refuses unknown tagged fields, which the protocol wants skipped. This reader compares every length with the remaining
bytes, and limits the elements of one message. A large message takes a tenth of a second and more, so messages with
arrays are read in steps. This file must never trust a number that it has read. kio's reader is its oracle in the tests,
on bytes that kio wrote.
"""

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, get_args
from uuid import UUID

from semel.wire.errors import ProtocolError
from semel.wire.primitives import (
    MALFORMED,
    UUID_BYTES,
    Buffer,
    read_nullable_length,
    read_nullable_string,
    read_string,
    read_tagged_field_count,
    read_unsigned_varint,
    read_uuid,
)
from semel.wire.steps import Steps, finish

# An element of three bytes becomes an object of a hundred or more. The largest honest messages, offset commits and
# descriptions of a whole cluster, have some ten thousand elements.
ELEMENTS_PER_MESSAGE_MAX: Final = 200_000

# How many elements without arrays are read between two steps.
_ELEMENTS_AT_ONCE: Final = 100

NO_TOPIC_ID: Final = bytes(UUID_BYTES)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The errors for an impossible content of a message: a time outside the calendar, an error code without a name.
_IMPOSSIBLE: Final = (*MALFORMED, ValueError, OverflowError)

_NULL_STRUCT: Final = 0xFF


class _Cursor:
    """A body, the position in it, and how many more elements its arrays may have."""

    __slots__ = ("at", "body", "elements_left")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.at = 0
        self.elements_left = ELEMENTS_PER_MESSAGE_MAX

    def count(self, elements: int) -> None:
        """Count the elements, or tagged fields, that are about to be read."""
        self.elements_left -= elements
        if self.elements_left < 0:
            raise ProtocolError(f"more than {ELEMENTS_PER_MESSAGE_MAX} elements in one message")


# Reads one value.
_Read = Callable[[_Cursor], Any]


class _Reader(NamedTuple):
    """How a value is read: at once, or, if it contains an array, by the steps that `read` returns."""

    read: _Read
    has_steps: bool


def read_entity(entity_type: type[Any], body: Buffer) -> Steps[Any]:
    """The dataclass at the beginning of `body`, read a few elements at a time; bytes after it are ignored."""
    try:
        reader = _entity(entity_type)
        cursor = _Cursor(memoryview(body))
        return (yield from reader.read(cursor)) if reader.has_steps else reader.read(cursor)
    except _IMPOSSIBLE as error:
        raise ProtocolError(
            f"{entity_type.__name__} {entity_type.__version__} in {len(body)} bytes: {error}"
        ) from error


_entity_readers: dict[Any, _Reader] = {}


def _entity(entity_type: Any) -> _Reader:
    reader = _entity_readers.get(entity_type)
    if reader is None:
        reader = _entity_readers[entity_type] = _struct(entity_type)
    return reader


def _struct(entity_type: Any) -> _Reader:
    """The reader of one dataclass. Its fields, except tagged ones, are in the order of the wire."""
    flexible: bool = entity_type.__flexible__
    plain: list[tuple[str, _Reader]] = []
    tagged: dict[int, tuple[str, _Reader]] = {}
    for field in fields(entity_type):
        tag = field.metadata.get("tag")
        reader = _value(field.type, field.metadata.get("kafka_type", ""), flexible, tag is not None)
        if tag is None:
            plain.append((field.name, reader))
        else:
            tagged[tag] = (field.name, reader)
    if any(reader.has_steps for _, reader in (*plain, *tagged.values())):

        def read_in_steps(cursor: _Cursor) -> Steps[Any]:
            values = {}
            for name, (read, has_steps) in plain:
                values[name] = (yield from read(cursor)) if has_steps else read(cursor)
            if flexible:
                yield from _read_tagged_fields(cursor, tagged, values)
            return entity_type(**values)

        return _Reader(read_in_steps, True)
    at_once = [(name, reader.read) for name, reader in plain]

    def read_struct(cursor: _Cursor) -> Any:
        values = {name: read(cursor) for name, read in at_once}
        if flexible:
            if cursor.body[cursor.at] == 0:
                cursor.at += 1
            else:
                finish(_read_tagged_fields(cursor, tagged, values))
        return entity_type(**values)

    return _Reader(read_struct, False)


def _read_tagged_fields(cursor: _Cursor, tagged: dict[int, tuple[str, _Reader]], values: dict[str, Any]) -> Steps[None]:
    count, cursor.at = read_tagged_field_count(cursor.body, cursor.at)
    cursor.count(count)
    for _ in range(count):
        tag, at = read_unsigned_varint(cursor.body, cursor.at)
        size, at = read_unsigned_varint(cursor.body, at)
        end = at + size
        if end > len(cursor.body):
            raise ProtocolError(f"a tagged field of {size} bytes where {len(cursor.body) - at} bytes are left")
        cursor.at = at
        if tag in tagged:
            name, (read, has_steps) = tagged[tag]
            values[name] = (yield from read(cursor)) if has_steps else read(cursor)
            if cursor.at != end:
                raise ProtocolError(f"the tagged field {name} takes {cursor.at - at} bytes and announced {size}")
        cursor.at = end


def _value(declared: Any, kafka_type: str, flexible: bool, is_tagged: bool) -> _Reader:
    """The reader of a field's declared type: an array, a struct or a primitive, nullable or not."""
    nullable = type(None) in get_args(declared)
    if nullable:
        declared = next(argument for argument in get_args(declared) if argument is not type(None))
    arguments = get_args(declared)
    if Ellipsis in arguments:
        return _array(_value(arguments[0], kafka_type, flexible, False), flexible, nullable)
    if is_dataclass(declared):
        # A tagged struct that is null is left out, so only other structs have a byte that says whether they are null.
        return _nullable_struct(_entity(declared)) if nullable and not is_tagged else _entity(declared)
    return _Reader(_primitive(kafka_type, flexible, nullable and not is_tagged), False)


def _array(element: _Reader, flexible: bool, nullable: bool) -> _Reader:
    read_element, element_has_steps = element

    def read_array(cursor: _Cursor) -> Steps[Any]:
        count, cursor.at = read_nullable_length(cursor.body, cursor.at, flexible)
        if count < 0:
            if nullable:
                return None
            raise ProtocolError("an array is null that must not be null")
        cursor.count(count)
        elements: list[Any] = []
        if element_has_steps:
            for _ in range(count):
                elements.append((yield from read_element(cursor)))
                yield 1
        else:
            for first in range(0, count, _ELEMENTS_AT_ONCE):
                at_once = min(count - first, _ELEMENTS_AT_ONCE)
                elements += [read_element(cursor) for _ in range(at_once)]
                yield at_once
        return tuple(elements)

    return _Reader(read_array, True)


def _nullable_struct(reader: _Reader) -> _Reader:
    def is_null(cursor: _Cursor) -> bool:
        mark = cursor.body[cursor.at]
        cursor.at += 1
        return mark == _NULL_STRUCT

    def read_at_once(cursor: _Cursor) -> Any:
        return None if is_null(cursor) else reader.read(cursor)

    def read_in_steps(cursor: _Cursor) -> Steps[Any]:
        return None if is_null(cursor) else (yield from reader.read(cursor))

    return _Reader(read_in_steps if reader.has_steps else read_at_once, reader.has_steps)


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> _Read:
    if kafka_type == "string":
        return _nullable_string(flexible) if nullable else _string(flexible)
    if kafka_type in ("bytes", "records"):
        return _bytes(flexible, nullable)
    if kafka_type == "uuid":
        return _read_uuid
    if kafka_type == "datetime_i64" and nullable:
        return _number("q", _nullable_datetime)
    code, convert = _NUMBERS[kafka_type]
    return _number(code, convert)


def _string(flexible: bool) -> _Read:
    def read(cursor: _Cursor) -> str:
        text, cursor.at = read_string(cursor.body, cursor.at, flexible)
        return text

    return read


def _nullable_string(flexible: bool) -> _Read:
    def read(cursor: _Cursor) -> str | None:
        text, cursor.at = read_nullable_string(cursor.body, cursor.at, flexible)
        return text

    return read


def _bytes(flexible: bool, nullable: bool) -> _Read:
    def read(cursor: _Cursor) -> bytes | None:
        size, start = read_nullable_length(cursor.body, cursor.at, flexible)
        if size < 0:
            if not nullable:
                raise ProtocolError("bytes are null that must not be null")
            cursor.at = start
            return None
        cursor.at = start + size
        return bytes(cursor.body[start : cursor.at])

    return read


def _read_uuid(cursor: _Cursor) -> UUID | None:
    encoded, cursor.at = read_uuid(cursor.body, cursor.at)
    return None if encoded == NO_TOPIC_ID else UUID(bytes=encoded)


def _number(code: str, convert: Callable[[Any], Any] | None) -> _Read:
    layout = struct.Struct(">" + code)

    def read(cursor: _Cursor) -> Any:
        value = layout.unpack_from(cursor.body, cursor.at)[0]
        cursor.at += layout.size
        return value if convert is None else convert(value)

    return read


def _timedelta(duration_ms: int) -> timedelta:
    return timedelta(milliseconds=duration_ms)


def _datetime(time_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time_ms)


def _nullable_datetime(time_ms: int) -> datetime | None:
    return None if time_ms == -1 else _datetime(time_ms)


def _error_code(number: int) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(number)


_NUMBERS: Final[dict[str, tuple[str, Callable[[Any], Any] | None]]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint16": ("H", None),
    "float64": ("d", None),
    "timedelta_i32": ("i", _timedelta),
    "timedelta_i64": ("q", _timedelta),
    "datetime_i64": ("q", _datetime),
    "error_code": ("h", _error_code),
}
