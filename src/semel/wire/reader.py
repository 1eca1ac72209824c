"""Reads any message, as its class says how its fields look in a version.

A stranger may have written it: this reader compares every length with the remaining bytes, before it reserves memory,
and limits the elements of one message; it skips tagged fields that it does not know. A large message takes a tenth of a
second and more, so messages with arrays are read in steps. This file must never trust a number that it has read. kio's
reader is its oracle in the tests, on bytes that kio wrote.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from semel.wire.errors import ProtocolError
from semel.wire.message import Field, Struct
from semel.wire.primitives import (
    MALFORMED,
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

_NULL_STRUCT: Final = 0xFF

NUMBERS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}


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


def read_message(struct_type: type[Struct], version: int, flexible: bool, body: Buffer) -> Steps[Any]:
    """The message at the beginning of `body`, read a few elements at a time; bytes after it are ignored."""
    try:
        reader = _of_struct(struct_type, version, flexible)
        cursor = _Cursor(memoryview(body))
        return (yield from reader.read(cursor)) if reader.has_steps else reader.read(cursor)
    except MALFORMED as error:
        raise ProtocolError(f"{struct_type.__name__} {version} in {len(body)} bytes: {error}") from error


_readers: dict[tuple[type[Struct], int], _Reader] = {}


def _of_struct(struct_type: type[Struct], version: int, flexible: bool) -> _Reader:
    reader = _readers.get((struct_type, version))
    if reader is None:
        reader = _readers[struct_type, version] = _struct(struct_type, version, flexible)
    return reader


def _struct(struct_type: type[Struct], version: int, flexible: bool) -> _Reader:
    """The reader of a struct. Its fields, except tagged ones, are in the order of the wire."""
    plain: list[tuple[str, _Reader]] = []
    tagged: dict[int, tuple[str, _Reader]] = {}
    for name, field in struct_type.FIELDS.items():
        if not field.since <= version < field.until:
            continue
        reader = _value(field, version, flexible)
        if field.tag is None:
            plain.append((name, reader))
        else:
            tagged[field.tag] = (name, reader)
    if any(reader.has_steps for _, reader in (*plain, *tagged.values())):

        def read_in_steps(cursor: _Cursor) -> Steps[Any]:
            values = {}
            for name, (read, has_steps) in plain:
                values[name] = (yield from read(cursor)) if has_steps else read(cursor)
            if flexible:
                yield from _read_tagged_fields(cursor, tagged, values)
            return struct_type(**values)

        return _Reader(read_in_steps, True)
    at_once = [(name, reader.read) for name, reader in plain]

    def read_struct(cursor: _Cursor) -> Any:
        values = {name: read(cursor) for name, read in at_once}
        if flexible:
            if cursor.body[cursor.at] == 0:
                cursor.at += 1
            else:
                finish(_read_tagged_fields(cursor, tagged, values))
        return struct_type(**values)

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


def _value(field: Field, version: int, flexible: bool) -> _Reader:
    """The reader of a field's type: an array, a struct or a primitive, nullable or not."""
    nullable = field.null_since <= version < field.null_until
    if field.is_array:
        return _array(_single(field.kind, version, flexible, False), flexible, nullable)
    return _single(field.kind, version, flexible, nullable)


def _single(kind: Any, version: int, flexible: bool, nullable: bool) -> _Reader:
    if isinstance(kind, str):
        return _Reader(_primitive(kind, flexible, nullable), False)
    reader = _of_struct(kind, version, flexible)
    return _nullable_struct(reader) if nullable else reader


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


def _primitive(kind: str, flexible: bool, nullable: bool) -> _Read:
    if kind == "string":
        return _nullable_string(flexible) if nullable else _string(flexible)
    if kind in ("bytes", "records"):
        return _bytes(flexible, nullable)
    if kind == "uuid":
        return _read_uuid
    return _number(NUMBERS[kind])


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


def _read_uuid(cursor: _Cursor) -> bytes:
    encoded, cursor.at = read_uuid(cursor.body, cursor.at)
    return encoded


def _number(code: str) -> _Read:
    layout = struct.Struct(">" + code)

    def read(cursor: _Cursor) -> Any:
        value = layout.unpack_from(cursor.body, cursor.at)[0]
        cursor.at += layout.size
        return value

    return read
