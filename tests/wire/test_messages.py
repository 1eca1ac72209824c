"""The glue to kio: one piece of code answers every version, and a slip is found."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from semel.log.broker.apis import APIS
from semel.wire import messages
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import parse_request_header, parse_response_header
from semel.wire.reader import ELEMENTS_PER_MESSAGE_MAX
from semel.wire.versions import API_VERSIONS, CREATE_TOPICS, LIST_OFFSETS, METADATA, OFFSET_FETCH

TOPIC_ID = bytes(range(16))


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
        "throttle_time": 5,
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
        throttle_time=5,
        brokers=[],
        topics=[
            {"name": "a", "topic_id": TOPIC_ID, "error_code": ErrorCode.UNKNOWN_TOPIC_ID, "partitions": []},
            {"name": "b", "topic_id": messages.NO_TOPIC_ID, "partitions": []},
        ],
    )
    assert entity.throttle_time == timedelta(milliseconds=5)
    assert entity.error_code == 0
    assert [topic.error_code for topic in entity.topics] == [100, 0]
    assert [topic.topic_id for topic in entity.topics] == [UUID(bytes=TOPIC_ID), None]


def test_a_request_comes_back_with_its_header() -> None:
    entity = messages.build_request(CREATE_TOPICS, 7, topics=[], timeout=1234, validate_only=True)
    frame = messages.encode_request(CREATE_TOPICS, 7, 9, "cli", entity)
    header = parse_request_header(frame[4:])
    assert header[:4] == (CREATE_TOPICS, 7, 9, "cli")
    decoded = messages.decode_request(CREATE_TOPICS, 7, frame[4 + header.body :])
    assert decoded == entity
    assert messages.milliseconds(decoded.timeout) == 1234


def test_a_topic_id_is_sixteen_bytes_and_zero_where_there_is_none() -> None:
    assert messages.topic_id_bytes(UUID(bytes=TOPIC_ID)) == TOPIC_ID
    assert messages.topic_id_bytes(None) == bytes(16)


def test_a_field_of_another_version_is_dropped() -> None:
    assert not hasattr(answered(METADATA, 0, **a_metadata_answer()), "cluster_id")
    # One that only old versions have, in the newest.
    assert answered(OFFSET_FETCH, 9, groups=[], topics=[]).groups == ()


def test_a_field_that_no_version_has_is_a_slip() -> None:
    with pytest.raises(TypeError, match="no version of ListOffsetsResponse has a field topicz"):
        answered(LIST_OFFSETS, 7, topicz=[], topics=[])
    with pytest.raises(TypeError, match="no version of ListOffsetsTopicResponse has a field nam"):
        answered(LIST_OFFSETS, 7, topics=[{"nam": "t", "name": "t", "partitions": []}])


def test_a_field_that_is_left_out_and_matters_is_a_slip() -> None:
    with pytest.raises(TypeError, match="'topics'"):
        answered(LIST_OFFSETS, 7)


def test_a_request_of_the_wrong_version_is_not_sent() -> None:
    with pytest.raises(TypeError, match="not the request of API 3 in version 2"):
        messages.encode_request(METADATA, 2, 1, None, messages.build_request(METADATA, 3, topics=None))


def test_a_request_with_a_field_that_no_version_has_is_a_slip() -> None:
    with pytest.raises(TypeError, match="no version of MetadataRequest has a field topicz"):
        messages.build_request(METADATA, 3, topicz=None)


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
