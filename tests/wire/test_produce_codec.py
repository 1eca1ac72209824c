"""Produce against the general codec, whose oracle is kio: every version, both directions, byte for byte."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import produce
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import parse_response_header
from semel.wire.messages import encode_response_body
from semel.wire.primitives import MALFORMED
from semel.wire.steps import finish
from semel.wire.versions import PRODUCE

VERSIONS = APIS[PRODUCE].served

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("n" * 126) | st.just("n" * 127) | st.just("n" * 300)
ids = st.binary(min_size=16, max_size=16)
records = st.none() | st.binary(max_size=20) | st.just(b"r" * 126) | st.just(b"r" * 127) | st.just(b"r" * 20_000)
of_one_partition = st.tuples(names, ids, st.lists(st.tuples(int32s, records), min_size=1, max_size=1))

requests = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | names,
        "acks": int16s,
        "timeout": int32s,
        "topics": st.lists(st.tuples(names, ids, st.lists(st.tuples(int32s, records), max_size=3)), max_size=3)
        | st.lists(of_one_partition, min_size=1, max_size=1)
        | st.just([("t", bytes(16), [(index, None) for index in range(200)])]),
    }
)

partition_answers = st.builds(
    produce.ProducePartitionAnswer,
    int32s,
    st.sampled_from(ErrorCode).map(int),
    int64s,
    st.integers(-1, 2**41),
    int64s,
    st.lists(st.tuples(int32s, st.none() | names), max_size=2),
    st.none() | names,
)
one_success = st.tuples(int32s, st.just(0), int64s, st.just(-1), int64s).map(
    lambda fields: produce.ProducePartitionAnswer(*fields)
)
answers = st.lists(st.tuples(names, ids, st.lists(partition_answers, max_size=3)), max_size=3) | st.tuples(
    st.tuples(names, ids, one_success.map(lambda answer: [answer]))
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(request=requests)
def test_a_request_means_what_the_general_codec_means_by_it(version: int, request: dict[str, Any]) -> None:
    entity = messages.build_request(
        PRODUCE,
        version,
        transactional_id=request["transactional_id"],
        acks=request["acks"],
        timeout_ms=request["timeout"],
        topic_data=[
            {
                "name": name,
                "topic_id": topic_id,
                "partition_data": [{"index": index, "records": data} for index, data in partitions],
            }
            for name, topic_id, partitions in request["topics"]
        ],
    )
    body = general_body(version, entity)
    decoded = produce.decode_request(body, version)
    by_id = version >= 13
    assert decoded == produce.ProduceRequest(
        request["transactional_id"],
        request["acks"],
        request["timeout"],
        [
            produce.ProduceTopic(None if by_id else name, topic_id if by_id else None, partitions)
            for name, topic_id, partitions in request["topics"]
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(topics=answers, throttle_ms=int32s, correlation_id=int32s)
def test_a_response_is_byte_for_byte_what_the_general_codec_writes(
    version: int, topics: Sequence[produce.ProduceTopicAnswer], throttle_ms: int, correlation_id: int
) -> None:
    values = {
        "throttle_time_ms": throttle_ms,
        "responses": [
            {
                "name": name,
                "topic_id": topic_id,
                "partition_responses": [
                    {
                        "index": answer.partition,
                        "error_code": answer.error_code,
                        "base_offset": answer.base_offset,
                        "log_append_time_ms": answer.log_append_time_ms,
                        "log_start_offset": answer.log_start_offset,
                        "record_errors": [
                            {"batch_index": index, "batch_index_error_message": message}
                            for index, message in answer.record_errors
                        ],
                        "error_message": answer.error_message,
                    }
                    for answer in partition_answers
                ],
            }
            for name, topic_id, partition_answers in topics
        ],
    }
    ours = produce.encode_response(version, correlation_id, topics, throttle_ms)
    assert ours == messages.encode_response(PRODUCE, version, correlation_id, values)
    frame = memoryview(ours)[4:]
    announced, body_at = parse_response_header(PRODUCE, version, frame)
    assert announced == correlation_id
    assert encode_response_body(messages.decode_response(PRODUCE, version, frame[body_at:]), version) == frame[body_at:]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views_of_the_frame_and_no_copies(version: int) -> None:
    frame = bytearray(a_body(version, b"record bytes"))
    request = produce.decode_request(memoryview(frame), version)
    (_, view) = request.topics[0].partitions[0]
    position = frame.index(b"record bytes")
    frame[position : position + 6] = b"RECORD"
    assert bytes(view) == b"RECORD bytes"


@pytest.mark.parametrize("version", [9, 12])
def test_tagged_fields_that_nobody_knows_are_skipped(version: int) -> None:
    plain = a_body(version, b"abc")
    tagged = plain[:-3] + b"\x01\x63\x02xy" + b"\x02\x00\x01z\xc8\x01\x00" + b"\x01\x07\x00"
    assert produce.decode_request(tagged, version) == produce.decode_request(plain, version)


@pytest.mark.parametrize("version", [9, 12, 13])
@settings(max_examples=150)
@given(
    name=names,
    batch=records,
    transactional_id=st.none() | names,
    damage=st.lists(st.tuples(st.integers(0, 60) | st.integers(-5, -1), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 40),
    more=st.binary(max_size=3),
)
def test_the_short_way_for_one_batch_leads_where_the_long_way_does(
    version: int,
    name: str,
    batch: bytes | None,
    transactional_id: str | None,
    damage: list[tuple[int, int]],
    cut: int,
    more: bytes,
) -> None:
    whole = bytearray(a_body(version, batch, name=name, transactional_id=transactional_id))
    for place, value in damage:
        if -len(whole) <= place < len(whole):
            whole[place] = value
    for body in (memoryview(whole), memoryview(bytes(whole[: len(whole) - cut]) + more)):
        try:
            expected = finish(produce._decode_flexible(body, version))
        except (ProtocolError, *MALFORMED):
            with pytest.raises(ProtocolError):
                produce.decode_request(body, version)
        else:
            assert produce.decode_request(body, version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cannot_name_more_partitions_than_the_limit(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_PER_REQUEST_MAX", 3)
    body = a_body(version, b"", b"")
    assert len(produce.decode_request(body, version).topics) == 1
    monkeypatch.setattr(produce, "PARTITIONS_PER_REQUEST_MAX", 2)
    with pytest.raises(ProtocolError, match="more than 2 topics and partitions"):
        produce.decode_request(body, version)


def a_body(version: int, *batches: bytes | None, name: str = "orders", transactional_id: str | None = None) -> bytes:
    partitions = [{"index": 3 + place, "records": data} for place, data in enumerate(batches)]
    topic = {"name": name, "topic_id": b"i" * 16, "partition_data": partitions}
    entity = messages.build_request(
        PRODUCE, version, transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic]
    )
    return general_body(version, entity)


def general_body(version: int, entity: Any) -> bytes:
    prefix_bytes = 4 + 4 + 4 + 2 + (1 if version >= 9 else 0)
    return messages.encode_request(PRODUCE, version, 0, None, entity)[prefix_bytes:]
