"""Record batches as the command line reads and writes them, against another client's codec."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.wire.errors import ProtocolError
from semel.wire.records import CODECS, Batch, Record, decode_batches, encode_batch

header_names = st.text(st.characters(codec="utf-8"), max_size=5)
records = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(header_names, st.none() | st.binary(max_size=10)), max_size=2),
        st.integers(0, 2**41),
        st.just(0),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(records=records, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**50))
def test_records_come_back_as_they_were_written(records: list[Record], codec: str, base_offset: int) -> None:
    (batch,) = decode_batches(encode_batch(records, base_offset=base_offset, codec=codec))
    assert batch.records == [record._replace(offset=base_offset + place) for place, record in enumerate(records)]
    assert batch.codec == codec
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in records)


@settings(max_examples=40)
@given(records=records, codec=st.sampled_from(CODECS))
def test_another_client_reads_what_is_written_here(records: list[Record], codec: str) -> None:
    encoded = encode_batch(
        records, base_offset=7, producer_id=4000, producer_epoch=2, base_sequence=9, transactional=True, codec=codec
    )
    batch = MemoryRecords(bytes(encoded)).next_batch()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 2, 9)
    assert batch.is_transactional
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert read == [(7 + i, r.timestamp_ms, r.key, r.value, list(r.headers)) for i, r in enumerate(records)]


def test_a_name_of_a_header_that_is_not_utf8_hides_no_record() -> None:
    """Kafka takes any bytes, and `semel tail` is where somebody looks for them."""
    written = encode_batch([Record(b"v", None, [("NAME", b"h")], 5, 0)])
    encoded = bytearray(bytes(written).replace(b"NAME", b"N\xff\xfeE"))
    encoded[17:21] = struct.pack(">I", crc32c(bytes(encoded[21:])))
    [batch] = decode_batches(bytes(encoded))
    assert batch.records[0].headers == [("N\\xff\\xfeE", b"h")]


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_client_writes_is_read_here(codec: str) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=False,
        producer_id=11,
        producer_epoch=3,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for number in range(200):
        builder.append(number, 1000 + number, b"k%d" % number, b"value" * 40, [("h", b"1")])
    (batch,) = decode_batches(builder.build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (11, 3, 5)
    assert batch.records == [Record(b"value" * 40, b"k%d" % n, [("h", b"1")], 1000 + n, n) for n in range(200)]


def test_a_batch_says_that_it_is_a_marker() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)
    (batch,) = decode_batches(encode_batch([Record(value, key)], transactional=True, control=True))
    assert (batch.is_transactional, batch.is_control) == (True, True)


def test_a_last_batch_that_is_cut_short_is_left_out() -> None:
    whole = encode_batch([Record(b"one")])
    assert len(list(decode_batches(whole + whole[:-1]))) == 1
    assert list(decode_batches(whole[:-1])) == []


def test_append_time_is_the_time_of_every_record() -> None:
    encoded = encode_batch([Record(b"one", timestamp_ms=5), Record(b"two", timestamp_ms=9)])
    struct.pack_into(">h", encoded, 21, 0x08)
    assert [record.timestamp_ms for record in decode(reseal(encoded)).records] == [9, 9]


def test_a_changed_bit_is_found_by_the_checksum() -> None:
    encoded = encode_batch([Record(b"one")])
    encoded[-2] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        decode(encoded)


def test_an_old_format_is_refused_by_its_name() -> None:
    encoded = encode_batch([Record(b"one")])
    encoded[16] = 1
    with pytest.raises(ProtocolError, match="format 1"):
        decode(encoded)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_stops_at_its_limit(codec: str) -> None:
    encoded = encode_batch([Record(bytes(1_000_000))], codec=codec)
    assert len(encoded) < 60_000
    with pytest.raises(ProtocolError, match="100000"):
        list(decode_batches(encoded, decompressed_bytes_max=100_000))
    assert len(next(decode_batches(encoded, decompressed_bytes_max=1_001_000)).records) == 1


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_payload_that_is_not_compressed_at_all_is_refused(codec: str) -> None:
    encoded = encode_batch([Record(b"one" * 10)])
    struct.pack_into(">h", encoded, 21, CODECS.index(codec))
    with pytest.raises(ProtocolError):
        decode(reseal(encoded))


def test_a_record_count_of_two_thousand_million_in_a_tiny_batch_is_refused() -> None:
    encoded = encode_batch([Record(b"one")])
    struct.pack_into(">i", encoded, 57, 2**31 - 1)
    with pytest.raises(ProtocolError):
        decode(reseal(encoded))


def decode(encoded: bytearray) -> Batch:
    return next(decode_batches(encoded))


def reseal(encoded: bytearray) -> bytearray:
    struct.pack_into(">I", encoded, 17, crc32c(memoryview(encoded)[21:]))
    return encoded
