"""The codec of Produce, versions 3 to 13.

Record batches are passed on as memoryviews of the frame, and are never copied or opened. Up to version 12 a topic has
its name, from 13 on its id. The response has no tagged fields (the current leader, the endpoints), because there is no
other leader. This codec must never judge a request: the handler refuses, for example, unknown acks or missing records.
The tests compare it with the general codec.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from semel.wire.errors import ProtocolError
from semel.wire.frames import SIZE_BYTES, response_prefix
from semel.wire.primitives import (
    INT32,
    MALFORMED,
    UUID_BYTES,
    Buffer,
    length,
    nullable_string,
    read_length,
    read_nullable_length,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    read_uuid,
    skip_tagged_fields,
)
from semel.wire.steps import Steps, finish
from semel.wire.versions import PRODUCE

# A frame of some megabytes could name millions of partitions of a few bytes each, and every one becomes objects of a
# hundred bytes or more. By default, all topics and partitions of a broker together are no more than this.
PARTITIONS_PER_REQUEST_MAX: Final = 30_000

# How many partitions are read between two steps.
_AT_ONCE: Final = 100

# The versions that brought these fields.
RECORD_ERRORS_FROM: Final = 8
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13

ACKS_TIMEOUT: Final = struct.Struct(">hi")

# A request with one batch for one partition, the usual case, in two pieces around the topic's name or id: acks and
# timeout, one topic, the length of its name; one partition, its index.
_ONE_REQUEST: Final = struct.Struct(">hiBB")
_ONE_PARTITION: Final = struct.Struct(">Bi")
# The bytes after the batch: no tagged fields of the partition, of the topic, of the request.
_NO_TAGGED_FIELDS: Final = b"\0\0\0"
# The answer to such a request, in two pieces around the topic's name or id.
_ONE_HEAD: Final = struct.Struct(">iiBBB")
_ONE_HEAD_BY_ID: Final = struct.Struct(">iiBB")
_ONE_TAIL: Final = struct.Struct(">BihqqqBBBBiB")
_NAME_BYTES_IN_ONE_MAX: Final = 126

# A NamedTuple's own constructor takes as long as the rest of a topic.
_new = tuple.__new__

_PARTITION_FROM_3: Final = struct.Struct(">ihqq")
PARTITION_FROM_5: Final = struct.Struct(">ihqqq")


class ProduceTopic(NamedTuple):
    """One topic of a request: its name or its id, and the record batch for each partition's index."""

    name: str | None
    topic_id: bytes | None
    partitions: list[tuple[int, memoryview | None]]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionAnswer(NamedTuple):
    """The result for one partition's records. Answers contain the messages from version 8 on."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None


# Name, id and answers, in the order of ProduceTopic: the version decides whether the name or the id is sent.
ProduceTopicAnswer = tuple[str | None, bytes | None, Sequence[ProducePartitionAnswer]]


def decode_request(body: Buffer, version: int) -> ProduceRequest:
    """The request in this body. The records in it are views of `body`."""
    return finish(decode_request_in_steps(body, version))


def decode_request_in_steps(body: Buffer, version: int) -> Steps[ProduceRequest]:
    """The same, some partitions at a time."""
    if type(body) is not memoryview:
        body = memoryview(body)
    try:
        if version >= FLEXIBLE_FROM and (request := _decode_one(body, version)) is not None:
            return request
        return (yield from _decode_flexible(body, version) if version >= FLEXIBLE_FROM else _decode_legacy(body))
    except MALFORMED as error:
        raise ProtocolError(f"Produce {version} in {len(body)} bytes: {error}") from error


def _decode_one(body: memoryview, version: int) -> ProduceRequest | None:
    """A request with one batch for one partition and without tagged fields; None for every other request."""
    transactional_id, at = (None, 1) if body[0] == 0 else read_nullable_string(body, 0, True)
    acks, timeout_ms, topics, name_bytes = _ONE_REQUEST.unpack_from(body, at)
    name: str | None = None
    topic_id: bytes | None = None
    # An id has no length in front.
    begin = at + _ONE_REQUEST.size
    at = begin - 1 + (UUID_BYTES if version >= TOPIC_IDS_FROM else name_bytes)
    if topics != 2 or at + _ONE_PARTITION.size >= len(body):
        return None
    if version >= TOPIC_IDS_FROM:
        topic_id = bytes(body[begin - 1 : at])
    elif 0 < name_bytes < 0x80:
        name = str(body[begin:at], "utf-8")
    else:
        return None
    partitions, index = _ONE_PARTITION.unpack_from(body, at)
    if partitions != 2:
        return None
    records_bytes, at = read_unsigned_varint(body, at + _ONE_PARTITION.size)
    end = at + records_bytes - 1
    if records_bytes == 0 or end + len(_NO_TAGGED_FIELDS) != len(body) or bytes(body[end:]) != _NO_TAGGED_FIELDS:
        return None
    topic = _new(ProduceTopic, (name, topic_id, [(index, body[at:end])]))
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, [topic]))


def _decode_flexible(body: memoryview, version: int) -> Steps[ProduceRequest]:
    # The one-byte lengths of the usual topic are read here without a call for each, which halves the time.
    size = len(body)
    transactional_id, at = read_nullable_string(body, 0, True)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(body, at)
    topic_count, at = read_length(body, at + 6, True)
    budget = PARTITIONS_PER_REQUEST_MAX - topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name: str | None = None
        topic_id: bytes | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id, at = read_uuid(body, at)
        else:
            end = at + body[at]
            if at < end < size and end - at < 0x80:
                name = str(body[at + 1 : end], "utf-8")
                at = end
            else:
                name, at = read_string(body, at, True)
        partition_count = body[at]
        if 0 < partition_count < 0x80:
            partition_count -= 1
            at += 1
        else:
            partition_count, at = read_length(body, at, True)
        budget -= partition_count
        if budget < 0:
            raise ProtocolError(f"more than {PARTITIONS_PER_REQUEST_MAX} topics and partitions in one request")
        partitions: list[tuple[int, memoryview | None]] = []
        for number in range(partition_count):
            if number % _AT_ONCE == 0:
                yield min(partition_count - number, _AT_ONCE)
            index = INT32.unpack_from(body, at)[0]
            records_bytes = body[at + 4]
            if records_bytes < 0x80:
                at += 5
            else:
                records_bytes, at = read_unsigned_varint(body, at + 4)
            if records_bytes == 0:
                partitions.append((index, None))
            else:
                end = at + records_bytes - 1
                if end > size:
                    raise ProtocolError(f"records of {records_bytes - 1} bytes where {size - at} bytes are left")
                partitions.append((index, body[at:end]))
                at = end
            at = at + 1 if body[at] == 0 else skip_tagged_fields(body, at)
        at = at + 1 if body[at] == 0 else skip_tagged_fields(body, at)
        yield 1
        topics.append(_new(ProduceTopic, (name, topic_id, partitions)))
    if body[at] != 0:
        skip_tagged_fields(body, at)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _decode_legacy(body: memoryview) -> Steps[ProduceRequest]:
    transactional_id, at = read_nullable_string(body, 0, False)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(body, at)
    topic_count, at = read_length(body, at + 6, False)
    budget = PARTITIONS_PER_REQUEST_MAX - topic_count
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, at = read_string(body, at, False)
        partition_count, at = read_length(body, at, False)
        budget -= partition_count
        if budget < 0:
            raise ProtocolError(f"more than {PARTITIONS_PER_REQUEST_MAX} topics and partitions in one request")
        partitions: list[tuple[int, memoryview | None]] = []
        for number in range(partition_count):
            if number % _AT_ONCE == 0:
                yield min(partition_count - number, _AT_ONCE)
            index = INT32.unpack_from(body, at)[0]
            records_bytes, at = read_nullable_length(body, at + 4, False)
            if records_bytes < 0:
                partitions.append((index, None))
            else:
                partitions.append((index, body[at : at + records_bytes]))
                at += records_bytes
        yield 1
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_response(
    version: int, correlation_id: int, topics: Sequence[ProduceTopicAnswer], throttle_ms: int = 0
) -> bytes:
    """The whole response, with the frame's size and the response header."""
    return finish(encode_response_in_steps(version, correlation_id, topics, throttle_ms))


def encode_response_in_steps(
    version: int, correlation_id: int, topics: Sequence[ProduceTopicAnswer], throttle_ms: int = 0
) -> Steps[bytes]:
    """The same, some partitions at a time."""
    if version >= FLEXIBLE_FROM and len(topics) == 1:
        name, topic_id, answers = topics[0]
        if len(answers) == 1:
            answer = answers[0]
            if not answer[5] and answer[6] is None:
                encoded = _encode_one(version, correlation_id, name, topic_id, answer, throttle_ms)
                if encoded is not None:
                    return encoded
    body = yield from _encode_body(version, topics, throttle_ms)
    return response_prefix(PRODUCE, version, correlation_id, len(body)) + body


def _encode_one(
    version: int,
    correlation_id: int,
    name: str | None,
    topic_id: bytes | None,
    answer: ProducePartitionAnswer,
    throttle_ms: int,
) -> bytes | None:
    """The answer for one partition without messages; None if the name is too long for a one-byte length."""
    partition, error_code, base_offset, log_append_time_ms, log_start_offset, _, _ = answer
    # Two arrays of one (their length plus one), no record errors, no message, no tagged fields.
    tail = _ONE_TAIL.pack(
        2, partition, error_code, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, throttle_ms, 0
    )
    if version >= TOPIC_IDS_FROM:
        assert topic_id is not None
        head = _ONE_HEAD_BY_ID.pack(_ONE_HEAD_BY_ID.size - SIZE_BYTES + 16 + len(tail), correlation_id, 0, 2)
        return head + topic_id + tail
    assert name is not None
    encoded = name.encode()
    size = len(encoded)
    if size > _NAME_BYTES_IN_ONE_MAX:
        return None
    head = _ONE_HEAD.pack(_ONE_HEAD.size - SIZE_BYTES + size + len(tail), correlation_id, 0, 2, size + 1)
    return head + encoded + tail


def _encode_body(version: int, topics: Sequence[ProduceTopicAnswer], throttle_ms: int) -> Steps[bytearray]:
    flexible = version >= FLEXIBLE_FROM
    body = bytearray(length(len(topics), flexible))
    for name, topic_id, answers in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None
            body += topic_id
        else:
            body += nullable_string(name, flexible)
        body += length(len(answers), flexible)
        for answer in answers:
            partition, error_code, base_offset, log_append_time_ms, log_start_offset, record_errors, message = answer
            if version >= 5:
                body += PARTITION_FROM_5.pack(partition, error_code, base_offset, log_append_time_ms, log_start_offset)
            else:
                body += _PARTITION_FROM_3.pack(partition, error_code, base_offset, log_append_time_ms)
            if version >= RECORD_ERRORS_FROM:
                body += length(len(record_errors), flexible)
                for batch_index, record_message in record_errors:
                    body += INT32.pack(batch_index) + nullable_string(record_message, flexible)
                    if flexible:
                        body.append(0)
                body += nullable_string(message, flexible)
            if flexible:
                body.append(0)
            yield 1 + len(record_errors)
        if flexible:
            body.append(0)
        yield 1
    body += INT32.pack(throttle_ms)
    if flexible:
        body.append(0)
    return body
