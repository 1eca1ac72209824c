"""Decodes Avro's binary encoding with a schema into values for JSON, for records written with a schema registry.

Pure. For any bytes the result is a value or `NotAvro`. The depth, the number of values and what a schema adds to them
are limited, because a few bytes can announce a million values. Only the beginning of a value is made into text: with
its indentation the whole text may be a thousand times as large as the record.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000
# How much text a value may get from its schema, as names of fields and symbols: both may be long, and a byte in the
# record is enough for each.
SCHEMA_TEXT_MAX: Final = 1024 * 1024
# More than any database has. A byte in the record becomes so many digits.
SCALE_MAX: Final = 100
# A long has at most ten bytes of seven bits.
_LONG_BYTES_MAX: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = Context(prec=1_000)

Schema = Any


class NotAvro(Exception):
    """The schema cannot be understood, or the bytes do not match it; the message says which."""


class Names:
    """The named types of a schema, and of the schemas that it refers to."""

    def __init__(self) -> None:
        self._types: dict[str, Schema] = {}

    def add(self, text: str) -> Schema:
        """Parse a schema, add its named types, and return it."""
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            raise NotAvro("the schema is no JSON") from None
        self._collect(schema, "", 0)
        return schema

    def find(self, name: str, namespace: str) -> tuple[Schema, str]:
        """A named type and its full name."""
        full = _full(name, namespace)
        for one in (full, name):
            if one in self._types:
                return self._types[one], one
        raise NotAvro(f"the schema has no type {name!r}")

    def _collect(self, schema: Schema, namespace: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise NotAvro("the schema is nested too deep")
        if isinstance(schema, list):
            for one in schema:
                self._collect(one, namespace, depth + 1)
        elif isinstance(schema, Mapping):
            if schema.get("type") in ("record", "error", "enum", "fixed"):
                full = _full(str(schema.get("name", "")), str(schema.get("namespace", namespace)))
                self._types[full] = schema
                namespace = full.rpartition(".")[0]
            for field in schema.get("fields") or ():
                if isinstance(field, Mapping):
                    self._collect(field.get("type"), namespace, depth + 1)
            for part in ("items", "values", "type"):
                if isinstance(schema.get(part), (list, Mapping)):
                    self._collect(schema[part], namespace, depth + 1)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def decode(schema: Schema, names: Names, data: bytes) -> Any:
    """The value, as types of JSON. Raises NotAvro."""
    reader = _Reader(names, data)
    try:
        value = reader.value(schema, "", 0)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError, OverflowError) as error:
        raise NotAvro(f"the schema cannot be understood: {error!r}") from None
    if reader.at != len(data):
        raise NotAvro(f"{len(data) - reader.at} bytes are left over")
    return value


class _Reader:
    def __init__(self, names: Names, data: bytes) -> None:
        self._names = names
        self._data = data
        self._left = VALUES_MAX
        self._left_text = SCHEMA_TEXT_MAX
        self.at = 0

    def value(self, schema: Schema, namespace: str, depth: int) -> Any:
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise NotAvro("it is too deep, or has too many values")
        if isinstance(schema, list):
            return self.value(schema[self._index(len(schema))], namespace, depth + 1)
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, (list, Mapping)):
            return self.value(kind, namespace, depth + 1)
        if kind in _PRIMITIVES:
            value = _PRIMITIVES[kind](self)
            return _meant(value, schema) if isinstance(schema, Mapping) else value
        if isinstance(schema, Mapping) and kind in _COMPLEX:
            if kind in ("record", "error", "enum", "fixed"):
                full = _full(str(schema["name"]), str(schema.get("namespace", namespace)))
                namespace = full.rpartition(".")[0]
            return _COMPLEX[kind](self, schema, namespace, depth)
        found, full = self._names.find(str(kind), namespace)
        return self.value(found, full.rpartition(".")[0], depth + 1)

    def _of_schema(self, text: str) -> str:
        """A text of the schema, which becomes a part of the value."""
        self._left_text -= len(text)
        if self._left_text < 0:
            raise NotAvro("its schema makes too long a text of it")
        return text

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise NotAvro(f"there is no choice {index} among {count}")
        return index

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self._data):
            raise NotAvro("the record ends too soon")
        self.at += count
        return self._data[self.at - count : self.at]

    def long(self) -> int:
        value = 0
        for place in range(_LONG_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise NotAvro("a number has too many bytes")

    def number(self, layout: str) -> float | str:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        # JSON has no NaN and no infinity.
        return float(value) if math.isfinite(value) else str(value)

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise NotAvro("a text is not UTF-8") from None

    def record(self, schema: Schema, namespace: str, depth: int) -> dict[str, Any]:
        return {
            self._of_schema(str(one["name"])): self.value(one["type"], namespace, depth + 1) for one in schema["fields"]
        }

    def enum(self, schema: Schema, namespace: str, depth: int) -> str:
        symbols = schema["symbols"]
        return self._of_schema(str(symbols[self._index(len(symbols))]))

    def fixed(self, schema: Schema, namespace: str, depth: int) -> Any:
        return _meant(self.take(int(schema["size"])), schema)

    def array(self, schema: Schema, namespace: str, depth: int) -> list[Any]:
        values: list[Any] = []
        self._blocks(lambda: values.append(self.value(schema["items"], namespace, depth + 1)))
        return values

    def map(self, schema: Schema, namespace: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}

        def add() -> None:
            key = self.text()
            values[key] = self.value(schema["values"], namespace, depth + 1)

        self._blocks(add)
        return values

    def _blocks(self, add: Callable[[], None]) -> None:
        while count := self.long():
            if count < 0:
                # The size of the block in bytes, for readers that skip it.
                self.long()
            for _ in range(abs(count)):
                add()


_PRIMITIVES: Final[Mapping[str, Callable[[_Reader], Any]]] = {
    "null": lambda reader: None,
    "boolean": lambda reader: reader.take(1) != b"\x00",
    "int": _Reader.long,
    "long": _Reader.long,
    "float": lambda reader: reader.number("<f"),
    "double": lambda reader: reader.number("<d"),
    "bytes": lambda reader: reader.take(reader.long()),
    "string": _Reader.text,
}
_COMPLEX: Final[Mapping[str, Callable[[_Reader, Schema, str, int], Any]]] = {
    "record": _Reader.record,
    "error": _Reader.record,
    "enum": _Reader.enum,
    "fixed": _Reader.fixed,
    "array": _Reader.array,
    "map": _Reader.map,
}
_UNITS: Final = {
    "timestamp-millis": 1_000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1_000,
    "local-timestamp-micros": 1,
}


def _meant(value: Any, schema: Mapping[str, Any]) -> Any:
    """The meaning of a value of a logical type; without a known type the value stays as it is."""
    kind = schema.get("logicalType")
    try:
        if kind == "decimal" and isinstance(value, bytes):
            scale = int(schema.get("scale", 0))
            if 0 <= scale <= SCALE_MAX and len(value) <= SCALE_MAX:
                return f"{Decimal(int.from_bytes(value, 'big', signed=True)).scaleb(-scale, _EXACT):f}"
        if kind == "date" and isinstance(value, int):
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if kind in _UNITS and isinstance(value, int):
            time = (_EPOCH + timedelta(microseconds=value * _UNITS[kind])).replace(tzinfo=None).isoformat()
            # The clock of some place that the value does not name.
            return time if kind.startswith("local-") else f"{time}Z"
    except (OverflowError, ValueError, ArithmeticError):
        pass
    return value


def beginning(value: Any, characters_max: int) -> tuple[str, int]:
    """The beginning of a value as indented JSON, and how many characters come after that. Bytes become hexadecimal
    digits.
    """
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=lambda one: f"0x{bytes(one).hex()}")
    parts: list[str] = []
    count = 0
    for part in encoder.iterencode(value):
        if count < characters_max:
            parts.append(part[: characters_max - count])
        count += len(part)
    return "".join(parts), max(count - characters_max, 0)
