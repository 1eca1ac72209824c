"""A batch that cannot be read: each of the two ways of reading names it and fails, or names it and goes on, as its user
wants; never does it go on by itself.
"""

import uuid
from collections.abc import Callable

import pytest

from semel.client import Slice, Topic
from semel.client.aborted import batches
from semel.client.arrow import slices
from semel.client.bad_batches import BadBatch, Report, UnreadableBatch, refuse
from semel.client.client import Fetched
from semel.wire.batch import BatchHeader, close_batch, place, read_header
from semel.wire.errors import ProtocolError
from semel.wire.records import CODECS, Record, compressed, encode_batch

WANTED = Slice(Topic("payments", uuid.UUID(int=1), 1), 0, 0, 1_000)


def batch_at(offset: int, *values: bytes, codec: str = "none") -> bytearray:
    return encode_batch([Record(value) for value in values], base_offset=offset, codec=codec)


def bad_at(offset: int, payload: bytes, *, codec: str = "none", count: int = 3) -> bytearray:
    """A batch whose header says that there are so many records, of these bytes."""
    attributes = CODECS.index(codec)
    header = BatchHeader(offset, 0, 0, 2, 0, attributes, count - 1, 0, 0, -1, -1, -1, count)
    batch = close_batch(header, payload)
    place(batch, read_header(batch), offset)
    return batch


BAD = {
    "forty times 0xff": bad_at(2, b"\xff" * 40),
    "no gzip": bad_at(2, b"\x1f\x8bthis is none", codec="gzip"),
    "no snappy": bad_at(2, b"\xff" * 40, codec="snappy"),
    "no lz4": bad_at(2, b"\x04\x22\x4d\x18this is none", codec="lz4"),
    "no zstd": bad_at(2, b"\x28\xb5\x2f\xfdthis is none", codec="zstd"),
    "forty times 0xff in zstd": bad_at(2, bytes(compressed(4, b"\xff" * 40)), codec="zstd"),
    "fewer records than announced": bad_at(2, bytes(batch_at(0, b"v")[61:])),
    "a bomb": bad_at(2, bytes(compressed(4, bytes(80 * 1024 * 1024))), codec="zstd"),
}


def by_columns(records: bytes, report: Report = refuse) -> list[bytes]:
    fetched = Fetched(memoryview(records), [], 1_000)
    read = slices.rows(fetched, WANTED, ["value"], report)
    return [row["value"] for batch in read for row in batch.to_pylist()]


def by_records(records: bytes, report: Report = refuse) -> list[bytes]:
    return [record.value or b"" for batch, _ in batches(records, [], report) for record in batch.records]


@pytest.mark.parametrize("read", [by_columns, by_records])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_batch_that_cannot_be_read_is_named_and_all_others_are_read(
    read: Callable[..., list[bytes]], bad: bytearray, codec: str
) -> None:
    records = bytes(batch_at(0, b"a", b"b", codec=codec) + bad + batch_at(5, b"c", codec=codec))
    with pytest.raises(UnreadableBatch, match=r"^the batch at offsets 2 to 4 cannot be read: "):
        read(records)
    told: list[BadBatch] = []
    assert read(records, told.append) == [b"a", b"b", b"c"]
    assert [(one.first, one.last) for one in told] == [(2, 4)]


@pytest.mark.parametrize("read", [by_columns, by_records])
def test_bytes_that_changed_on_the_way_are_never_passed_over(read: Callable[..., list[bytes]]) -> None:
    """That is no producer's batch, but damage: what comes next may be damaged as well."""
    records = batch_at(0, b"a") + batch_at(1, b"b")
    records[-1] ^= 1
    with pytest.raises(ProtocolError, match="at offset 1 does not match its checksum"):
        read(bytes(records), lambda bad: None)
