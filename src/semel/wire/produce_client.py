"""Produce from the client's side, versions 7 to 11, for the client and the sink.

The broker answers when all replicas have the records. In version 12, a batch itself adds its partition to the
transaction (KIP-890), which the sink does not use. The records are copied once, into the frame. `semel.wire.produce` is
the broker's side of the same messages, and the oracle of this one in the tests. This codec must never look into the
records, nor judge what the broker answered.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from semel.wire.frames import read_response, request_prefix
from semel.wire.primitives import (
    INT32,
    Buffer,
    length,
    nullable_string,
    read_length,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)
from semel.wire.produce import ACKS_TIMEOUT, FLEXIBLE_FROM, PARTITION_FROM_5, RECORD_ERRORS_FROM
from semel.wire.versions import PRODUCE, VersionRange

SPOKEN: Final = VersionRange(7, 11)

_ALL_REPLICAS: Final = -1


class PartitionBatch(NamedTuple):
    """One record batch with its header, and the partition that it is for."""

    topic: str
    partition: int
    batch: Buffer


class PartitionProduced(NamedTuple):
    """The broker's answer for one partition's batch."""

    topic: str
    partition: int
    error_code: int
    base_offset: int
    message: str | None


def encode_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    timeout_ms: int,
    batches: Sequence[PartitionBatch],
) -> bytes:
    """The whole request, with the frame's size and the request header. No partition may be named twice."""
    flexible = version >= FLEXIBLE_FROM
    # No tagged fields: of a partition, of a topic, of the request.
    tagged_fields = b"\x00" if flexible else b""
    topics: dict[str, list[PartitionBatch]] = {}
    for batch in batches:
        topics.setdefault(batch.topic, []).append(batch)
    body: list[Buffer] = [
        nullable_string(transactional_id, flexible),
        ACKS_TIMEOUT.pack(_ALL_REPLICAS, timeout_ms),
        length(len(topics), flexible),
    ]
    for topic, its_batches in topics.items():
        body += (nullable_string(topic, flexible), length(len(its_batches), flexible))
        for _, partition, records in its_batches:
            body += (INT32.pack(partition), length(len(records), flexible), records, tagged_fields)
        body.append(tagged_fields)
    body.append(tagged_fields)
    prefix = request_prefix(PRODUCE, version, correlation_id, client_id, sum(map(len, body)))
    return b"".join((prefix, *body))


def decode_response(version: int, frame: Buffer) -> list[PartitionProduced]:
    """The broker's answer for each batch, in the broker's order."""
    return read_response(PRODUCE, version, frame, "Produce", _decode)


def _decode(version: int, view: memoryview, at: int) -> list[PartitionProduced]:
    flexible = version >= FLEXIBLE_FROM
    produced: list[PartitionProduced] = []
    topic_count, at = read_length(view, at, flexible)
    for _ in range(topic_count):
        topic, at = read_string(view, at, flexible)
        partition_count, at = read_length(view, at, flexible)
        for _ in range(partition_count):
            partition, error_code, base_offset, _, _ = PARTITION_FROM_5.unpack_from(view, at)
            at += PARTITION_FROM_5.size
            message: str | None = None
            if version >= RECORD_ERRORS_FROM:
                message, at = _read_message(view, at, flexible)
            if flexible:
                at = skip_tagged_fields(view, at)
            produced.append(PartitionProduced(topic, partition, error_code, base_offset, message))
        if flexible:
            at = skip_tagged_fields(view, at)
    # The throttle time, which the broker itself enforces by not reading for this time. It is read here so that a
    # truncated answer is refused.
    INT32.unpack_from(view, at)
    if flexible:
        skip_tagged_fields(view, at + INT32.size)
    return produced


def _read_message(view: memoryview, at: int, flexible: bool) -> tuple[str | None, int]:
    """The broker's message about the batch; if there is none, the one about the first refused record."""
    of_records: str | None = None
    count, at = read_length(view, at, flexible)
    for _ in range(count):
        # Skips the record's index in the batch.
        text, at = read_nullable_string(view, at + INT32.size, flexible)
        if of_records is None:
            of_records = text
        if flexible:
            at = skip_tagged_fields(view, at)
    message, at = read_nullable_string(view, at, flexible)
    return of_records if message is None else message, at
