"""Any bytes whatsoever: every decoder answers a message or raises ProtocolError, and never anything else."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from functools import cache, partial

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import fetch, frames, produce
from semel.wire.errors import ProtocolError
from semel.wire.records import Record, decode_batches, encode_batch
from semel.wire.versions import FETCH, LIST_OFFSETS, METADATA, PRODUCE

Decoder = Callable[[bytes], object]

PRODUCE_VERSIONS = APIS[PRODUCE].served
FETCH_VERSIONS = APIS[FETCH].served
OTHERS = [
    (api_key, version)
    for api_key, api in APIS.items()
    if api_key not in (PRODUCE, FETCH)
    for version in sorted({*api.versions})
]


def produce_decoder(version: int) -> Decoder:
    return lambda data: produce.decode_request(data, version)


def fetch_decoder(version: int) -> Decoder:
    return lambda data: fetch.decode_request(data, version)


def message_decoder(api_key: int, version: int) -> Decoder:
    return lambda data: (
        try_response(api_key, version, data),
        messages.decode_request(api_key, version, data),
    )


def try_response(api_key: int, version: int, data: bytes) -> object:
    try:
        return messages.decode_response(api_key, version, data)
    except ProtocolError:
        return None


def batch_decoder(data: bytes) -> object:
    return list(decode_batches(data, decompressed_bytes_max=100_000))


def resealed_batch_decoder(data: bytes) -> object:
    """Past the checksum, which would otherwise stop nearly every mutation."""
    if len(data) >= 61:
        data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return batch_decoder(data)


def a_produce_body(version: int) -> bytes:
    partitions = [{"index": index, "records": b"records"} for index in range(2)]
    topics = [{"name": "orders", "topic_id": b"i" * 16, "partition_data": partitions}] * 2
    entity = messages.build_request(PRODUCE, version, transactional_id="t", acks=-1, timeout_ms=1000, topic_data=topics)
    return messages.encode_request(PRODUCE, version, 0, None, entity)[15 if version >= 9 else 14 :]


def a_fetch_body(version: int) -> bytes:
    partition = {"partition": 1, "fetch_offset": 5, "log_start_offset": -1, "partition_max_bytes": 1000}
    entity = messages.build_request(
        FETCH,
        version,
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=1,
        replica_state={"replica_id": 3, "replica_epoch": 4},
        topics=[{"topic": "orders", "topic_id": b"i" * 16, "partitions": [partition, partition]}],
        forgotten_topics_data=[{"topic": "gone", "topic_id": b"g" * 16, "partitions": [1, 2]}],
        rack_id="rack",
    )
    return messages.encode_request(FETCH, version, 0, None, entity)[15 if version >= 12 else 14 :]


def a_header(version: int) -> bytes:
    return frames.request_prefix(METADATA, version, 7, "client", 0)[4:]


def a_batch(codec: str) -> bytes:
    return bytes(encode_batch([Record(b"value", b"key", [("name", b"h")])] * 3, codec=codec))


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# What makes something valid to start from, when a test needs it, and who decodes it.
SEEDS: dict[str, tuple[Callable[[], bytes], Decoder]] = {
    **{f"produce-{one}": (partial(a_produce_body, one), produce_decoder(one)) for one in PRODUCE_VERSIONS},
    **{f"fetch-{one}": (partial(a_fetch_body, one), fetch_decoder(one)) for one in FETCH_VERSIONS},
    **{f"header-{one}": (partial(a_header, one), frames.parse_request_header) for one in (8, 9)},
    **{f"batch-{codec}": (partial(a_batch, codec), batch_decoder) for codec in CODECS},
    **{f"resealed-batch-{codec}": (partial(a_batch, codec), resealed_batch_decoder) for codec in CODECS},
}
seeds = pytest.mark.parametrize("seed", SEEDS)


@cache
def seeded(seed: str) -> tuple[bytes, Decoder]:
    make, decoder = SEEDS[seed]
    return make(), decoder


def is_accepted(decoder: Decoder, data: bytes) -> bool:
    """Whatever else is raised fails the test."""
    try:
        decoder(data)
    except ProtocolError:
        return False
    return True


@seeds
def test_what_the_mutations_start_from_is_accepted(seed: str) -> None:
    data, decoder = seeded(seed)
    assert is_accepted(decoder, data)


@seeds
@settings(max_examples=40)
@given(data=st.binary(max_size=80))
def test_random_bytes(seed: str, data: bytes) -> None:
    is_accepted(SEEDS[seed][1], data)


@pytest.mark.parametrize(("api_key", "version"), OTHERS)
@settings(max_examples=40)
@given(data=st.binary(max_size=80))
def test_random_bytes_as_any_other_message(api_key: int, version: int, data: bytes) -> None:
    is_accepted(message_decoder(api_key, version), data)


@seeds
def test_a_message_that_ends_too_early(seed: str) -> None:
    data, decoder = seeded(seed)
    accepted = [size for size in range(len(data)) if is_accepted(decoder, data[:size])]
    if "batch" not in seed:
        # Only a list of batches may end early: a fetch answer may be cut.
        assert accepted == []


@seeds
def test_a_message_with_changed_bytes(seed: str) -> None:
    data, decoder = seeded(seed)
    chance = random.Random(seed)
    for position in range(len(data)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF, chance.randrange(256)):
            changed = bytearray(data)
            changed[position] = value
            is_accepted(decoder, bytes(changed))


@seeds
def test_a_huge_or_negative_length_at_every_place_costs_nothing(seed: str) -> None:
    data, decoder = seeded(seed)
    decoder(data)
    tracemalloc.start()
    try:
        for position in range(len(data)):
            for length in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x07"):
                is_accepted(decoder, data[:position] + length + data[position + len(length) :])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000


@pytest.mark.parametrize(("api_key", "version"), OTHERS)
def test_a_huge_or_negative_array_in_any_other_message_costs_nothing(api_key: int, version: int) -> None:
    decoder = message_decoder(api_key, version)
    is_accepted(decoder, b"")
    tracemalloc.start()
    try:
        for length in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x07"):
            for before in range(12):
                is_accepted(decoder, bytes(before) + length + bytes(20))
                is_accepted(decoder, b"\x02" * before + length + bytes(20))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000


@pytest.mark.parametrize("decoder", [produce_decoder(9), produce_decoder(3), fetch_decoder(12), fetch_decoder(4)])
def test_an_array_of_two_thousand_million_in_a_tiny_frame_is_refused(decoder: Decoder) -> None:
    zeros = bytes(40)
    for before in range(24):
        for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
            is_accepted(decoder, zeros[:before] + length)


def test_a_known_message_survives_a_receive_buffer() -> None:
    body = messages.encode_request(
        LIST_OFFSETS, 1, 0, None, messages.build_request(LIST_OFFSETS, 1, replica_id=-1, topics=[])
    )[14:]
    assert messages.decode_request(LIST_OFFSETS, 1, memoryview(bytearray(body))).topics == ()
