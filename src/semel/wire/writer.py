"""Writes a message, as its class says how its fields look in a version.

The layout of each version is computed once, and neighbouring fields of fixed size are packed together. As in `reader`,
messages with arrays are written in steps. This file must never guess: a wrong value is an error. kio's writer is its
oracle in the tests.
"""

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from semel.wire.message import Field, Struct
from semel.wire.primitives import INT16, UUID_BYTES, length, nullable_string, unsigned_varint
from semel.wire.reader import NUMBERS
from semel.wire.steps import Steps

_NO_TAGGED: Final = b"\x00"
_NULL: Final = b"\xff"
_NOT_NULL: Final = b"\x01"

# Appends one value to the buffer, or its part of a struct.
_Write = Callable[[bytearray, Any], Any]
_Tagged = tuple[int, Callable[[Any], Any], Any, "_Writer"]


class _Writer(NamedTuple):
    """How a value is written: at once, or, if it contains an array, by the steps that `write` returns."""

    write: _Write
    has_steps: bool


def write_message(message: Struct, version: int, flexible: bool) -> Steps[bytearray]:
    """The bytes of a message, a few elements at a time."""
    out = bytearray()
    write, has_steps = _of_struct(type(message), version, flexible)
    if has_steps:
        yield from write(out, message)
    else:
        write(out, message)
    return out


_writers: dict[tuple[type[Struct], int], _Writer] = {}


def _of_struct(struct_type: type[Struct], version: int, flexible: bool) -> _Writer:
    writer = _writers.get((struct_type, version))
    if writer is None:
        writer = _writers[struct_type, version] = _struct(struct_type, version, flexible)
    return writer


def _struct(struct_type: type[Struct], version: int, flexible: bool) -> _Writer:
    """The writer of a struct. Its fields, except tagged ones, are in the order of the wire."""
    parts: list[_Writer] = []
    numbers: list[tuple[str, str]] = []
    tagged: list[_Tagged] = []
    for name, field in struct_type.FIELDS.items():
        if not field.since <= version < field.until:
            continue
        if field.tag is not None:
            # A tagged field with its default is left out.
            tagged.append((field.tag, attrgetter(name), field.default, _value(field, version, flexible)))
        elif not field.is_array and field.kind in NUMBERS:
            numbers.append((name, NUMBERS[field.kind]))
        else:
            parts += _packed(numbers)
            numbers = []
            parts.append(_field(name, _value(field, version, flexible)))
    parts += _packed(numbers)
    tagged.sort(key=lambda one: one[0])
    # A struct with tagged fields is always written in steps, though few of them have arrays, because such structs are
    # few.
    if tagged or any(part.has_steps for part in parts):

        def write_in_steps(out: bytearray, message: Any) -> Steps[None]:
            for write, has_steps in parts:
                if has_steps:
                    yield from write(out, message)
                else:
                    write(out, message)
            if flexible:
                yield from _write_tagged(out, tagged, message)

        return _Writer(write_in_steps, True)
    at_once = [part.write for part in parts]

    def write_struct(out: bytearray, message: Any) -> None:
        for write in at_once:
            write(out, message)
        if flexible:
            out += _NO_TAGGED

    return _Writer(write_struct, False)


def _field(name: str, writer: _Writer) -> _Writer:
    write, value_of = writer.write, attrgetter(name)
    return writer._replace(write=lambda out, message: write(out, value_of(message)))


def _packed(numbers: list[tuple[str, str]]) -> list[_Writer]:
    """The writer of fields of fixed size that follow each other, if there are any."""
    if not numbers:
        return []
    pack = struct.Struct(">" + "".join(code for _, code in numbers)).pack
    values_of = attrgetter(*[name for name, _ in numbers])

    def write_number(out: bytearray, message: Any) -> None:
        out += pack(values_of(message))

    def write_numbers(out: bytearray, message: Any) -> None:
        out += pack(*values_of(message))

    return [_Writer(write_number if len(numbers) == 1 else write_numbers, False)]


def _write_tagged(out: bytearray, tagged: list[_Tagged], message: Any) -> Steps[None]:
    """Write the tagged fields whose values are not their defaults."""
    written = []
    for tag, value_of, default, (write, has_steps) in tagged:
        value = value_of(message)
        if value != default and (value or default != ()):
            content = bytearray()
            if has_steps:
                yield from write(content, value)
            else:
                write(content, value)
            written.append(unsigned_varint(tag) + unsigned_varint(len(content)) + content)
    out += unsigned_varint(len(written))
    for field in written:
        out += field


def _value(field: Field, version: int, flexible: bool) -> _Writer:
    """The writer of a field's type: an array, a struct or a primitive."""
    nullable = field.null_since <= version < field.null_until
    if field.is_array:
        return _array(_single(field.kind, version, flexible, False), flexible, nullable)
    return _single(field.kind, version, flexible, nullable)


def _single(kind: Any, version: int, flexible: bool, nullable: bool) -> _Writer:
    if isinstance(kind, str):
        return _Writer(_primitive(kind, flexible, nullable), False)
    writer = _of_struct(kind, version, flexible)
    return _nullable_struct(writer) if nullable else writer


def _primitive(kind: str, flexible: bool, nullable: bool) -> _Write:
    if kind == "string":
        return _nullable_string(flexible) if nullable else _string(flexible)
    if kind in ("bytes", "records"):
        return _bytes(flexible, nullable)
    if kind == "uuid":
        return _write_uuid
    pack = struct.Struct(">" + NUMBERS[kind]).pack

    def write_number(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write_number


def _array(element: _Writer, flexible: bool, nullable: bool) -> _Writer:
    write_element, element_has_steps = element

    def write_array(out: bytearray, elements: Any) -> Steps[None]:
        if nullable and elements is None:
            out += length(-1, flexible)
            return
        out += length(len(elements), flexible)
        if element_has_steps:
            for item in elements:
                yield from write_element(out, item)
                yield 2
        else:
            for item in elements:
                write_element(out, item)
                yield 1

    return _Writer(write_array, True)


def _nullable_struct(writer: _Writer) -> _Writer:
    def write_at_once(out: bytearray, message: Any) -> None:
        if message is None:
            out += _NULL
        else:
            out += _NOT_NULL
            writer.write(out, message)

    def write_in_steps(out: bytearray, message: Any) -> Steps[None]:
        if message is None:
            out += _NULL
        else:
            out += _NOT_NULL
            yield from writer.write(out, message)

    return _Writer(write_in_steps if writer.has_steps else write_at_once, writer.has_steps)


def _nullable_string(flexible: bool) -> _Write:
    def write_nullable_string(out: bytearray, text: str | None) -> None:
        out += nullable_string(text, flexible)

    return write_nullable_string


def _string(flexible: bool) -> _Write:
    def write_string(out: bytearray, text: str) -> None:
        encoded = text.encode()
        out += unsigned_varint(len(encoded) + 1) if flexible else INT16.pack(len(encoded))
        out += encoded

    return write_string


def _bytes(flexible: bool, nullable: bool) -> _Write:
    def write_bytes(out: bytearray, data: Any) -> None:
        if nullable and data is None:
            out += length(-1, flexible)
            return
        out += length(len(data), flexible)
        out += data

    return write_bytes


def _write_uuid(out: bytearray, encoded: bytes) -> None:
    if len(encoded) != UUID_BYTES:
        raise TypeError(f"an id of {len(encoded)} bytes")
    out += encoded
