"""Every row of every log is what the naive reader makes of it, and bytes that are no log give an error and no rows."""

import subprocess
import sys
import uuid
from typing import Any

import pytest
from batches import Log, Shape, batch_of, logs, with_checksum
from hypothesis import example, given
from hypothesis import strategies as st
from naive_reader import naive_rows

from read_committed import shown
from semel.client import Slice, Topic
from semel.client.aborted import batches
from semel.client.arrow import TYPES, slices
from semel.client.arrow.columns import schema_of
from semel.client.client import Fetched
from semel.wire.batch import HEADER_BYTES, MAGIC_POSITION
from semel.wire.errors import ProtocolError
from semel.wire.records import CODECS, Record, closed_batches, compressed, encode_batch, varint

TOPIC = Topic("payments", uuid.UUID(int=1), 4)


def everything(start: int = 0, end: int = 2**62) -> Slice:
    return Slice(TOPIC, 3, start, end)


def raw_batch(encoded: bytes, record_count: int, codec: str = "none") -> bytearray:
    """A batch of these very bytes, which announces so many records."""
    payload = compressed(CODECS.index(codec), encoded)
    batch = bytearray(batch_of([], 5, max(record_count - 1, 0), Shape())) + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[21:23] = CODECS.index(codec).to_bytes(2)
    batch[57:61] = record_count.to_bytes(4)
    return with_checksum(batch)


def rows(log: Log, wanted: Slice, columns: list[str] | None = None) -> list[dict[str, Any]]:
    fetched = Fetched(memoryview(log.encoded), log.aborted, log.next_offset)
    names = list(TYPES) if columns is None else columns
    read = list(slices.rows(fetched, wanted, names))
    for batch in read:
        batch.validate(full=True)
        assert batch.schema == schema_of(names)
    return [row for batch in read for row in batch.to_pylist()]


@given(logs(), st.data())
def test_any_slice_of_any_log_gives_the_rows_that_the_naive_reader_gives(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(log.next_offset - 40, log.next_offset).map(lambda offset: max(offset, 0)))
    end = data.draw(st.integers(start, log.next_offset + 2))
    wanted = everything(start, end)
    assert rows(log, wanted) == naive_rows(bytes(log.encoded), log.aborted, wanted)


@given(logs())
def test_who_looks_at_each_batch_is_told_of_the_aborted_ones_and_of_no_others(log: Log) -> None:
    kept = [batch for batch, is_aborted in batches(log.encoded, log.aborted) if not (batch.is_control or is_aborted)]
    assert kept == list(shown(bytes(log.encoded), log.aborted))


@given(logs(), st.lists(st.sampled_from(list(TYPES)), unique=True, min_size=1))
def test_columns_come_in_the_order_in_which_they_were_asked_for_and_no_others(log: Log, columns: list[str]) -> None:
    expected = naive_rows(bytes(log.encoded), log.aborted, everything())
    assert rows(log, everything(), columns) == [{name: row[name] for name in columns} for row in expected]


@given(logs(), st.data())
def test_a_changed_byte_that_a_checksum_covers_is_an_error(log: Log, data: st.DataObject) -> None:
    at, header = data.draw(st.sampled_from(list(closed_batches(log.encoded))))
    place = data.draw(st.integers(at + MAGIC_POSITION, at + header.batch_bytes - 1))
    log.encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolError):
        rows(log, everything())


pieces_of_records = st.one_of(
    st.binary(max_size=40),
    st.integers(-3, 40).map(varint),
    st.sampled_from([2**31, 2**40, -(2**40), 2**62]).map(varint),
)


@given(st.lists(pieces_of_records, max_size=20), st.integers(1, 40), st.sampled_from(CODECS))
@example([b"\x0e\0\0\0\xfe\xff\xff\xff\x0f\0\0"], 1, "none")
@example([b"\x0e\0\0\0\x01\x01\xfe\xff"], 1, "none")
@example([b"\x0e\0\0\0\x01\x01\x02\x00"], 1, "none")
@example([b"\x01" * 7], 1, "none")
@example([b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"], 1, "none")
def test_hostile_bytes_under_a_right_checksum_give_rows_or_an_error(
    pieces: list[bytes], record_count: int, codec: str
) -> None:
    log = Log(raw_batch(b"".join(pieces), record_count, codec))
    try:
        found = rows(log, everything())
    except ProtocolError:
        return
    try:
        expected = naive_rows(bytes(log.encoded), [], everything())
    except ProtocolError as error:
        # A header that is not text is no reason for a pipeline to stop, but for the naive reader it is.
        if "utf-8" not in str(error):
            raise
    else:
        assert found == expected


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_read_across_many_batches(codec: str) -> None:
    log = Log()
    for number in range(300):
        records = [Record(b"%d" % i * 40, b"key", (), 1000 + i) for i in range(100)]
        log.encoded += encode_batch(records, base_offset=100 * number, codec=codec, producer_id=1, base_sequence=0)
    found = rows(log, everything(150, 29_950), ["offset", "value"])
    assert [row["offset"] for row in found] == list(range(150, 29_950))
    assert {row["value"] for row in found} == {b"%d" % i * 40 for i in range(100)}


@pytest.mark.parametrize("size", [0, 50, 63, 64, 8_000, 8_191, 8_192, 1_048_575, 1_048_576, 3_000_000])
def test_records_of_every_size_are_read(size: int) -> None:
    records = [Record(bytes(size)), Record(b"x"), Record(None), Record(bytes(size), b"k" * size)]
    found = rows(Log(encode_batch(records)), everything(), ["key", "value"])
    assert found == [{"key": record.key, "value": record.value} for record in records]


def test_reading_does_not_import_pandas_for_which_every_worker_would_wait() -> None:
    program = """
import sys, uuid
from semel.client import Slice, Topic
from semel.client.arrow import TYPES
from semel.client.client import Fetched
from semel.client.arrow.slices import rows
from semel.wire.records import Record, encode_batch
records = encode_batch([Record(b"v", b"k", [("h", b"x")]), Record(None)], producer_id=1, base_sequence=0)
wanted = Slice(Topic("payments", uuid.uuid4(), 1), 0, 0, 2)
(batch,) = rows(Fetched(memoryview(records), [], 2), wanted, list(TYPES))
assert batch.num_rows == 2
print("pandas" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def test_snappy_as_java_frames_it_is_read() -> None:
    import cramjam

    plain = encode_batch([Record(b"x" * 50_000), Record(b"y")])[HEADER_BYTES:]
    blocks = [bytes(cramjam.snappy.compress_raw(bytes(plain[at : at + 32_768]))) for at in range(0, len(plain), 32_768)]
    framed = b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"".join(len(block).to_bytes(4) + block for block in blocks)
    batch = bytearray(encode_batch([Record(b""), Record(b"")], codec="snappy")[:HEADER_BYTES]) + framed
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    found = rows(Log(with_checksum(batch)), everything(), ["value"])
    assert [row["value"] for row in found] == [b"x" * 50_000, b"y"]


def test_a_header_that_is_not_text_is_read_as_java_reads_it() -> None:
    record = b"\0\0\0\x01\x01" + varint(1) + varint(2) + b"\xffa" + varint(1) + b"v"
    (row,) = rows(Log(raw_batch(varint(len(record)) + record, 1)), everything(), ["headers"])
    assert row["headers"] == [{"key": "�a", "value": b"v"}]


def test_a_batch_of_an_older_format_is_refused_by_its_number() -> None:
    batch = bytearray(encode_batch([Record(b"v")]))
    batch[16] = 1
    with pytest.raises(ProtocolError, match="format 1; only format 2 is known"):
        rows(Log(batch), everything())


def test_records_out_of_order_are_no_rows() -> None:
    batch = batch_of([(1, Record(b"b")), (0, Record(b"a"))], 0, 1, Shape())
    with pytest.raises(ProtocolError, match="order of their offsets"):
        rows(Log(bytearray(batch)), everything())


@pytest.mark.parametrize("time_ms", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_record_whose_time_no_timestamp_can_hold_has_no_time(time_ms: int) -> None:
    """Apache Kafka accepts any time, and one record must not end every reader of its partition."""
    log = Log(bytearray(batch_of([(0, Record(b"v", None, (), time_ms))], 0, 0, Shape())))
    assert rows(log, everything(), ["timestamp", "value"]) == [{"timestamp": None, "value": b"v"}]


def test_a_bomb_is_refused_before_memory_is_taken_for_it() -> None:
    batch = raw_batch(bytes(128 * 1024 * 1024), 1, "zstd")
    with pytest.raises(ProtocolError, match="not zstd, or more than"):
        rows(Log(batch), everything())
