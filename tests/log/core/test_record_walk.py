"""What no reader could read is refused when it comes; and all that a client's library writes is accepted, whatever
shapes its records have.
"""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal import refused
from semel.log.core.batch_checks import check_records
from semel.log.core.record_walk import BadRecord, Times, walk_records
from semel.wire import refusals
from semel.wire.batch import HEADER_BYTES, BatchHeader, close_batch, read_header
from semel.wire.records import Record, decode_batches, encode_batch, varint
from semel.wire.refusals import Refused
from semel.wire.steps import finish

BASE_MS = 1_700_000_000_000
LONG = 2**63 - 1


def header_of(count: int, base_ms: int = BASE_MS, latest_ms: int = BASE_MS) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, count - 1, base_ms, latest_ms, -1, -1, -1, count)


def walked(records: bytes, count: int, base_ms: int = BASE_MS) -> Times:
    return finish(walk_records(records, header_of(count, base_ms)))


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def body_of(
    place: int, *, key: bytes = field(None), value: bytes = field(b"v"), headers: bytes = varint(0), time: int = 0
) -> bytes:
    return b"\0" + varint(time) + varint(place) + key + value + headers


def record_of(body: bytes, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


RECORDS = st.lists(
    st.builds(
        Record,
        value=st.none() | st.binary(max_size=200),
        key=st.none() | st.binary(max_size=80),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        timestamp_ms=st.integers(BASE_MS - 100_000, BASE_MS + 100_000),
    ),
    min_size=1,
    max_size=40,
)
# How often each of them comes in a row, so that there are records alike as well.
REPEATED = st.lists(st.sampled_from((1, 1, 3, 70, 300)), min_size=40, max_size=40)


@given(RECORDS, REPEATED)
def test_what_a_library_writes_is_accepted_with_the_times_of_its_records(
    kinds: list[Record], repeated: list[int]
) -> None:
    records = [kind for kind, times in zip(kinds, repeated, strict=False) for _ in range(times)]
    batch = encode_batch(records)
    times = [record.timestamp_ms for record in records]
    assert finish(walk_records(batch[HEADER_BYTES:], read_header(batch))) == Times(min(times), max(times))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_records_alike_are_accepted_where_their_offsets_grow_by_a_byte(count: int) -> None:
    batch = encode_batch([Record(b"x" * 100, timestamp_ms=BASE_MS + place // 500) for place in range(count)])
    times = finish(walk_records(batch[HEADER_BYTES:], read_header(batch)))
    assert times == Times(BASE_MS, BASE_MS + (count - 1) // 500)


@given(RECORDS, REPEATED, st.data())
def test_what_is_accepted_can_be_read(kinds: list[Record], repeated: list[int], data: st.DataObject) -> None:
    """Bytes are changed here and there: the walk accepts no batch that the reader of the command line refuses, or reads
    at other offsets."""
    records = [kind for kind, times in zip(kinds, repeated, strict=False) for _ in range(times)]
    batch = encode_batch(records)
    header = read_header(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    try:
        times = finish(walk_records(batch[HEADER_BYTES:], header))
    except Refused:
        return
    (read,) = decode_batches(close_batch(header, batch[HEADER_BYTES:]))
    assert [record.offset for record in read.records] == list(range(len(records)))
    read_times = [record.timestamp_ms for record in read.records]
    assert times == Times(min(read_times), max(read_times))


@given(st.integers(0, 599), st.integers(0, 12), st.integers(0, 255))
@example(0, 0, 0xFF)
@example(599, 0, 0xFF)
def test_a_wrong_byte_in_any_of_many_records_alike_is_found(place: int, at: int, byte: int) -> None:
    """A record with a value of 100 bytes begins with two bytes of length, one of attributes, one of time, two of
    offset, one for the missing key, two of the value's length. Whatever is accepted, the reader reads."""
    count = 600
    records = [record_of(body_of(number, value=field(b"x" * 100))) for number in range(count)]
    begin = sum(map(len, records[:place]))
    changed = bytearray(b"".join(records))
    changed[begin + at] = byte
    try:
        walked(bytes(changed), count)
    except Refused:
        return
    (read,) = decode_batches(close_batch(header_of(count), changed))
    assert [record.offset for record in read.records] == list(range(count))
    assert [record.value for record in read.records[:place]] == [b"x" * 100] * place


@given(st.binary(max_size=300), st.integers(1, 40))
@example(b"\xff" * 40, 1)
@example(b"", 1)
def test_any_bytes_are_records_or_refused(records: bytes, count: int) -> None:
    try:
        walked(records, count)
    except Refused:
        return
    assert len(next(decode_batches(close_batch(header_of(count), records))).records) == count


BAD = {
    "a length that is negative": varint(-1) + body_of(0),
    "a length beyond the batch": record_of(body_of(0), 1000),
    "a length of six bytes": b"\x8e\x80\x80\x80\x80\x00" + body_of(0),
    "a length that is too long by one": record_of(body_of(0), len(body_of(0)) + 1) + b"\0",
    "a length that is too short by one": record_of(body_of(0), len(body_of(0)) - 1),
    "an offset that is not its place": record_of(body_of(1)),
    "a negative offset": record_of(body_of(-1)),
    "a key of length -2": record_of(body_of(0, key=varint(-2))),
    "a key beyond the record": record_of(body_of(0, key=varint(100))),
    "a value of length -2": record_of(body_of(0, value=varint(-2))),
    "a value beyond the batch": record_of(body_of(0, value=varint(2**31 - 1))),
    "a value of length -2^31": record_of(body_of(0, value=varint(-(2**31)))),
    "a negative number of headers": record_of(body_of(0, headers=varint(-1))),
    "more headers than bytes": record_of(body_of(0, headers=varint(2**31 - 1))),
    "a header without a name": record_of(body_of(0, headers=varint(1) + varint(-1) + varint(0))),
    "a header's name beyond the record": record_of(body_of(0, headers=varint(1) + varint(50) + varint(0))),
    "a header's value of length -2": record_of(body_of(0, headers=varint(1) + field(b"h") + varint(-2))),
    "a header's value beyond the record": record_of(body_of(0, headers=varint(1) + field(b"h") + varint(9) + b"v")),
    "a time of eleven bytes": record_of(b"\0" + b"\x80" * 10 + b"\0" + varint(0) + field(None) * 2 + varint(0)),
    "bytes after the last record": record_of(body_of(0)) + b"\0",
    "a record more than the header counts": record_of(body_of(0)) + record_of(body_of(1)),
    "forty times 0xff": b"\xff" * 40,
    "nothing": b"",
}


@pytest.mark.parametrize("records", BAD.values(), ids=BAD)
def test_a_record_that_no_reader_can_read_is_refused_with_its_place(records: bytes) -> None:
    with pytest.raises(BadRecord, match=r"^record 0 of the batch: ") as found:
        walked(records, 1)
    assert (found.value.error, found.value.place) == (refusals.INVALID_RECORD, 0)


def test_the_place_that_is_named_is_that_of_the_first_bad_record() -> None:
    good = [record_of(body_of(place, value=field(b"x" * 50))) for place in range(400)]
    good[317] = record_of(body_of(318, value=field(b"x" * 50)))
    with pytest.raises(BadRecord, match="record 317 of the batch: its offset delta is 318"):
        walked(b"".join(good), 400)


@pytest.mark.parametrize("delta", [LONG, -LONG - 1])
def test_a_time_of_more_than_64_bits_is_refused(delta: int) -> None:
    base_ms = BASE_MS if delta > 0 else -BASE_MS
    with refused(refusals.INVALID_TIMESTAMP, "more than 64 bits"):
        walked(record_of(body_of(0, time=delta)), 1, base_ms)


def test_a_time_long_before_christ_is_accepted_as_in_kafka() -> None:
    assert walked(record_of(body_of(0)), 1, -(2**62)) == Times(-(2**62), -(2**62))


@pytest.mark.parametrize("claimed_ms", [0, BASE_MS + 10**15, -(2**62), -1])
def test_the_time_of_the_latest_record_is_corrected_where_a_client_gets_it_wrong(claimed_ms: int) -> None:
    """Retention and look-ups by time trust it."""
    records = [Record(b"v", timestamp_ms=BASE_MS + place) for place in (5, 900, 3)]
    honest = encode_batch(records)
    lying = bytearray(honest)
    struct.pack_into(">q", lying, 35, claimed_ms)
    header, earliest_ms = finish(check_records(read_header(lying), lying))
    assert earliest_ms == BASE_MS + 3
    assert header == read_header(honest)
    assert lying == honest


def test_compressed_records_stay_closed() -> None:
    batch = encode_batch([Record(b"v")], codec="gzip")
    broken = close_batch(read_header(batch), b"\x1f\x8bthis is no gzip")
    header = read_header(broken)
    assert finish(check_records(header, broken)) == (header, None)


def test_many_records_are_walked_in_steps() -> None:
    records = b"".join(record_of(body_of(place, value=field(b"x" * (place % 7)))) for place in range(10_000))
    assert sum(walk_records(records, header_of(10_000))) >= 1000
