"""Arrow columns become Avro's bytes: one part of the schema for all rows, and Arrow joins the parts row by row.

This module must never write a value that the schema does not hold: it raises, and names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semel.client.arrow.columns import numbers
from semel.client.arrow.encoding import column_of, is_valid, varints
from semel.spark.registry.avro import Field, Node, defaults, fits
from semel.spark.registry.client import RegistryRefused, below
from semel.spark.registry.decoder import spread

_MICROS_PER_MS: Final = 1000
_DECIMAL_BYTES: Final = 16
_EMPTY: Final = b""
_END_OF_ITEMS: Final = b"\0"


def check(node: Node, given: Any, path: str = "") -> None:
    """Raises if columns of this type do not become values of this schema, or would be left out."""
    what = path or "the column"
    if {node.kind} & {"record", "array", "map"}:
        kind = {"record": pa.types.is_struct, "array": pa.types.is_list, "map": pa.types.is_map}[node.kind]
        if not kind(given):
            raise RegistryRefused(f"{what} is {given}, and the schema wants a {node.kind}: cast it")
        if node.kind == "record":
            _check_fields(node, given, path)
        elif node.kind == "array":
            check(_item(node), given.value_type, f"{path}[]")
        elif given.key_type != pa.string():
            raise RegistryRefused(f"{what} is {given}, and the keys of Avro's maps are text: cast it")
        else:
            check(_item(node), given.item_type, f"{path}{{}}")
    elif not (fits(given, node.type) or node.kind == "null"):
        raise RegistryRefused(f"{what} is {given}, and the schema wants {node.type}: cast it")


def _check_fields(node: Node, given: Any, path: str) -> None:
    names = [given.field(place).name for place in range(given.num_fields)]
    fields = {field.name: field for field in node.fields}
    for name in names:
        inner = below(path, name)
        if name not in fields:
            raise RegistryRefused(f"the schema has no field {inner}: leave it out of the rows, or take another schema")
        check(fields[name].node, given.field(name).type, inner)
    for name, field in fields.items():
        if name not in names and not field.is_optional:
            raise RegistryRefused(f"the schema requires {below(path, name)}, and the rows have no such")


def encoded(node: Node, column: Any, path: str = "") -> Any:
    """A column of bytes."""
    if node.null is None:
        if column.null_count and node.kind != "null":
            raise ValueError(f"{path or 'the value'} is null in a row, and the schema has no null there")
        return _ENCODERS[node.kind](node, column, path)
    branches = [column_of(b"\2"), column_of(b"\0")] if node.null == 0 else [column_of(b"\0"), column_of(b"\2")]
    if not column.null_count:
        return joined(branches[0][0], _ENCODERS[node.kind](node, column, path))
    is_there = is_valid(column)
    present = column.filter(pa.array(is_there))
    values = joined(branches[0][0], _ENCODERS[node.kind](node, present, path))
    return pc.fill_null(spread(values, is_there), branches[1][0])


def joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, column_of(_EMPTY)[0])


def _item(node: Node) -> Node:
    assert node.item is not None
    return node.item


def _record(node: Node, column: Any, path: str) -> Any:
    names = {column.type.field(place).name: place for place in range(column.type.num_fields)}
    columns = column.flatten()

    def values(field: Field) -> Any:
        return columns[names[field.name]] if field.name in names else defaults(field, len(column))

    return joined(*(encoded(field.node, values(field), below(path, field.name)) for field in node.fields))


def _array(node: Node, column: Any, path: str) -> Any:
    return _blocks(column, encoded(_item(node), column.flatten(), f"{path}[]"))


def _map(node: Node, column: Any, path: str) -> Any:
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    keys, items = column.keys[first:end], column.items[first:end]
    keyed = joined(_octets(node, keys, path), encoded(_item(node), items, f"{path}{{}}"))
    return _blocks(column, keyed)


def _blocks(column: Any, items: Any) -> Any:
    """For each row one block of its items, if it has any."""
    places = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(places)
    row_by_row = pc.binary_join(
        pa.ListArray.from_arrays(numbers(pa.int32(), places - places[0]), items), column_of(_EMPTY)[0]
    )
    counts = pc.if_else(pa.array(lengths > 0), varints(lengths), column_of(_EMPTY)[0])
    return joined(counts, row_by_row, column_of(_END_OF_ITEMS)[0])


def _null(node: Node, column: Any, path: str) -> Any:
    return pa.array([_EMPTY] * len(column), pa.binary())


def _boolean(node: Node, column: Any, path: str) -> Any:
    return _fixed_width(column.cast(pa.uint8()).to_numpy()[:, None])


def _integer(node: Node, column: Any, path: str) -> Any:
    plain = column.cast(node.type)
    plain = plain.view(pa.int32() if node.kind == "int" else pa.int64()).to_numpy().astype(np.int64)
    if node.is_millis:
        plain, rest = np.divmod(plain, _MICROS_PER_MS)
        if rest.any():
            lost = column[int(np.flatnonzero(rest)[0])]
            raise ValueError(f"{path} is {lost}, and the schema keeps milliseconds: cut it off (date_trunc)")
    return varints(plain)


def _float(node: Node, column: Any, path: str) -> Any:
    plain = np.ascontiguousarray(column.cast(node.type).to_numpy())
    return _fixed_width(plain.view(np.uint8).reshape(len(plain), node.type.bit_width // 8))


def _octets(node: Node, column: Any, path: str) -> Any:
    """Text or bytes, after their length."""
    if pa.types.is_decimal(node.type):
        return _decimal(node, column, path)
    column = column.cast(pa.binary())
    return joined(varints(pc.binary_length(column).to_numpy().astype(np.int64)), column)


def _fixed(node: Node, column: Any, path: str) -> Any:
    if pa.types.is_decimal(node.type):
        return _decimal(node, column, path)
    column = column.cast(pa.binary())
    sizes = pc.binary_length(column).to_numpy()
    if (sizes != node.size).any():
        odd = int(sizes[sizes != node.size][0])
        raise ValueError(f"{path} has {odd} bytes in a row, and the schema wants {node.size}")
    return column


def _symbol(node: Node, column: Any, path: str) -> Any:
    places = pc.index_in(column, pa.array(node.symbols))
    if places.null_count:
        odd = column.filter(pc.is_null(places))[0].as_py()
        raise ValueError(f"{path} is {odd!r} in a row, and the schema knows {', '.join(node.symbols)}")
    return varints(places.to_numpy().astype(np.int64))


def _decimal(node: Node, column: Any, path: str) -> Any:
    """In as many bytes as the largest number of these digits takes, or as the schema fixes."""
    column = pa.concat_arrays([column.cast(node.type)])
    plain = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _DECIMAL_BYTES, column.offset * _DECIMAL_BYTES)
    matrix = plain.reshape(-1, _DECIMAL_BYTES)
    needed = (10**node.type.precision).bit_length() // 8 + 1
    width = node.size or needed
    if width > _DECIMAL_BYTES:
        signs = np.where(matrix[:, -1:] >= 0x80, 0xFF, 0).astype(np.uint8)
        matrix = np.concatenate((matrix, np.repeat(signs, width - _DECIMAL_BYTES, axis=1)), axis=1)
    elif width < needed:
        raise ValueError(f"{path} has {node.type.precision} digits in the schema, which {width} bytes do not hold")
    octets = _fixed_width(np.ascontiguousarray(matrix[:, :width][:, ::-1]))
    return octets if node.kind == "fixed" else joined(varints(np.full(len(column), width)), octets)


def _fixed_width(matrix: Any) -> Any:
    count, width = matrix.shape
    ends = numbers(pa.int32(), np.arange(0, (count + 1) * width, width)[: count + 1])
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, ends.buffers()[1], pa.py_buffer(np.ascontiguousarray(matrix))]
    )


_ENCODERS: Final[dict[str, Callable[[Node, Any, str], Any]]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _octets,
    "string": _octets,
    "fixed": _fixed,
    "enum": _symbol,
    "record": _record,
    "array": _array,
    "map": _map,
}
