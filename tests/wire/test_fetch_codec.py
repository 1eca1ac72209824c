"""Fetch against the general codec, whose oracle is kio: every version, both directions, byte for byte."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import fetch
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import parse_response_header
from semel.wire.messages import encode_response_body
from semel.wire.versions import FETCH

VERSIONS = APIS[FETCH].served

int8s = st.integers(-(2**7), 2**7 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("n" * 127) | st.just("n" * 300)
ids = st.binary(min_size=16, max_size=16)
replica_states = st.none() | st.fixed_dictionaries({"replica_id": int32s, "replica_epoch": int64s})

partitions = st.builds(fetch.FetchPartition, int32s, int64s, int32s, int32s, int32s)
topics = st.lists(
    st.builds(fetch.FetchTopic, names, ids, st.lists(st.tuples(partitions, int64s), max_size=3)), max_size=3
)
forgotten = st.lists(st.builds(fetch.ForgottenTopic, names, ids, st.lists(int32s, max_size=3)), max_size=2)

record_buffers = st.lists(st.binary(max_size=20) | st.just(b"r" * 127) | st.just(memoryview(b"r" * 20_000)), max_size=3)
partition_answers = st.builds(
    fetch.FetchPartitionAnswer,
    int32s,
    st.sampled_from(ErrorCode).map(int),
    int64s,
    int64s,
    int64s,
    st.none() | st.lists(st.tuples(int64s, int64s), max_size=2),
    record_buffers,
    int32s,
)
answers = st.lists(st.tuples(names, ids, st.lists(partition_answers, max_size=3)), max_size=3)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(
    sizes=st.tuples(int32s, int32s, int32s, int8s),
    session=st.tuples(int32s, int32s),
    topics=topics,
    forgotten=forgotten,
    rack_id=names,
    cluster_id=st.none() | names,
    replica_state=replica_states,
    high_watermark=int64s,
)
def test_a_request_means_what_the_general_codec_means_by_it(
    version: int,
    sizes: tuple[int, int, int, int],
    session: tuple[int, int],
    topics: list[Any],
    forgotten: list[fetch.ForgottenTopic],
    rack_id: str,
    cluster_id: str | None,
    replica_state: dict[str, int] | None,
    high_watermark: int,
) -> None:
    tagged: dict[str, object] = {}
    if replica_state is not None:
        tagged["replica_state"] = replica_state
    if cluster_id is not None:
        tagged["cluster_id"] = cluster_id
    entity = messages.build_request(
        FETCH,
        version,
        replica_id=-1,
        max_wait_ms=sizes[0],
        min_bytes=sizes[1],
        max_bytes=sizes[2],
        isolation_level=sizes[3],
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            {
                "topic": name,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition": partition.partition,
                        "current_leader_epoch": partition.current_leader_epoch,
                        "fetch_offset": partition.fetch_offset,
                        "last_fetched_epoch": partition.last_fetched_epoch,
                        "log_start_offset": log_start_offset,
                        "partition_max_bytes": partition.bytes_max,
                        "high_watermark": high_watermark,
                    }
                    for partition, log_start_offset in partitions
                ],
            }
            for name, topic_id, partitions in topics
        ],
        forgotten_topics_data=[
            {"topic": name, "topic_id": topic_id, "partitions": partitions} for name, topic_id, partitions in forgotten
        ],
        rack_id=rack_id,
        **tagged,
    )
    by_id = version >= 13
    assert fetch.decode_request(general_body(version, entity), version) == fetch.FetchRequest(
        *sizes,
        *(session if version >= 7 else (0, -1)),
        [
            fetch.FetchTopic(
                None if by_id else name,
                topic_id if by_id else None,
                [
                    partition._replace(
                        current_leader_epoch=partition.current_leader_epoch if version >= 9 else -1,
                        last_fetched_epoch=partition.last_fetched_epoch if version >= 12 else -1,
                    )
                    for partition, _ in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        [
            fetch.ForgottenTopic(None if by_id else name, topic_id if by_id else None, partitions)
            for name, topic_id, partitions in forgotten
        ]
        if version >= 7
        else [],
        rack_id if version >= 11 else "",
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(
    topics=answers,
    error_code=st.sampled_from(ErrorCode).map(int),
    session_id=int32s,
    throttle_ms=int32s,
    correlation_id=int32s,
)
def test_a_response_is_byte_for_byte_what_the_general_codec_writes(
    version: int,
    topics: Sequence[fetch.FetchTopicAnswer],
    error_code: int,
    session_id: int,
    throttle_ms: int,
    correlation_id: int,
) -> None:
    values = {
        "throttle_time_ms": throttle_ms,
        "error_code": error_code,
        "session_id": session_id,
        "responses": [
            {
                "topic": name,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": answer.partition,
                        "error_code": answer.error_code,
                        "high_watermark": answer.high_watermark,
                        "last_stable_offset": answer.last_stable_offset,
                        "log_start_offset": answer.log_start_offset,
                        "aborted_transactions": None
                        if answer.aborted_transactions is None
                        else [
                            {"producer_id": producer_id, "first_offset": first_offset}
                            for producer_id, first_offset in answer.aborted_transactions
                        ],
                        "preferred_read_replica": answer.preferred_read_replica,
                        "records": b"".join(answer.records),
                    }
                    for answer in partition_answers
                ],
            }
            for name, topic_id, partition_answers in topics
        ],
    }
    ours = b"".join(fetch.encode_response(version, correlation_id, error_code, session_id, topics, throttle_ms))
    assert ours == messages.encode_response(FETCH, version, correlation_id, values)
    frame = memoryview(ours)[4:]
    announced, body_at = parse_response_header(FETCH, version, frame)
    assert announced == correlation_id
    assert encode_response_body(messages.decode_response(FETCH, version, frame[body_at:]), version) == frame[body_at:]


@pytest.mark.parametrize("version", VERSIONS)
def test_record_buffers_go_out_as_they_are(version: int) -> None:
    buffers = [memoryview(bytearray(b"first")), b"second"]
    answer = fetch.FetchPartitionAnswer(0, 0, 7, 7, 0, None, buffers)
    sent = fetch.encode_response(version, 1, 0, 0, [("t", bytes(16), [answer, answer])])
    assert sum(buffer is buffers[0] for buffer in sent) == 2
    assert sum(buffer is buffers[1] for buffer in sent) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cannot_name_more_partitions_than_the_limit(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1}
    entity = messages.build_request(
        FETCH,
        version,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        isolation_level=0,
        topics=[{"topic": "t", "topic_id": bytes(16), "partitions": [partition, partition]}],
        forgotten_topics_data=[],
    )
    monkeypatch.setattr(fetch, "PARTITIONS_PER_REQUEST_MAX", 3)
    assert len(fetch.decode_request(general_body(version, entity), version).topics) == 1
    monkeypatch.setattr(fetch, "PARTITIONS_PER_REQUEST_MAX", 2)
    with pytest.raises(ProtocolError, match="more than 2 topics and partitions"):
        fetch.decode_request(general_body(version, entity), version)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= fetch.SESSIONS_FROM])
def test_a_request_cannot_forget_more_partitions_than_the_limit(version: int) -> None:
    def forgetting(count: int) -> bytes:
        named = {"topic": "t", "topic_id": bytes(16), "partitions": [0] * count}
        sizes = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "isolation_level": 0}
        entity = messages.build_request(FETCH, version, **sizes, topics=[], forgotten_topics_data=[named])
        return general_body(version, entity)

    most = fetch.PARTITIONS_PER_REQUEST_MAX - 1
    assert len(fetch.decode_request(forgetting(most), version).forgotten[0].partitions) == most
    with pytest.raises(ProtocolError, match="topics and partitions in one request"):
        fetch.decode_request(forgetting(most + 1), version)


def general_body(version: int, entity: Any) -> bytes:
    header_bytes = 4 + 10 + (1 if version >= 12 else 0)
    return messages.encode_request(FETCH, version, 0, None, entity)[header_bytes:]
