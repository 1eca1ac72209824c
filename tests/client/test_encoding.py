"""Arrow columns as the records of batches: the bytes are those of the slow encoder, for whatever the columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.client.arrow.encoding import Columns, Records, encoded
from semel.wire.batch import HEADER_BYTES
from semel.wire.records import Record, decode_batches, encode_batch

LIMITLESS = 1 << 30
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

TEXTS = st.none() | st.binary(max_size=3) | st.integers(60, 140).map(bytes)
HEADER = st.tuples(st.text(max_size=2) | st.just("x" * 70), TEXTS)
# Now and then far apart, and in any order.
TIMES = st.integers(0, 300) | st.integers(0, 1 << 52)
RECORDS = st.builds(Record, TEXTS, TEXTS, st.lists(HEADER, max_size=3), TIMES)


def columns_of(records: Sequence[Record], *, is_large: bool = False, before: int = 0) -> Columns:
    """The records as columns that begin in the middle of others."""
    kind = pa.large_binary() if is_large else pa.binary()
    header_kind = LARGE_HEADERS if is_large else HEADERS
    odd = [b"before", None] * before
    headers = [[{"key": name, "value": value} for name, value in one.headers] or None for one in records]
    other_headers: list[Any] = [[{"key": "a", "value": b"b"}], None] * before
    has_keys = any(one.key is not None for one in records)
    start, end = len(odd), len(odd) + len(records)
    return Columns(
        pa.array([*odd, *(one.value for one in records), *odd], kind)[start:end],
        pa.array([*odd, *(one.key for one in records), *odd], kind)[start:end] if has_keys else None,
        np.array([one.timestamp_ms for one in records], np.int64),
        pa.array([*other_headers, *headers, *other_headers], header_kind)[start:end] if any(headers) else None,
    )


def check(pieces: Sequence[Records], records: Sequence[Record]) -> None:
    at = 0
    for piece in pieces:
        part = records[at : at + piece.count]
        assert bytes(piece.payload) == bytes(encode_batch(part)[HEADER_BYTES:])
        assert piece.base_timestamp_ms == part[0].timestamp_ms
        assert piece.max_timestamp_ms == max(one.timestamp_ms for one in part)
        at += piece.count
    assert at == len(records)


@given(st.lists(RECORDS, min_size=1, max_size=80), st.booleans(), st.integers(0, 5))
def test_the_bytes_are_those_of_the_slow_encoder(records: list[Record], is_large: bool, before: int) -> None:
    pieces = list(encoded(columns_of(records, is_large=is_large, before=before), LIMITLESS))
    assert len(pieces) == 1
    check(pieces, records)


@given(st.lists(RECORDS, min_size=1, max_size=40), st.integers(1, 1000))
def test_a_piece_is_no_larger_than_it_may_be_unless_it_is_one_record(records: list[Record], bytes_max: int) -> None:
    pieces = list(encoded(columns_of(records), bytes_max))
    check(pieces, records)
    assert all(len(piece.payload) <= bytes_max or piece.count == 1 for piece in pieces)


def test_pieces_are_nearly_as_large_as_they_may_be() -> None:
    records = [Record(bytes(100), b"key", (), 1 << 40)] * 2000
    *full, _ = encoded(columns_of(records), 20_000)
    assert min(len(piece.payload) for piece in full) > 19_000


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193])
def test_offsets_are_counted_however_many_there_are(count: int) -> None:
    records = [Record(b"%d" % number, b"k", (), number) for number in range(count)]
    check(list(encoded(columns_of(records), LIMITLESS)), records)


@pytest.mark.parametrize("delta", [0, -1, 63, 64, -64, -65, 1 << 20, -(1 << 40), (1 << 53)])
def test_times_may_fall_as_well_as_rise(delta: int) -> None:
    records = [Record(b"v", None, (), time_ms) for time_ms in (1 << 41, (1 << 41) + delta, 1 << 41)]
    check(list(encoded(columns_of(records), LIMITLESS)), records)


def test_no_rows_give_no_records() -> None:
    empty = np.empty(0, np.int64)
    assert list(encoded(Columns(pa.array([], pa.binary()), None, empty), LIMITLESS)) == []
    assert list(encoded(Columns(pa.array([], pa.binary()), pa.array([], pa.binary()), empty), LIMITLESS)) == []


def test_columns_without_any_value_give_records_without_any() -> None:
    nulls, headers = pa.nulls(3, pa.binary()), pa.nulls(3, HEADERS)
    records = [Record(None, None, (), 7)] * 3
    check(list(encoded(Columns(nulls, nulls, np.full(3, 7), headers), LIMITLESS)), records)


def test_what_lies_in_a_column_where_a_row_has_null_is_in_no_record() -> None:
    bits, places = pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 3, 4], np.int32))
    texts = pa.BinaryArray.from_buffers(pa.binary(), 3, [bits, places, pa.py_buffer(b"abcd")])
    entries = pa.array([{"key": name, "value": b""} for name in "abcd"], HEADERS.value_type)
    headers = pa.ListArray.from_buffers(HEADERS, 3, [bits, places], children=[entries])
    records = [
        Record(b"a", b"a", [("a", b"")]),
        Record(None, None),
        Record(b"d", b"d", [("d", b"")]),
    ]
    check(list(encoded(Columns(texts, texts, np.zeros(3, np.int64), headers), LIMITLESS)), records)
    check(list(encoded(Columns(texts, texts, np.zeros(3, np.int64), headers).cut(1, 3), LIMITLESS)), records[1:])


def test_a_consumer_reads_what_was_encoded() -> None:
    records = [Record(b"v", None, [("h", None)], 5), Record(None, b"k", (), 3)]
    (piece,) = encoded(columns_of(records), LIMITLESS)
    batch = encode_batch(records)
    assert bytes(batch[HEADER_BYTES:]) == bytes(piece.payload)
    (read,) = decode_batches(batch)
    assert [(one.value, one.key, list(one.headers), one.timestamp_ms) for one in read.records] == [
        (b"v", None, [("h", None)], 5),
        (None, b"k", [], 3),
    ]


@pytest.mark.parametrize("value", [b"", b"abc", bytes(100)])
def test_the_length_of_a_record_counts_as_well(value: bytes) -> None:
    rows = Columns(pa.array([value] * 400), None, np.zeros(400, np.int64))
    for bytes_max in (90, 1_000, 10_000):
        pieces = list(encoded(rows, bytes_max))
        assert all(len(piece.payload) <= bytes_max or piece.count == 1 for piece in pieces)
