"""Arrow columns become the records of batches in format 2: the reverse of `columns.py`.

No Python object is made for a record. numpy makes the bytes between keys and values for all records at once, and Arrow
joins them with the keys and values; that is the only copy. The rows of each batch are chosen before anything is joined,
so that nothing grows larger than a batch. This file must never drop or reorder a row, whatever lengths, nulls and
slices the columns have.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semel.client.arrow.layout import Fields, Integers, Octets
from semel.client.errors import LogError
from semel.client.transaction import Records
from semel.wire.batch import HEADER_BYTES
from semel.wire.records import varint

# Brokers and clients count the bytes of a batch with 32 bits.
PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1 - HEADER_BYTES

_NULL_LENGTH: Final = -1
_ATTRIBUTES: Final = 0
_ATTRIBUTES_BYTES: Final = 1


class Columns(NamedTuple):
    """Rows for one partition, each with its time; if `keys` or `headers` is None, no row has any."""

    values: Any
    keys: Any | None
    timestamps_ms: Integers
    headers: Any | None = None

    def cut(self, start: int, stop: int) -> "Columns":
        return Columns(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            self.timestamps_ms[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )


def encoded(columns: Columns, bytes_max: int) -> Iterator[Records]:
    """All rows in their order, in pieces of up to `bytes_max`; only a piece of a single row may be larger.

    The bytes between the texts are made for all pieces at once: small arrays cost numpy as much as large ones.
    """
    count = len(columns.values)
    if not count:
        return
    headers = None if columns.headers is None else _Headers(columns.headers)
    keys, key_bytes = _lengths(columns.keys)
    values, value_bytes = _lengths(columns.values)
    header_counts = _Varints(0 if headers is None else headers.counts)
    bodies = _ATTRIBUTES_BYTES + keys.sizes + key_bytes + values.sizes + value_bytes + header_counts.sizes
    if headers is not None:
        bodies = bodies + headers.lengths
    times_ms = columns.timestamps_ms
    # It is not known yet where the pieces begin, from which times and offsets are counted.
    deltas_width_max = len(varint(int(times_ms.max()) - int(times_ms.min()))) + len(varint(count))
    largest = np.broadcast_to(bodies + deltas_width_max, count)
    edges = _edges(largest + len(varint(int(largest.max()))), bytes_max)
    lengths, starts = np.diff(edges), np.array(edges[:-1])
    timestamp_deltas = _Varints(times_ms - np.repeat(times_ms[starts], lengths))
    offset_deltas = _Varints(np.arange(count) - np.repeat(starts, lengths))
    bodies = np.broadcast_to(bodies + timestamp_deltas.sizes + offset_deltas.sizes, count)
    records = _Varints(bodies)
    front = [records, _Varints(_ATTRIBUTES), timestamp_deltas, offset_deltas, keys]
    parts = (
        [_framed(count, *front, values)]
        if columns.keys is None
        else [_framed(count, *front), columns.keys, _framed(count, values)]
    )
    parts += [columns.values, _framed(count, header_counts)]
    ends = np.cumsum(bodies + records.sizes)
    for start, stop in pairwise(edges):
        payload_bytes = int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
        if payload_bytes > PAYLOAD_BYTES_MAX:
            raise LogError(f"a row of {payload_bytes} bytes: no record can have more than {PAYLOAD_BYTES_MAX}")
        pieces = [_cut(part, start, stop) for part in parts]
        if headers is not None:
            pieces.append(headers.entries(start, stop))
        yield Records(
            stop - start,
            memoryview(_joined(*pieces))[:payload_bytes],
            int(times_ms[start]),
            int(times_ms[start:stop].max()),
        )


def _lengths(column: Any | None) -> tuple["_Varints", Integers | int]:
    """The lengths of the texts, as records have them, and how many bytes follow each."""
    if column is None:
        return _Varints(_NULL_LENGTH), 0
    lengths = fields_of(column)[1].lengths
    return _Varints(lengths), np.maximum(lengths, 0) if column.null_count else lengths


def _edges(sizes: Integers, bytes_max: int) -> list[int]:
    """Where each piece begins, and the end of the last one."""
    ends = np.cumsum(sizes)
    edges = [0]
    while edges[-1] < len(ends):
        start = edges[-1]
        before = int(ends[start - 1]) if start else 0
        edges.append(max(start + 1, int(np.searchsorted(ends, before + bytes_max, "right"))))
    return edges


class _Headers:
    """The headers of some rows: how many each row has, how many bytes they take, and the bytes."""

    def __init__(self, column: Any) -> None:
        places = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
        self.counts = np.diff(places)
        if column.null_count:
            self.counts[~is_valid(column)] = 0
        self._firsts = np.concatenate(([0], np.cumsum(self.counts)))
        # `flatten` leaves out bytes in the column that belong to null rows.
        self._names, self._values = column.flatten().flatten()
        names, name_bytes = _lengths(self._names)
        values, value_bytes = _lengths(self._values)
        self._name_lengths, self._value_lengths = (_framed(len(self._names), one) for one in (names, values))
        lengths = np.broadcast_to(names.sizes + name_bytes + values.sizes + value_bytes, len(self._names))
        self._ends = np.concatenate(([0], np.cumsum(lengths)))
        self.lengths = np.diff(self._ends[self._firsts])

    def entries(self, start: int, stop: int) -> Any:
        """For each of the rows, its headers one after the other."""
        first, end = int(self._firsts[start]), int(self._firsts[stop])
        octets = _joined(
            _cut(self._name_lengths, first, end),
            # Text as bytes, with offsets of 64 bits: the digest takes the headers of all rows at once.
            self._names[first:end].cast(pa.large_binary()),
            _cut(self._value_lengths, first, end),
            self._values[first:end],
        )
        places = self._ends[self._firsts[start : stop + 1]]
        buffers = [None, pa.py_buffer(places - places[0]), octets]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), stop - start, buffers)


def _cut(part: Any, start: int, stop: int) -> Any:
    """These rows of an array; a single value for all rows stays as it is."""
    return part if isinstance(part, pa.Scalar) else part[start:stop]


def headers_of(column: Any) -> Any:
    """The headers of each row, encoded as in a record, but without the number of headers in front."""
    return _Headers(column).entries(0, len(column))


def _joined(*parts: Any) -> Any:
    """The bytes of the parts, row by row. Arrow needs all of them to be of one type."""
    kind = pa.large_binary() if any(part.type == pa.large_binary() for part in parts) else pa.binary()
    alike = [part if part.type == kind else part.cast(kind) for part in (*parts, _constant(b""))]
    octets = pc.binary_join_element_wise(*alike, null_handling="replace").buffers()[2]
    return octets or pa.py_buffer(b"")


def _framed(count: int, *fields: "_Varints") -> Any:
    """For each row these numbers, one after the other, as an array of bytes; one value if all rows have the same."""
    if all(field.alike is not None for field in fields):
        return _constant(b"".join(field.alike or b"" for field in fields))
    matrix = np.empty((count, sum(field.width for field in fields)), np.uint8)
    is_used = None
    at = 0
    for field in fields:
        field.write(matrix[:, at : at + field.width])
        if field.is_ragged:
            is_used = np.ones(matrix.shape, np.bool_) if is_used is None else is_used
            for place in range(1, field.width):
                np.greater(field.sizes, place, out=is_used[:, at + place])
        at += field.width
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.broadcast_to(sum(field.sizes for field in fields), count), out=ends[1:])
    octets = matrix if is_used is None else matrix[is_used]
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(octets)])


def varints(numbers: Integers) -> Any:
    """A column with the bytes of each number."""
    encoded = _framed(len(numbers), _Varints(numbers))
    return pa.repeat(encoded, len(numbers)) if isinstance(encoded, pa.Scalar) else encoded


class _Varints:
    """Numbers encoded as in records, and how many bytes each takes; `alike` are those bytes if all numbers are the
    same.
    """

    def __init__(self, numbers: Integers | int) -> None:
        self.alike: bytes | None = None
        self.sizes: Integers | int
        if isinstance(numbers, int):
            low = high = numbers
        else:
            low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        if low == high:
            self.alike = varint(low)
            self.sizes = self.width = len(self.alike)
            self.is_ragged = False
            return
        self._numbers = _zigzag(np.asarray(numbers))
        self.width = max(len(varint(low)), len(varint(high)))
        self.sizes = _sizes(self._numbers, self.width)
        self.is_ragged = int(self.sizes.min()) < self.width

    def write(self, columns: NDArray[np.uint8]) -> None:
        if self.alike is not None:
            columns[:] = np.frombuffer(self.alike, np.uint8)
            return
        rest = self._numbers
        for place in range(self.width - 1):
            # The conversion drops the upper bits.
            octet = rest.astype(np.uint8)
            rest = rest >> np.uint64(7)
            octet &= 0x7F
            octet |= (rest != 0).view(np.uint8) << 7
            columns[:, place] = octet
        columns[:, self.width - 1] = rest


def _zigzag(numbers: Integers) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _sizes(numbers: NDArray[np.uint64], width: int) -> Integers:
    """How many bytes each takes, if none takes more than `width`."""
    sizes = np.ones(len(numbers), np.int64)
    for place in range(1, width):
        sizes += numbers >= np.uint64(1 << (7 * place))
    return sizes


def fields_of(column: Any) -> tuple[Octets, Fields]:
    """The bytes of a column of text or bytes, and where in them each row's bytes are; the length is -1 for null."""
    _, places, octets = column.buffers()
    count = len(column)
    if not count:
        return np.empty(0, np.uint8), Fields(np.empty(0, np.int64), np.empty(0, np.int64))
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    ends = np.frombuffer(places, kind, count + 1, column.offset * kind.itemsize).astype(np.int64)
    lengths = np.diff(ends)
    if column.null_count:
        lengths[~is_valid(column)] = _NULL_LENGTH
    return np.frombuffer(octets or b"", np.uint8), Fields(ends[:-1], lengths)


def is_valid(column: Any) -> NDArray[np.bool_]:
    """Which rows of a column with nulls have a value."""
    first, offset = divmod(column.offset, 8)
    bits = np.frombuffer(column.buffers()[0], np.uint8, (offset + len(column) + 7) // 8, first)
    return np.unpackbits(bits, count=offset + len(column), bitorder="little")[offset:].view(np.bool_)


def _constant(octets: bytes) -> Any:
    """One value for all rows."""
    return column_of(octets)[0]


def column_of(octets: bytes) -> Any:
    """A column of one row. `pa.array` and `pa.scalar` would import pandas."""
    ends = np.array([0, len(octets)], np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(octets)])
