"""Compressed records are what every client can open, at the levels of every codec."""

import random
import struct

import cramjam
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.wire.batch import HEADER_BYTES
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import (
    CODECS,
    DECOMPRESSED_BYTES_MAX,
    LEVELS,
    Record,
    compressed,
    encode_batch,
    opened,
    sealed,
)

SOME_LEVELS: dict[str, list[int | None]] = {
    codec: [None, *sorted({levels[0], 0, 1, 9, levels[-1]})] for codec, levels in LEVELS.items()
}
CODECS_AT_LEVELS = [(codec, level) for codec in CODECS for level in SOME_LEVELS.get(codec, [None])]

# Several blocks of LZ4, of which some can be made no smaller.
LARGE = b"".join([b"all the same " * 20_000, random.Random(5).randbytes(200_000), b"once more " * 9_000])

# What an LZ4 frame says of itself behind its four bytes of magic.
LZ4_INDEPENDENT_BIT, LZ4_BLOCK_CHECKSUM_BIT, LZ4_CONTENT_CHECKSUM_BIT = 0x20, 0x10, 0x04
LZ4_HEAD_BYTES = 7
LZ4_STORED_BIT = 0x80000000


def around(payload: Buffer, codec: str) -> bytearray:
    return sealed(
        payload,
        record_count=1,
        attributes=CODECS.index(codec),
        base_timestamp_ms=5,
        max_timestamp_ms=9,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=7,
    )


@pytest.mark.parametrize(("codec", "level"), CODECS_AT_LEVELS)
@pytest.mark.parametrize("payload", [b"", b"a", LARGE], ids=["empty", "one byte", "large"])
def test_what_is_compressed_at_any_level_is_opened_again(codec: str, level: int | None, payload: bytes) -> None:
    batch = around(compressed(CODECS.index(codec), memoryview(payload), level), codec)
    assert opened(batch, CODECS.index(codec), DECOMPRESSED_BYTES_MAX) == payload


@pytest.mark.parametrize(("codec", "level"), CODECS_AT_LEVELS)
def test_another_client_opens_what_is_compressed_at_any_level(codec: str, level: int | None) -> None:
    plain = encode_batch([Record(LARGE, b"key")])[HEADER_BYTES:]
    batch = MemoryRecords(bytes(around(compressed(CODECS.index(codec), plain, level), codec))).next_batch()
    assert batch.validate_crc()
    assert [(record.key, record.value) for record in batch] == [(b"key", LARGE)]


@pytest.mark.parametrize("level", SOME_LEVELS["lz4"])
def test_no_block_of_lz4_leans_on_another_because_java_would_refuse_them_all(level: int | None) -> None:

    frame = bytes(compressed(CODECS.index("lz4"), LARGE, level))
    flags = frame[4]
    assert flags & LZ4_INDEPENDENT_BIT
    assert not flags & LZ4_CONTENT_CHECKSUM_BIT
    found, at = bytearray(), LZ4_HEAD_BYTES
    while size := struct.unpack_from("<I", frame, at)[0]:
        block = frame[at + 4 : at + 4 + (size & ~LZ4_STORED_BIT)]
        plain = bytearray(64 * 1024)
        found += block if size & LZ4_STORED_BIT else plain[: cramjam.lz4.decompress_block_into(block, plain)]
        at += 4 + len(block) + (4 if flags & LZ4_BLOCK_CHECKSUM_BIT else 0)
    assert found == LARGE
    assert at + 4 == len(frame)


@settings(max_examples=40)
@given(
    values=st.lists(st.binary(max_size=50), min_size=1, max_size=5),
    times_ms=st.tuples(st.integers(0, 2**41), st.integers(0, 2**41)),
    base_sequence=st.integers(0, 2**31 - 1),
    codec=st.sampled_from(CODECS),
)
def test_records_that_are_encoded_already_get_the_header_that_records_get(
    values: list[bytes], times_ms: tuple[int, int], base_sequence: int, codec: str
) -> None:
    records = [Record(value, timestamp_ms=times_ms[place % 2]) for place, value in enumerate(values)]
    whole = encode_batch(records, producer_id=4000, producer_epoch=2, base_sequence=base_sequence, codec=codec)
    again = sealed(
        memoryview(whole)[HEADER_BYTES:],
        record_count=len(records),
        attributes=CODECS.index(codec),
        base_timestamp_ms=times_ms[0],
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        producer_id=4000,
        producer_epoch=2,
        base_sequence=base_sequence,
    )
    assert again == whole


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_records_of_a_codec_that_there_is_not_are_refused(codec: int) -> None:
    with pytest.raises(ProtocolError, match=f"codec {codec}, and there is no such codec"):
        opened(around(b"records", "none"), codec, DECOMPRESSED_BYTES_MAX)
