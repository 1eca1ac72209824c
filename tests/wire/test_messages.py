"""The messages: one piece of code answers every version, and a slip is found."""

from typing import Any

import pytest

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import kafka
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import parse_request_header, parse_response_header
from semel.wire.message import NO_ID, Response, Struct, field
from semel.wire.messages import encode_response
from semel.wire.reader import ELEMENTS_PER_MESSAGE_MAX, read_message
from semel.wire.steps import finish
from semel.wire.versions import API_VERSIONS, CREATE_TOPICS, METADATA
from semel.wire.writer import write_message

TOPIC_ID = bytes(range(16))
OLD_TOPIC = kafka.offset_fetch.OffsetFetchResponseTopic(name="orders", partitions=())


def a_metadata_answer() -> dict[str, object]:
    partition = {
        "partition_index": 0,
        "leader_id": 0,
        "leader_epoch": 0,
        "replica_nodes": [0],
        "isr_nodes": [0],
        "offline_replicas": [],
    }
    return {
        "throttle_time_ms": 5,
        "brokers": ({"node_id": number, "host": "127.0.0.1", "port": 9092} for number in range(2)),
        "cluster_id": "semel",
        "controller_id": 0,
        "topics": [{"name": "orders", "topic_id": TOPIC_ID, "error_code": 3, "partitions": [partition]}],
    }


def answered(api_key: int, version: int, **values: object) -> Any:
    """An answer as a client reads it."""
    frame = messages.encode_response(api_key, version, 7, values)
    correlation_id, body = parse_response_header(api_key, version, frame[4:])
    assert correlation_id == 7
    return messages.decode_response(api_key, version, bytearray(frame[4 + body :]))


def decoded(response: Response, version: int) -> Any:
    """What a client reads of this response."""
    frame = encode_response(response, version, 7)
    _, body = parse_response_header(response.KEY, version, frame[4:])
    return messages.decode_response(response.KEY, version, frame[4 + body :])


@pytest.mark.parametrize("version", APIS[METADATA].served)
def test_one_answer_fits_every_version(version: int) -> None:
    answer = answered(METADATA, version, **a_metadata_answer())
    assert [(broker.node_id, broker.port) for broker in answer.brokers] == [(0, 9092), (1, 9092)]
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert topic.partitions[0].isr_nodes == (0,)


def test_plain_values_are_all_that_an_answer_takes() -> None:
    entity = answered(
        METADATA,
        13,
        throttle_time_ms=5,
        brokers=[],
        topics=[
            {"name": "a", "topic_id": TOPIC_ID, "error_code": ErrorCode.UNKNOWN_TOPIC_ID, "partitions": []},
            {"name": "b", "topic_id": NO_ID, "partitions": []},
        ],
    )
    assert entity.throttle_time_ms == 5
    assert entity.error_code == 0
    assert [topic.error_code for topic in entity.topics] == [100, 0]
    assert [topic.topic_id for topic in entity.topics] == [TOPIC_ID, NO_ID]


def test_a_request_comes_back_with_its_header() -> None:
    entity = messages.build_request(CREATE_TOPICS, 7, topics=[], timeout_ms=1234, validate_only=True)
    frame = messages.encode_request(CREATE_TOPICS, 7, 9, "cli", entity)
    header = parse_request_header(frame[4:])
    assert header[:4] == (CREATE_TOPICS, 7, 9, "cli")
    decoded = messages.decode_request(CREATE_TOPICS, 7, frame[4 + header.body :])
    assert decoded == entity
    assert decoded.timeout_ms == 1234


def test_a_field_that_a_version_lacks_is_not_written_and_has_its_default_when_it_is_read() -> None:
    assert answered(METADATA, 0, **a_metadata_answer()).cluster_id is None
    assert answered(METADATA, 6, **a_metadata_answer()).topics[0].topic_id == NO_ID
    # One that only old versions have, in the newest.
    response = kafka.offset_fetch.OffsetFetchResponse(groups=[], topics=[OLD_TOPIC], error_code=1)
    assert decoded(response, 9) == kafka.offset_fetch.OffsetFetchResponse(groups=())
    assert decoded(response, 7) == kafka.offset_fetch.OffsetFetchResponse(topics=(OLD_TOPIC,), error_code=1)


def test_a_field_that_no_version_has_is_a_slip() -> None:
    with pytest.raises(TypeError, match="topicz"):
        kafka.list_offsets.ListOffsetsResponse(topicz=[], topics=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        kafka.list_offsets.ListOffsetsResponse(topics=[]).topicz = []  # type: ignore[attr-defined]


def test_a_field_of_every_version_that_is_left_out_is_a_slip() -> None:
    with pytest.raises(TypeError, match="'topics'"):
        kafka.list_offsets.ListOffsetsResponse()  # type: ignore[call-arg]


def test_a_message_shows_its_fields_and_is_equal_to_one_with_the_same() -> None:
    one, other = (kafka.metadata.MetadataRequestTopic(name=name) for name in "ab")
    assert repr(one) == f"MetadataRequestTopic(topic_id={NO_ID!r}, name='a')"
    assert one == kafka.metadata.MetadataRequestTopic(name="a")
    assert one not in (other, "a", kafka.describe_topic_partitions.TopicRequest(name="a"))


def test_an_api_that_kafka_does_not_have_has_no_messages() -> None:
    with pytest.raises(AttributeError, match="no API nonsense"):
        _ = kafka.nonsense


def test_bytes_behind_a_message_are_ignored_as_apache_kafka_ignores_them() -> None:
    body = messages.encode_request(METADATA, 0, 1, None, messages.build_request(METADATA, 0, topics=[{"name": "t"}]))[
        14:
    ]
    assert messages.decode_request(METADATA, 0, body + b"more") == messages.decode_request(METADATA, 0, body)


# An ApiVersions answer without APIs, up to its tagged fields.
WITHOUT_APIS = b"\0\0" + b"\1" + bytes(4)
EPOCH_TAG = 1


def tagged(*fields: tuple[int, int, bytes]) -> bytes:
    """Tagged fields, each with its tag, the size that it announces, and its bytes."""
    return bytes([len(fields)]) + b"".join(bytes([tag, size]) + value for tag, size, value in fields)


def test_a_tagged_field_takes_what_it_announces_and_an_unknown_one_is_passed_over() -> None:
    body = WITHOUT_APIS + tagged((EPOCH_TAG, 8, (7).to_bytes(8)), (9, 3, b"new"))
    assert messages.decode_response(API_VERSIONS, 3, body).finalized_features_epoch == 7
    for fields, said in (
        (tagged((EPOCH_TAG, 9, bytes(9))), "takes 8 bytes and announced 9"),
        (tagged((EPOCH_TAG, 7, bytes(8))), "takes 8 bytes and announced 7"),
        (tagged((9, 4, b"new")), "a tagged field of 4 bytes where 3 bytes are left"),
    ):
        with pytest.raises(ProtocolError, match=said):
            messages.decode_response(API_VERSIONS, 3, WITHOUT_APIS + fields)


def test_tagged_fields_count_as_elements_of_their_message() -> None:
    """A struct has few of them, and a message very many structs."""
    api = bytes(6) + tagged(*[(9, 0, b"")] * 100)
    count = ELEMENTS_PER_MESSAGE_MAX // 101 + 1
    apis = bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7]) + api * count
    with pytest.raises(ProtocolError, match=f"more than {ELEMENTS_PER_MESSAGE_MAX} elements"):
        messages.decode_response(API_VERSIONS, 3, b"\0\0" + apis + bytes(4) + tagged())


def test_a_message_that_is_no_record_data_is_bounded() -> None:
    with pytest.raises(ProtocolError, match="larger than"):
        messages.decode_request(METADATA, 0, bytes(messages.BODY_BYTES_MAX + 1))


class Told(Struct):
    text: str | None = field("string", null_since=1, null_until=3, default="")


@pytest.mark.parametrize(("version", "is_nullable"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_text_may_be_missing_in_those_versions_alone_that_say_so(version: int, is_nullable: bool) -> None:
    missing = b"\xff\xff"
    if is_nullable:
        assert finish(read_message(Told, version, False, missing)) == Told(text=None)
        assert finish(write_message(Told(text=None), version, False)) == missing
    else:
        with pytest.raises(ProtocolError):
            finish(read_message(Told, version, False, missing))
