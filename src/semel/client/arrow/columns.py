"""Record batches become Arrow columns: the rows of the log, as Spark's own Kafka source has them.

No Python object is made for a record. A column of bytes is first made over the decompressed bytes as they are, so that
the bytes between two values count as values, too; taking every second one copies the values, once. Columns that were
not requested are not made. This file must never give a row that is not in the log, whatever the bytes are.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semel.client.arrow.layout import Fields, Integers, Layout, Octets, varints
from semel.client.places import Slice
from semel.wire.errors import ProtocolError

# Spark's batches are limited in rows as well as in bytes, of which a fetch has a few megabytes.
ROWS_PER_BATCH_MAX: Final = 1 << 16

_MICROSECONDS_PER_MS: Final = 1000
_TIME_MS_MAX: Final = ((1 << 63) - 1) // _MICROSECONDS_PER_MS
_SEQUENCE_MASK: Final = (1 << 31) - 1

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

# All columns, with their types: those of Spark's Kafka source, and the claim of each record.
TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "sequence": pa.int32(),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """These columns, in this order."""
    return pa.schema([(name, TYPES[name]) for name in columns])


def rows_of(layout: Layout, wanted: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a layout that are in the slice, in these columns."""
    schema = schema_of(columns)
    is_inside = (layout.offsets >= wanted.start) & (layout.offsets < wanted.end)
    inside = None if bool(is_inside.all()) else np.flatnonzero(is_inside)
    count = len(layout) if inside is None else len(inside)
    for start in range(0, count, ROWS_PER_BATCH_MAX):
        places = slice(start, min(start + ROWS_PER_BATCH_MAX, count))
        rows = _Rows(layout, places if inside is None else inside[places], places.stop - start, wanted)
        yield pa.RecordBatch.from_arrays([_COLUMNS[name](rows) for name in columns], schema=schema)


class _Rows:
    """Some records of a layout. Each column is made when it is asked for."""

    def __init__(self, layout: Layout, places: slice | Integers, count: int, wanted: Slice) -> None:
        self._layout = layout
        self._places = places
        self._count = count
        self._wanted = wanted

    def key(self) -> Any:
        return self._bytes(self._layout.keys)

    def value(self) -> Any:
        return self._bytes(self._layout.values)

    def topic(self) -> Any:
        name = self._wanted.topic.name.encode()
        ends = np.arange(0, (self._count + 1) * len(name), len(name), dtype=np.int32)
        return pa.StringArray.from_buffers(self._count, pa.py_buffer(ends), pa.py_buffer(name * self._count))

    def partition(self) -> Any:
        return numbers(TYPES["partition"], np.full(self._count, self._wanted.partition))

    def offset(self) -> Any:
        return numbers(TYPES["offset"], self._cut(self._layout.offsets))

    def timestamp(self) -> Any:
        times_ms = self._of_batch("base_timestamp") + self._cut(self._layout.timestamp_deltas)
        if any(header.has_append_time for header in self._layout.headers):
            times_ms = np.where(self._of_batch("has_append_time"), self._of_batch("max_timestamp"), times_ms)
        if -_TIME_MS_MAX <= int(times_ms.min()) <= int(times_ms.max()) <= _TIME_MS_MAX:
            return numbers(TYPES["timestamp"], times_ms * _MICROSECONDS_PER_MS)
        # Producers may write any number. A record whose time no timestamp can hold is a record without a time.
        can_be_held = (times_ms >= -_TIME_MS_MAX) & (times_ms <= _TIME_MS_MAX)
        return numbers(TYPES["timestamp"], np.where(can_be_held, times_ms, 0) * _MICROSECONDS_PER_MS, can_be_held)

    def timestamp_type(self) -> Any:
        return numbers(TYPES["timestampType"], self._of_batch("has_append_time"))

    def producer_id(self) -> Any:
        return self._claim("producer_id", self._of_batch("producer_id"))

    def producer_epoch(self) -> Any:
        return self._claim("producer_epoch", self._of_batch("producer_epoch"))

    def sequence(self) -> Any:
        sequences = (self._of_batch("base_sequence") + self._cut(self._layout.offset_deltas)) & _SEQUENCE_MASK
        return self._claim("sequence", sequences)

    def headers(self) -> Any:
        layout = self._layout
        firsts = np.concatenate(([0], np.cumsum(self._cut(layout.header_counts))))
        names, values = _headers(layout, self._cut(layout.header_starts), self._cut(layout.ends), firsts)
        entries = [_text(layout.octets, names), binary(layout.octets, values)]
        structs = pa.StructArray.from_arrays(entries, fields=list(_HEADER))
        return pa.ListArray.from_arrays(numbers(pa.int32(), firsts), structs, type=TYPES["headers"])

    def _cut(self, column: Integers) -> Integers:
        return column[self._places]

    def _of_batch(self, field: str) -> Integers:
        return self._cut(self._layout.of_batch([getattr(header, field) for header in self._layout.headers]))

    def _bytes(self, fields: Fields) -> Any:
        return binary(self._layout.octets, Fields(self._cut(fields.starts), self._cut(fields.lengths)))

    def _claim(self, name: str, claims: Integers) -> Any:
        """A number that only a record of an idempotent producer has."""
        is_numbered = (self._of_batch("producer_id") >= 0) & (self._of_batch("base_sequence") >= 0)
        return numbers(TYPES[name], claims, is_numbered)


_COLUMNS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "key": _Rows.key,
    "value": _Rows.value,
    "topic": _Rows.topic,
    "partition": _Rows.partition,
    "offset": _Rows.offset,
    "timestamp": _Rows.timestamp,
    "timestampType": _Rows.timestamp_type,
    "headers": _Rows.headers,
    "producer_id": _Rows.producer_id,
    "producer_epoch": _Rows.producer_epoch,
    "sequence": _Rows.sequence,
}


def numbers(kind: Any, plain: Integers, is_valid: NDArray[np.bool_] | None = None) -> Any:
    """An array of these numbers. `pa.array` would import pandas, and every worker would wait half a second for that."""
    plain = np.ascontiguousarray(plain, dtype=np.int32 if kind.bit_width == 32 else np.int64)
    bitmap = None if is_valid is None or bool(is_valid.all()) else np.packbits(is_valid, bitorder="little")
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(plain)]
    return pa.Array.from_buffers(kind, len(plain), buffers)


def binary(octets: Octets, fields: Fields) -> Any:
    """The fields, one after the other in the buffer, as an array of their own."""
    count = len(fields.starts)
    is_there = fields.lengths >= 0
    if not bool(is_there.any()):
        return pa.nulls(count, pa.binary())
    places = np.empty(2 * count, dtype=np.int32)
    places[0::2] = fields.starts
    places[1::2] = fields.starts + np.maximum(fields.lengths, 0)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(octets)]
    with_gaps = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return with_gaps.take(numbers(pa.int32(), np.arange(0, 2 * count, 2), is_there))


def _text(octets: Octets, fields: Fields) -> Any:
    """The same as text; bytes that are not UTF-8 become replacement characters, as in Java."""
    encoded = binary(octets, fields)
    try:
        return encoded.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in encoded.to_pylist()], type=pa.string())


def _headers(layout: Layout, starts: Integers, ends: Integers, firsts: Integers) -> tuple[Fields, Fields]:
    """Names and values of all headers; those of a record follow each other, from its place in `firsts` on."""
    counts = np.diff(firsts)
    total = int(firsts[-1])
    names = Fields(np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64))
    values = Fields(np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64))
    at = starts.copy()
    having = np.flatnonzero(counts)
    rank = 0
    while len(having):
        places = firsts[having] + rank
        after = at[having]
        for fields in (names, values):
            fields.lengths[places], fields.starts[places] = varints(layout.octets, after)
            after = fields.starts[places]
            after = after + layout.bounded(fields.lengths[places], after, ends[having])
        at[having] = after
        rank += 1
        having = having[counts[having] > rank]
    if bool((at != ends).any()):
        raise ProtocolError("a record whose headers do not fill it")
    if bool((names.lengths < 0).any()):
        raise ProtocolError("a header without a name")
    return names, values
