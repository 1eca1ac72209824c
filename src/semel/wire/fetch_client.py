"""Fetch from the client's side, versions 4 to 17, for the client and the pipeline.

The records of an answer are views of the frame: nothing is copied. A request has one partition, by its topic's name up
to version 12 and by its id from 13 on, and opens no session. `semel.wire.fetch` is the broker's side of the same
messages, and the oracle of this one in the tests. This codec must never look into the records.
"""

from typing import Final, NamedTuple

from semel.wire.errors import ProtocolError
from semel.wire.fetch import (
    ABORTED,
    ANSWER_FROM_4,
    ANSWER_FROM_5,
    ERROR_AND_SESSION,
    FLEXIBLE_FROM,
    LEADER_EPOCH_FROM,
    LOG_START_FROM,
    PARTITION_FROM_4,
    PARTITION_FROM_5,
    PARTITION_FROM_9,
    PARTITION_FROM_12,
    RACK_FROM,
    REPLICA_STATE_FROM,
    SESSION,
    SESSIONS_FROM,
    TOPIC_IDS_FROM,
    WAIT_AND_SIZES,
    FetchPartitionAnswer,
)
from semel.wire.frames import read_response, request_prefix
from semel.wire.primitives import (
    INT32,
    Buffer,
    length,
    nullable_string,
    read_length,
    read_nullable_length,
    read_string,
    read_uuid,
    skip_tagged_fields,
    unsigned_varint,
)
from semel.wire.versions import FETCH, VersionRange

SPOKEN: Final = VersionRange(4, 17)
# The last version that names topics by name.
NAMED_LAST: Final = TOPIC_IDS_FROM - 1

# The client is no follower, has no session, and sends no epoch: a broker that no longer leads says so anyway.
_NO_REPLICA: Final = INT32.pack(-1)
_NO_SESSION: Final = SESSION.pack(0, -1)
_UNKNOWN_EPOCH: Final = -1
_NO_LOG_START: Final = -1


class PartitionFetch(NamedTuple):
    """A request for the records of one partition from an offset on, with limits on their size and on the wait."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    isolation_level: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


def encode_request(version: int, correlation_id: int, client_id: str | None, part: PartitionFetch) -> bytes:
    """The whole request, with the frame's size and the request header."""
    flexible = version >= FLEXIBLE_FROM
    body = bytearray() if version >= REPLICA_STATE_FROM else bytearray(_NO_REPLICA)
    body += WAIT_AND_SIZES.pack(part.wait_ms_max, part.bytes_min, part.bytes_max, part.isolation_level)
    if version >= SESSIONS_FROM:
        body += _NO_SESSION
    body += length(1, flexible)
    body += part.topic_id if version >= TOPIC_IDS_FROM else nullable_string(part.topic, flexible)
    body += length(1, flexible)
    body += _partition(version, part)
    if flexible:
        # No tagged fields: of the partition, and of the topic.
        body += b"\x00\x00"
    if version >= SESSIONS_FROM:
        body += length(0, flexible)
    if version >= RACK_FROM:
        body += nullable_string("", flexible)
    if flexible:
        body += unsigned_varint(0)
    return request_prefix(FETCH, version, correlation_id, client_id, len(body)) + body


def _partition(version: int, part: PartitionFetch) -> bytes:
    index, offset, bytes_max = part.partition, part.offset, part.partition_bytes_max
    if version >= FLEXIBLE_FROM:
        return PARTITION_FROM_12.pack(index, _UNKNOWN_EPOCH, offset, _UNKNOWN_EPOCH, _NO_LOG_START, bytes_max)
    if version >= LEADER_EPOCH_FROM:
        return PARTITION_FROM_9.pack(index, _UNKNOWN_EPOCH, offset, _NO_LOG_START, bytes_max)
    if version >= LOG_START_FROM:
        return PARTITION_FROM_5.pack(index, offset, _NO_LOG_START, bytes_max)
    return PARTITION_FROM_4.pack(index, offset, bytes_max)


def decode_response(version: int, frame: Buffer) -> FetchPartitionAnswer:
    """The answer for the one partition. Its records are a view of `frame`, or none; an error of the whole request
    counts as the partition's.
    """
    return read_response(FETCH, version, frame, "Fetch", _decode)


def _decode(version: int, view: memoryview, at: int) -> FetchPartitionAnswer:
    flexible = version >= FLEXIBLE_FROM
    # Skips the throttle time, which the broker enforces itself.
    at += INT32.size
    if version >= SESSIONS_FROM:
        error_code, _ = ERROR_AND_SESSION.unpack_from(view, at)
        at += ERROR_AND_SESSION.size
        if error_code:
            return FetchPartitionAnswer(-1, error_code, -1)
    topic_count, at = read_length(view, at, flexible)
    if topic_count != 1:
        raise ProtocolError(f"an answer about {topic_count} topics where one was asked for")
    _, at = read_uuid(view, at) if version >= TOPIC_IDS_FROM else read_string(view, at, flexible)
    partition_count, at = read_length(view, at, flexible)
    if partition_count != 1:
        raise ProtocolError(f"an answer about {partition_count} partitions where one was asked for")
    log_start = -1
    if version >= LOG_START_FROM:
        index, error_code, high_watermark, last_stable, log_start = ANSWER_FROM_5.unpack_from(view, at)
        at += ANSWER_FROM_5.size
    else:
        index, error_code, high_watermark, last_stable = ANSWER_FROM_4.unpack_from(view, at)
        at += ANSWER_FROM_4.size
    aborted, at = _read_aborted(view, at, flexible)
    replica = -1
    if version >= RACK_FROM:
        replica = INT32.unpack_from(view, at)[0]
        at += INT32.size
    size, at = read_nullable_length(view, at, flexible)
    records = (view[at : at + size],) if size > 0 else ()
    return FetchPartitionAnswer(index, error_code, high_watermark, last_stable, log_start, aborted, records, replica)


def _read_aborted(view: memoryview, at: int, flexible: bool) -> tuple[list[tuple[int, int]], int]:
    count, at = read_nullable_length(view, at, flexible)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = ABORTED.unpack_from(view, at)
        aborted.append((producer_id, first_offset))
        at += ABORTED.size
        if flexible:
            at = skip_tagged_fields(view, at)
    return aborted, at
