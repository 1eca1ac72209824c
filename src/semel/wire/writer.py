"""Writes a response from plain values, with kio's dataclasses as the schema but without making any of them.

kio's own writer needs every value in a type of its own and every struct as an object, and writes one number at a time:
two thirds of the time of a small answer, and milliseconds for a large one. Here the layout of each version is computed
once, and neighbouring fields of fixed size are packed together. As in `reader`, messages with arrays are written in
steps. This file must never guess: a missing value is a TypeError, and so is a name that no version has. kio's writer is
its oracle in the tests.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any, Final, Literal, NamedTuple, get_args

from semel.wire.primitives import INT16, UUID_BYTES, length, nullable_string, unsigned_varint
from semel.wire.steps import Steps

Kind = Literal["request", "response"]
Values = Mapping[str, Any]

# The fields that a handler may leave out if nothing was throttled and nothing failed.
LEFT_OUT: Final[Mapping[str, object]] = MappingProxyType({"throttle_time": 0, "error_code": 0, "error_message": None})

_NUMBERS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "error_code": "h",
}
_NO_TAGGED: Final = b"\x00"
_NULL: Final = b"\xff"
_NOT_NULL: Final = b"\x01"

# Appends one value to the buffer, or its part of a struct's values.
_Write = Callable[[bytearray, Any], Any]


class _Writer(NamedTuple):
    """How a value is written: at once, or, if it contains an array, by the steps that `write` returns."""

    write: _Write
    has_steps: bool


def write_entity(entity_type: type[Any], values: Values) -> Steps[bytearray]:
    """The bytes of a response of this type, a few elements at a time."""
    out = bytearray()
    write, has_steps = _entity(entity_type)
    if has_steps:
        yield from write(out, values)
    else:
        write(out, values)
    return out


_entity_writers: dict[Any, _Writer] = {}


def _entity(entity_type: Any) -> _Writer:
    writer = _entity_writers.get(entity_type)
    if writer is None:
        writer = _entity_writers[entity_type] = _struct(entity_type)
    return writer


def _struct(entity_type: Any) -> _Writer:
    """The writer of one dataclass. Its fields, except tagged ones, are in the order of the wire."""
    flexible: bool = entity_type.__flexible__
    parts: list[_Writer] = []
    numbers: list[tuple[str, str, Any]] = []
    tagged: list[tuple[int, str, Any, _Writer]] = []
    wanted = set()
    for field in fields(entity_type):
        tag = field.metadata.get("tag")
        kafka_type = field.metadata.get("kafka_type", "")
        otherwise = _plain(LEFT_OUT.get(field.name, MISSING) if field.default is MISSING else field.default, kafka_type)
        if tag is not None:
            writer = _value(field.type, kafka_type, flexible, True)
            # A tagged field with its default value is left out; if it is no number, its default is the empty value.
            unsaid = () if kafka_type not in _NUMBERS else 0 if otherwise is MISSING else otherwise
            tagged.append((tag, field.name, unsaid, writer))
            continue
        if otherwise is MISSING:
            wanted.add(field.name)
        if _is_array(field.type) or kafka_type not in _NUMBERS:
            parts += _packed(numbers)
            numbers = []
            parts.append(_field(field.name, otherwise, _value(field.type, kafka_type, flexible, False)))
        else:
            numbers.append((field.name, _NUMBERS[kafka_type], otherwise))
    parts += _packed(numbers)
    tagged.sort()
    known = {field.name for field in fields(entity_type)}

    def check(values: Values) -> None:
        names = values.keys()
        if not wanted <= names:
            raise TypeError(f"{entity_type.__name__} wants {', '.join(sorted(map(repr, wanted - names)))}")
        if not names <= known:
            check_names(entity_type, "response", names - known)

    def write_in_steps(out: bytearray, values: Values) -> Steps[None]:
        check(values)
        for write, has_steps in parts:
            if has_steps:
                yield from write(out, values)
            else:
                write(out, values)
        if flexible:
            yield from _write_tagged(out, tagged, values)

    at_once = [part.write for part in parts]

    def write_struct(out: bytearray, values: Values) -> None:
        check(values)
        for write in at_once:
            write(out, values)
        if flexible:
            out += _NO_TAGGED

    # A struct with tagged fields is always written in steps, though few of them have arrays, because such structs are
    # few.
    has_steps = bool(tagged) or any(part.has_steps for part in parts)
    return _Writer(write_in_steps if has_steps else write_struct, has_steps)


def _field(name: str, otherwise: Any, writer: _Writer) -> _Writer:
    write = writer.write
    return writer._replace(write=lambda out, values: write(out, values.get(name, otherwise)))


def _packed(numbers: list[tuple[str, str, Any]]) -> list[_Writer]:
    """The writer of fields of fixed size that follow each other, if there are any."""
    if not numbers:
        return []
    layout = struct.Struct(">" + "".join(code for _, code, _ in numbers))
    named = [(name, otherwise) for name, _, otherwise in numbers]

    def write_numbers(out: bytearray, values: Values) -> None:
        out += layout.pack(*[values.get(name, otherwise) for name, otherwise in named])

    return [_Writer(write_numbers, False)]


def _write_tagged(out: bytearray, tagged: list[tuple[int, str, Any, _Writer]], values: Values) -> Steps[None]:
    """Write the tagged fields whose values are not their defaults."""
    written = []
    for tag, name, unsaid, (write, has_steps) in tagged:
        value = values.get(name, unsaid)
        if value if unsaid == () else value != unsaid:
            content = bytearray()
            if has_steps:
                yield from write(content, value)
            else:
                write(content, value)
            written.append(unsigned_varint(tag) + unsigned_varint(len(content)) + content)
    out += unsigned_varint(len(written))
    for field in written:
        out += field


def _value(declared: Any, kafka_type: str, flexible: bool, is_tagged: bool) -> _Writer:
    """The writer of a field's declared type: an array, a struct or a primitive."""
    nullable = type(None) in get_args(declared)
    if nullable:
        declared = next(argument for argument in get_args(declared) if argument is not type(None))
    if _is_array(declared):
        return _array(_value(get_args(declared)[0], kafka_type, flexible, False), flexible, nullable)
    if is_dataclass(declared):
        return _nullable_struct(_entity(declared)) if nullable and not is_tagged else _entity(declared)
    return _Writer(_primitive(kafka_type, flexible, nullable), False)


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> _Write:
    if kafka_type == "string":
        return _nullable_string(flexible) if nullable else _string(flexible)
    if kafka_type in ("bytes", "records"):
        return _bytes(flexible, nullable)
    if kafka_type == "uuid":
        return _write_uuid
    layout = struct.Struct(">" + _NUMBERS[kafka_type])

    def write_number(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return write_number


def _is_array(declared: Any) -> bool:
    arguments = get_args(declared)
    return Ellipsis in arguments or any(Ellipsis in get_args(argument) for argument in arguments)


def _array(element: _Writer, flexible: bool, nullable: bool) -> _Writer:
    write_element, element_has_steps = element

    def write_array(out: bytearray, items: Any) -> Steps[None]:
        if nullable and items is None:
            out += length(-1, flexible)
            return
        elements = tuple(items)
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
    def write_at_once(out: bytearray, values: Values | None) -> None:
        if values is None:
            out += _NULL
        else:
            out += _NOT_NULL
            writer.write(out, values)

    def write_in_steps(out: bytearray, values: Values | None) -> Steps[None]:
        if values is None:
            out += _NULL
        else:
            out += _NOT_NULL
            yield from writer.write(out, values)

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


def _plain(value: Any, kafka_type: str) -> Any:
    """A default value of kio, as a plain value."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if value is None and kafka_type == "datetime_i64":
        return -1
    if value is None and kafka_type == "uuid":
        return bytes(UUID_BYTES)
    return value


def check_names(entity_type: type[Any], kind: Kind, names: Iterable[str]) -> None:
    """Raise TypeError for a field that no version has, which is a mistake; a field of other versions may be dropped."""
    for name in names:
        if name not in LEFT_OUT and not _is_known(entity_type.__api_key__, kind, name):
            raise TypeError(f"no version of {entity_type.__name__} has a field {name}")


@cache
def _is_known(api_key: int, kind: Kind, name: str) -> bool:
    """Whether any version of this API's message has a field of this name."""
    from kio.index import load_payload_module
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

    entity_kind: Literal[EntityType.request, EntityType.response]
    entity_kind = EntityType.request if kind == "request" else EntityType.response
    # Newest version first, because a dropped field nearly always belongs to a later version.
    for version in sorted(schema_name_map[api_key_map[api_key]], reverse=True):
        if name in _field_names(load_payload_module(api_key, version, entity_kind)):
            return True
    return False


def _field_names(module: ModuleType) -> set[str]:
    types = [value for value in vars(module).values() if isinstance(value, type) and is_dataclass(value)]
    return {field.name for entity_type in types for field in fields(entity_type)}
