"""Avro's bytes become Arrow columns: one part of the schema for all rows, and then the next, without a Python object
for each value.

The schema of the writer says where the values are, and the schema of the reader which of them become columns. Bytes may
be anything: a row whose bytes do not fit is marked with the place in the schema at which they stopped fitting, and the
other rows go on. This module must never let a row read bytes of another one into a value that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semel.client.arrow.columns import binary, numbers
from semel.client.arrow.layout import Fields, Integers, Octets
from semel.spark.registry.avro import Field, Node, defaults, fits
from semel.spark.registry.client import RegistryRefused, below

Decoder = Callable[["Rows", Integers], Any]
"""Takes the next value of these rows, which it moves on."""
# The longest number, and the longest that is read at once.
_PADDING: Final = bytes(16)
_SHIFT_MAX: Final = 63
_DECIMAL_BYTES: Final = 16
# A number of 38 digits takes sixteen bytes; a schema may fix some more.
_DECIMAL_BYTES_MAX: Final = 64
_MICROS_PER_MS: Final = 1000


class Rows:
    """The bytes of some rows, and how far each of them has been read."""

    def __init__(self, octets: Octets, fields: Fields) -> None:
        self.octets = np.concatenate((octets, np.frombuffer(_PADDING, np.uint8)))
        self.at = fields.starts.copy()
        self.ends = fields.starts + fields.lengths
        self.wrong: dict[int, str] = {}
        """The rows that do not fit, with the place in the schema."""

    def take(self, rows: Integers, sizes: Integers | int, path: str) -> tuple[Integers, Integers]:
        """Where the next bytes of each row begin, and how many they are: none for a row that has not that many."""
        starts = self.at[rows]
        left = self.ends[rows] - starts
        lengths = np.broadcast_to(np.asarray(sizes, np.int64), starts.shape)
        is_wrong = (lengths < 0) | (lengths > left)
        if is_wrong.any():
            lengths = np.where(is_wrong, 0, lengths)
            self.refuse(rows, is_wrong, path)
        self.at[rows] += lengths
        return starts, lengths

    def refuse(self, rows: Integers, is_wrong: NDArray[np.bool_], path: str) -> None:
        for row in rows[is_wrong].tolist():
            self.wrong.setdefault(row, path)
        self.at[rows[is_wrong]] = self.ends[rows[is_wrong]]

    def integers(self, rows: Integers, path: str, bound: int | None = None) -> Integers:
        """The next number of each row, from 0 up to the bound if there is one; 0 for a row that has none."""
        at = self.at[rows]
        octet = self.octets[at]
        found = (octet & 0x7F).astype(np.uint64)
        after = at + 1
        longer = np.flatnonzero(octet >= 0x80)
        for shift in range(7, _SHIFT_MAX + 1, 7):
            if not len(longer):
                break
            octet = self.octets[after[longer]]
            found[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[longer] += 1
            longer = longer[octet >= (2 if shift == _SHIFT_MAX else 0x80)]
        after[longer] = np.iinfo(np.int64).max
        result = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
        is_wrong = after > self.ends[rows]
        if bound is not None:
            is_wrong |= (result < 0) | (result >= bound)
        self.at[rows] = after
        if is_wrong.any():
            result[is_wrong] = 0
            self.refuse(rows, is_wrong, path)
        return result

    def matrix(self, rows: Integers, width: int, path: str) -> Octets:
        starts, lengths = self.take(rows, width, path)
        matrix: Octets = self.octets[starts[:, None] + np.arange(width)]
        if lengths.min(initial=width) < width:
            matrix[lengths < width] = 0
        return matrix


def decoder(writer: Node, reader: Node, without: Collection[str] = (), path: str = "") -> Decoder:
    """How rows of one schema are read as another one has them; raises if values would be lost that `without` does not
    name."""
    if writer.null is not None:
        return partial(_union, writer.null, _plain(writer, reader, without, path), path=path)
    return _plain(writer, reader, without, path)


def _plain(writer: Node, reader: Node, without: Collection[str], path: str) -> Decoder:
    if {writer.kind, reader.kind} & {"record", "array", "map"}:
        if writer.kind != reader.kind:
            raise _lost(path, writer, reader)
        if writer.kind == "record":
            return _record_decoder(writer, reader, without, path)
        assert writer.item is not None
        assert reader.item is not None
        inner = path + ("[]" if writer.kind == "array" else "{}")
        item = decoder(writer.item, reader.item, without, inner)
        if writer.kind == "map":
            item = partial(_entry, partial(_text, Node("string", pa.string()), path=inner), item)
        return partial(_items, item, reader.type, path=path)
    if not fits(writer.type, reader.type):
        raise _lost(path, writer, reader)
    return partial(_cast, partial(_DECODERS[writer.kind], writer, path=path), writer.type, reader.type)


def _record_decoder(writer: Node, reader: Node, without: Collection[str], path: str) -> Decoder:
    places = {name: place for place, field in enumerate(reader.fields) for name in (*field.aliases, field.name)}
    steps: list[tuple[int, Decoder]] = []
    for field in writer.fields:
        inner = below(path, field.name)
        place = places.get(field.name, -1)
        if place < 0 and inner not in without:
            raise RegistryRefused(
                f"the schema for the reader has no field {inner}, so its values would be lost: take a schema that has "
                f"it (schema=...), or leave it out on purpose (without=[{inner!r}])"
            )
        wanted = field.node if place < 0 else reader.fields[place].node
        steps.append((place, decoder(field.node, wanted, without, inner)))
    written = {place for place, _ in steps}
    for place, field in enumerate(reader.fields):
        if place not in written and not field.is_optional and field.node.null is None:
            inner = below(path, field.name)
            raise RegistryRefused(
                f"the schema for the reader requires {inner}, which this version has not, and gives no default: take a "
                "schema in which it has one (schema=...)"
            )
    return partial(_record, steps, reader.fields)


def _lost(path: str, writer: Node, reader: Node) -> RegistryRefused:
    return RegistryRefused(
        f"{path or 'the value'} is {writer.type}, and {reader.type} in the schema for the reader, which does not hold "
        "all its values: take a schema with the wider type (schema=...), or write these records to another topic"
    )


def _record(steps: list[tuple[int, Decoder]], fields: tuple[Field, ...], rows: Rows, which: Integers) -> Any:
    columns: list[Any] = [None] * len(fields)
    for place, step in steps:
        column = step(rows, which)
        if place >= 0:
            columns[place] = column
    for place, field in enumerate(fields):
        if columns[place] is None:
            has_default = field.is_optional and field.default is not None
            columns[place] = defaults(field, len(which)) if has_default else pa.nulls(len(which), field.node.type)
    return pa.StructArray.from_arrays(columns, [field.name for field in fields])


def _union(null: int, other: Decoder, rows: Rows, which: Integers, *, path: str) -> Any:
    is_there = rows.integers(which, path, 2) != null
    if is_there.all():
        return other(rows, which)
    return spread(other(rows, which[is_there]), is_there)


def spread(values: Any, is_there: NDArray[np.bool_]) -> Any:
    """The values at these places, and null at all others."""
    return values.take(numbers(pa.int64(), np.cumsum(is_there) - 1, is_there))


def _items(item: Decoder, kind: Any, rows: Rows, which: Integers, *, path: str) -> Any:
    """The items of arrays and maps: the first one of each row, then the second ones. They come in blocks, each with the
    number of its items before it; a negative one is followed by the block's size. An item has a byte at least, so a row
    cannot ask for more work than its bytes are worth."""
    lengths = np.zeros(len(which), np.int64)
    left = lengths.copy()
    pieces, owners = [], []
    open_ones = np.arange(len(which))
    while len(open_ones):
        ended = open_ones[left[open_ones] == 0]
        if len(ended):
            counts = rows.integers(which[ended], path)
            sized = counts < 0
            if sized.any():
                rows.integers(which[ended[sized]], path)
            counts = np.abs(counts)
            # A block of zeros has bytes for none of its items.
            is_wrong = (counts < 0) | (counts > rows.ends[which[ended]] - rows.at[which[ended]])
            rows.refuse(which[ended], is_wrong, path)
            left[ended] = np.where(is_wrong, 0, counts)
            open_ones = open_ones[left[open_ones] > 0]
            if not len(open_ones):
                break
        is_cut_off = rows.at[which[open_ones]] >= rows.ends[which[open_ones]]
        if is_cut_off.any():
            rows.refuse(which[open_ones], is_cut_off, path)
            left[open_ones[is_cut_off]] = 0
            open_ones = open_ones[~is_cut_off]
        pieces.append(item(rows, which[open_ones]))
        owners.append(open_ones)
        left[open_ones] -= 1
        lengths[open_ones] += 1
    ends = numbers(pa.int32(), np.concatenate(([0], np.cumsum(lengths))))
    if pieces:
        order = np.argsort(np.concatenate(owners), kind="stable")
        items = pa.concat_arrays(pieces).take(numbers(pa.int64(), order))
    else:
        items = item(rows, which[:0])
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(ends, items.field(0), items.field(1))
    return pa.ListArray.from_arrays(ends, items)


def _entry(key: Decoder, value: Decoder, rows: Rows, which: Integers) -> Any:
    return pa.StructArray.from_arrays([key(rows, which), value(rows, which)], ["key", "value"])


def _cast(plain: Decoder, given: Any, wanted: Any, rows: Rows, which: Integers) -> Any:
    values = plain(rows, which)
    return values if given == wanted else values.cast(wanted)


def _null(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    return pa.nulls(len(which), node.type)


def _boolean(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    octet = rows.matrix(which, 1, path)[:, 0]
    rows.refuse(which, octet > 1, path)
    bits = np.packbits(octet == 1, bitorder="little")
    return pa.Array.from_buffers(node.type, len(which), [None, pa.py_buffer(bits)])


def _integer(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    found = rows.integers(which, path)
    largest = np.iinfo(np.int32).max if node.kind == "int" else np.iinfo(np.int64).max
    factor = _MICROS_PER_MS if node.is_millis else 1
    is_wrong = (found > largest // factor) | (found < -(largest // factor) - 1)
    if (node.kind == "int" or node.is_millis) and is_wrong.any():
        rows.refuse(which, is_wrong, path)
        found = np.where(is_wrong, 0, found)
    return numbers(node.type, found * factor if node.is_millis else found)


def _float(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    matrix = rows.matrix(which, node.type.bit_width // 8, path)
    return pa.Array.from_buffers(node.type, len(which), [None, pa.py_buffer(np.ascontiguousarray(matrix))])


def _bytes(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    sizes = node.size if node.kind == "fixed" else rows.integers(which, path)
    starts, lengths = rows.take(which, sizes, path)
    if pa.types.is_decimal(node.type):
        return _decimal(node, rows, which, starts, lengths, path)
    return binary(rows.octets, Fields(starts, lengths))


def _text(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    found = _bytes(node, rows, which, path=path)
    try:
        return found.cast(node.type)
    except pa.ArrowInvalid:
        texts = [one.decode(errors="replace") for one in found.to_pylist()]
        changed = [text.encode() != one for text, one in zip(texts, found.to_pylist(), strict=True)]
        rows.refuse(which, np.array(changed, np.bool_), path)
        return pa.array(texts, node.type)


def _symbol(node: Node, rows: Rows, which: Integers, *, path: str) -> Any:
    places = rows.integers(which, path, len(node.symbols))
    return pa.array(node.symbols, node.type).take(numbers(pa.int64(), places))


def _decimal(node: Node, rows: Rows, which: Integers, starts: Integers, lengths: Integers, path: str) -> Any:
    """Numbers in two's complement, the highest byte first, in as many bytes as it pleased the writer."""
    is_wrong = lengths > _DECIMAL_BYTES_MAX
    width = min(max(int(lengths.max(initial=0)), _DECIMAL_BYTES), _DECIMAL_BYTES_MAX)
    matrix = np.empty((len(which), width), np.uint8)
    is_negative = (rows.octets[starts] >= 0x80) & (lengths > 0)
    signs = np.where(is_negative, 0xFF, 0).astype(np.uint8)
    for place in range(width):
        has_more = lengths > place
        matrix[:, place] = np.where(has_more, rows.octets[np.where(has_more, starts + lengths - 1 - place, 0)], signs)
    # What is above sixteen bytes has to be nothing but the sign.
    is_wrong |= (matrix[:, _DECIMAL_BYTES:] != signs[:, None]).any(axis=1)
    matrix = np.ascontiguousarray(matrix[:, :_DECIMAL_BYTES])
    is_wrong |= (matrix[:, -1] >= 0x80) != is_negative
    matrix[is_wrong] = 0
    found = pa.Array.from_buffers(node.type, len(which), [None, pa.py_buffer(matrix)])
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        bound = 10**node.type.precision
        exact = [int.from_bytes(bytes(one), "little", signed=True) for one in matrix]
        is_wrong |= np.array([abs(one) >= bound for one in exact], np.bool_)
        matrix[is_wrong] = 0
    rows.refuse(which, is_wrong, path)
    return found


_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": _text,
    "enum": _symbol,
}
