"""The codec of Fetch, versions 4 to 18.

The response is a list of buffers for a gathering write: the record buffers are in it unchanged, between small buffers
with the fields, and are never copied or joined. Up to version 12 a topic has its name, from 13 on its id. The codec
skips the fields that only followers send (the replica, its epoch, its log start), and sends no tagged fields, because
there is no other leader. This codec must never judge a request. The tests compare it with the general codec.
"""

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from semel.wire.errors import ProtocolError
from semel.wire.frames import SIZE_BYTES, response_prefix
from semel.wire.primitives import (
    INT32,
    MALFORMED,
    Buffer,
    length,
    nullable_string,
    read_length,
    read_string,
    read_uuid,
    skip_tagged_fields,
)
from semel.wire.steps import Steps, finish
from semel.wire.versions import FETCH

# As for Produce: a frame of some megabytes could otherwise become some gigabytes of objects.
PARTITIONS_PER_REQUEST_MAX: Final = 30_000

# How many partitions are read between two steps.
_AT_ONCE: Final = 100

# The layout of the fields, and the versions that brought them; `semel.wire.fetch_client` uses the same. The log start:
# the follower's in a request, the partition's in an answer.
LOG_START_FROM: Final = 5
SESSIONS_FROM: Final = 7
LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
# Here the replica id moved from the head of a request, where it is -1 for a consumer, into a tagged field.
REPLICA_STATE_FROM: Final = 15

WAIT_AND_SIZES: Final = struct.Struct(">iiib")
SESSION: Final = struct.Struct(">ii")

# A partition of a request: its index, and by version the current leader's epoch, the offset, the last fetched epoch,
# the follower's log start and the maximum of bytes.
PARTITION_FROM_4: Final = struct.Struct(">iqi")
PARTITION_FROM_5: Final = struct.Struct(">iqqi")
PARTITION_FROM_9: Final = struct.Struct(">iiqqi")
PARTITION_FROM_12: Final = struct.Struct(">iiqiqi")

# A partition of a response: index, error, high watermark, last stable offset, and from 5 on the log's start.
ANSWER_FROM_4: Final = struct.Struct(">ihqq")
ANSWER_FROM_5: Final = struct.Struct(">ihqqq")

ABORTED: Final = struct.Struct(">qq")
ERROR_AND_SESSION: Final = struct.Struct(">hi")
# Aborted transactions that are encoded at once.
_ABORTED_AT_ONCE: Final = 500


class FetchPartition(NamedTuple):
    """The offset and the limits for one partition. An epoch that the client does not know or send is -1."""

    partition: int
    fetch_offset: int
    bytes_max: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FetchTopic(NamedTuple):
    """One topic of a request: its name or its id, depending on the version."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to remove from a session."""

    name: str | None
    topic_id: bytes | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """A session epoch of -1, or a version below 7, means that there is no session and the request lists all
    partitions.
    """

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


class FetchPartitionAnswer(NamedTuple):
    """The answer for one partition. `aborted_transactions` has pairs of producer id and first offset; it is None, as in
    Kafka, unless the isolation level asks for them.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    records: Sequence[Buffer] = ()
    preferred_read_replica: int = -1


# Name, id and answers, in the order of FetchTopic: the version decides whether the name or the id is sent.
FetchTopicAnswer = tuple[str | None, bytes | None, Sequence[FetchPartitionAnswer]]


def decode_request(body: Buffer, version: int) -> FetchRequest:
    """The request in this body. The result does not refer to `body`."""
    return finish(decode_request_in_steps(body, version))


def decode_request_in_steps(body: Buffer, version: int) -> Steps[FetchRequest]:
    """The same, some partitions at a time."""
    if type(body) is not memoryview:
        body = memoryview(body)
    try:
        return (yield from _decode(body, version))
    except MALFORMED as error:
        raise ProtocolError(f"Fetch {version} in {len(body)} bytes: {error}") from error


def _decode(body: memoryview, version: int) -> Steps[FetchRequest]:
    flexible = version >= FLEXIBLE_FROM
    at = 0 if version >= REPLICA_STATE_FROM else 4
    wait_ms_max, bytes_min, bytes_max, isolation_level = WAIT_AND_SIZES.unpack_from(body, at)
    at += WAIT_AND_SIZES.size
    session_id, session_epoch = 0, -1
    if version >= SESSIONS_FROM:
        session_id, session_epoch = SESSION.unpack_from(body, at)
        at += SESSION.size
    topics, at = yield from _decode_topics(body, at, version)
    forgotten: list[ForgottenTopic] = []
    if version >= SESSIONS_FROM:
        forgotten, at = yield from _decode_forgotten(body, at, version)
    rack_id = ""
    if version >= RACK_FROM:
        rack_id, at = read_string(body, at, flexible)
    if flexible:
        skip_tagged_fields(body, at)
    return FetchRequest(
        wait_ms_max, bytes_min, bytes_max, isolation_level, session_id, session_epoch, topics, forgotten, rack_id
    )


def _decode_topics(body: memoryview, at: int, version: int) -> Steps[tuple[list[FetchTopic], int]]:
    flexible = version >= FLEXIBLE_FROM
    topic_count, at = read_length(body, at, flexible)
    budget = PARTITIONS_PER_REQUEST_MAX - topic_count
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, topic_id, at = _decode_topic_key(body, at, version)
        partition_count, at = read_length(body, at, flexible)
        budget -= partition_count
        if budget < 0:
            raise ProtocolError(f"more than {PARTITIONS_PER_REQUEST_MAX} topics and partitions in one request")
        partitions: list[FetchPartition] = []
        for number in range(partition_count):
            if number % _AT_ONCE == 0:
                yield min(partition_count - number, _AT_ONCE)
            leader_epoch = fetched_epoch = -1
            if flexible:
                index, leader_epoch, offset, fetched_epoch, _, bytes_max = PARTITION_FROM_12.unpack_from(body, at)
                at = skip_tagged_fields(body, at + PARTITION_FROM_12.size)
            elif version >= LEADER_EPOCH_FROM:
                index, leader_epoch, offset, _, bytes_max = PARTITION_FROM_9.unpack_from(body, at)
                at += PARTITION_FROM_9.size
            elif version >= LOG_START_FROM:
                index, offset, _, bytes_max = PARTITION_FROM_5.unpack_from(body, at)
                at += PARTITION_FROM_5.size
            else:
                index, offset, bytes_max = PARTITION_FROM_4.unpack_from(body, at)
                at += PARTITION_FROM_4.size
            partitions.append(FetchPartition(index, offset, bytes_max, leader_epoch, fetched_epoch))
        if flexible:
            at = skip_tagged_fields(body, at)
        yield 1
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, at


def _decode_forgotten(body: memoryview, at: int, version: int) -> Steps[tuple[list[ForgottenTopic], int]]:
    flexible = version >= FLEXIBLE_FROM
    topic_count, at = read_length(body, at, flexible)
    budget = PARTITIONS_PER_REQUEST_MAX - topic_count
    topics: list[ForgottenTopic] = []
    for _ in range(topic_count):
        name, topic_id, at = _decode_topic_key(body, at, version)
        partition_count, at = read_length(body, at, flexible)
        budget -= partition_count
        if budget < 0:
            raise ProtocolError(f"more than {PARTITIONS_PER_REQUEST_MAX} topics and partitions in one request")
        partitions = list(struct.unpack_from(f">{partition_count}i", body, at))
        at += 4 * partition_count
        if flexible:
            at = skip_tagged_fields(body, at)
        yield 1 + partition_count // _AT_ONCE
        topics.append(ForgottenTopic(name, topic_id, partitions))
    return topics, at


def _decode_topic_key(body: memoryview, at: int, version: int) -> tuple[str | None, bytes | None, int]:
    if version >= TOPIC_IDS_FROM:
        topic_id, at = read_uuid(body, at)
        return None, topic_id, at
    name, at = read_string(body, at, version >= FLEXIBLE_FROM)
    return name, None, at


def encode_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchTopicAnswer],
    throttle_ms: int = 0,
) -> list[Buffer]:
    """The whole response, with the frame's size and the response header, as buffers to be written in this order.

    Below version 7 there is no place for `error_code` and `session_id`.
    """
    return finish(encode_response_in_steps(version, correlation_id, error_code, session_id, topics, throttle_ms))


def encode_response_in_steps(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchTopicAnswer],
    throttle_ms: int = 0,
) -> Steps[list[Buffer]]:
    """The same, some partitions at a time."""
    flexible = version >= FLEXIBLE_FROM
    # The prefix is written when the size is known; its length does not depend on the size.
    fields = bytearray(response_prefix(FETCH, version, correlation_id, 0))
    fields += INT32.pack(throttle_ms)
    if version >= SESSIONS_FROM:
        fields += ERROR_AND_SESSION.pack(error_code, session_id)
    fields += length(len(topics), flexible)
    buffers: list[Buffer] = [fields]
    first = fields
    size = -SIZE_BYTES
    for name, topic_id, answers in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None
            fields += topic_id
        else:
            fields += nullable_string(name, flexible)
        fields += length(len(answers), flexible)
        for answer in answers:
            records = answer[6]
            records_bytes = sum(map(len, records))
            _encode_answer(fields, version, answer, records_bytes)
            if records_bytes:
                buffers += records
                size += len(fields) + records_bytes
                fields = bytearray()
                buffers.append(fields)
            if flexible:
                fields.append(0)
            yield 1 + len(answer[5] or ())
        if flexible:
            fields.append(0)
        yield 1
    if flexible:
        fields.append(0)
    if fields:
        size += len(fields)
    else:
        buffers.pop()
    INT32.pack_into(first, 0, size)
    return buffers


def _encode_answer(fields: bytearray, version: int, answer: FetchPartitionAnswer, records_bytes: int) -> None:
    """Encode a partition up to its records; the records and its tagged fields follow."""
    partition, error_code, high_watermark, last_stable_offset, log_start_offset, aborted, _, replica = answer
    flexible = version >= FLEXIBLE_FROM
    if version >= LOG_START_FROM:
        fields += ANSWER_FROM_5.pack(partition, error_code, high_watermark, last_stable_offset, log_start_offset)
    else:
        fields += ANSWER_FROM_4.pack(partition, error_code, high_watermark, last_stable_offset)
    if aborted is None:
        fields += length(-1, flexible)
    else:
        fields += length(len(aborted), flexible)
        # There may be tens of thousands, so many are packed at once.
        for first in range(0, len(aborted), _ABORTED_AT_ONCE):
            some = aborted[first : first + _ABORTED_AT_ONCE]
            # The tagged fields of each, of which there are none, are one byte of 0.
            fields += struct.pack(">" + len(some) * ("qqx" if flexible else "qq"), *chain.from_iterable(some))
    if version >= RACK_FROM:
        fields += INT32.pack(replica)
    fields += length(records_bytes, flexible)
