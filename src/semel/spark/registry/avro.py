"""Avro's schemas as Arrow's types: what each part of a schema is in a row, read from the schema's JSON.

Spark has no unions but those with null, no type that holds itself, and no decimal of more than 38 digits; a schema with
such a part is refused by its name. This module must never read a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from semel.spark.registry.client import RegistryRefused, below

DECIMAL_DIGITS_MAX: Final = 38
NO_DEFAULT: Final = object()
_TYPES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
# Nanoseconds, and times of day, stay numbers: Spark has no such type that holds them all.
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _INSTANT,
    ("long", "timestamp-micros"): _INSTANT,
    ("long", "local-timestamp-millis"): _LOCAL,
    ("long", "local-timestamp-micros"): _LOCAL,
}


@dataclass(frozen=True)
class Field:
    name: str
    node: Node
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()

    @property
    def is_optional(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(frozen=True)
class Node:
    """A part of a schema. A union with null is the other part, with the place of null in it."""

    kind: str
    type: Any
    null: int | None = None
    is_millis: bool = False
    fields: tuple[Field, ...] = ()
    item: Node | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0


def parsed(texts: Sequence[str]) -> Node:
    """The last of these schemas, which may name parts of those before it."""
    parser = _Parser()
    nodes = [parser.node(json.loads(text), "", "") for text in texts]
    return nodes[-1]


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Node | None] = {}

    def node(self, schema: Any, space: str, path: str) -> Node:
        """`space` is the namespace around it, `path` the way to it, for a refusal."""
        if isinstance(schema, list):
            return self._union(schema, space, path)
        if isinstance(schema, str):
            return self._by_name(schema, space, path)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.node(kind, space, path)
        if kind in ("record", "error", "enum", "fixed"):
            return self._new_name(schema, kind, space, path)
        if kind == "array":
            item = self.node(schema["items"], space, f"{path}[]")
            return Node(kind, pa.list_(item.type), item=item)
        if kind == "map":
            item = self.node(schema["values"], space, f"{path}{{}}")
            return Node(kind, pa.map_(pa.string(), item.type), item=item)
        return _logical(self._by_name(kind, space, path), schema, path)

    def _by_name(self, name: str, space: str, path: str) -> Node:
        if name in _TYPES and name not in ("fixed", "enum"):
            return Node(name, _TYPES[name])
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise RegistryRefused(f"{path or 'the schema'} is of the type {name}, which the schema does not define")
        node = self._named[full]
        if node is None:
            raise RegistryRefused(f"{path} is of the type {name}, which holds itself: Spark has no such type")
        return node

    def _new_name(self, schema: Mapping[str, Any], kind: str, space: str, path: str) -> Node:
        name = str(schema["name"])
        space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = None
        if kind == "enum":
            node = Node(kind, pa.string(), symbols=tuple(schema["symbols"]))
        elif kind == "fixed":
            node = _logical(Node(kind, pa.binary(), size=int(schema["size"])), schema, path)
        else:
            fields = tuple(self._fields(schema["fields"], space, path))
            if not fields:
                raise RegistryRefused(f"{path or 'the schema'} is the record {name} without fields: Spark has no such")
            node = Node("record", pa.struct([(field.name, field.node.type) for field in fields]), fields=fields)
        self._named[full] = node
        return node

    def _fields(self, fields: Sequence[Mapping[str, Any]], space: str, path: str) -> Iterator[Field]:
        for one in fields:
            node = self.node(one["type"], space, below(path, one["name"]))
            yield Field(one["name"], node, one.get("default", NO_DEFAULT), tuple(one.get("aliases", ())))

    def _union(self, branches: Sequence[Any], space: str, path: str) -> Node:
        if len(branches) == 1:
            return self.node(branches[0], space, path)
        if len(branches) != 2 or "null" not in branches:
            kinds = ", ".join(one if isinstance(one, str) else str(one.get("name", one["type"])) for one in branches)
            raise RegistryRefused(
                f"{path or 'the schema'} is a union of {kinds}: only a union of null and one other type becomes a "
                "column. Leave it out of the schema for the reader (schema=...), and name it in without=[...]"
            )
        null = branches.index("null")
        return replace(self.node(branches[1 - null], space, path), null=null)


def _logical(node: Node, schema: Mapping[str, Any], path: str) -> Node:
    name = schema.get("logicalType")
    if name == "decimal" and node.kind in ("bytes", "fixed"):
        digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if digits > DECIMAL_DIGITS_MAX:
            raise RegistryRefused(f"{path} has {digits} digits, and Spark's decimals have {DECIMAL_DIGITS_MAX} at most")
        return replace(node, type=pa.decimal128(digits, scale))
    kind = _LOGICAL.get((node.kind, str(name)))
    return node if kind is None else replace(node, type=kind, is_millis=str(name).endswith("-millis"))


def fits(given: Any, wanted: Any) -> bool:
    """Whether each value of one of Arrow's types, which are no nested ones, is a value of another one."""
    if given == wanted:
        return True
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        whole = wanted.precision - wanted.scale >= given.precision - given.scale
        return bool(whole and wanted.scale >= given.scale)
    small = (pa.int8(), pa.int16(), pa.int32())
    wider = {pa.int32(): small, pa.int64(): small, pa.float64(): (*small, pa.float32()), pa.binary(): (pa.string(),)}
    return given in wider.get(wanted, ())


def defaults(field: Field, count: int) -> Any:
    """The value that a field has where nothing was written, `count` times."""
    return pa.array([_value(field.node, field.default)], field.node.type).take(pa.array([0] * count, pa.int32()))


def _value(node: Node, default: Any) -> Any:
    """A default, as the JSON of a schema has it, as a value for Arrow."""
    if default is None:
        return None
    if node.kind == "record":
        given = {field.name: default.get(field.name, field.default) for field in node.fields}
        return {field.name: _value(field.node, given[field.name]) for field in node.fields}
    if node.item is not None:
        if node.kind == "array":
            return [_value(node.item, one) for one in default]
        return [(name, _value(node.item, one)) for name, one in default.items()]
    if pa.types.is_decimal(node.type):
        from decimal import Decimal

        number = int.from_bytes(default.encode("latin-1"), "big", signed=True)
        return Decimal(number).scaleb(-node.type.scale)
    if node.kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    return default * 1000 if node.is_millis else default
