"""Fetch from the client's side is what the broker's side of it understands, in every version, and the general codec."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plain_messages as messages
from semel.wire import fetch, fetch_client
from semel.wire.errors import ProtocolError
from semel.wire.fetch import FetchPartitionAnswer
from semel.wire.frames import SIZE_BYTES, frame_size, parse_request_header
from semel.wire.versions import FETCH

VERSIONS = range(fetch_client.SPOKEN.min, fetch_client.SPOKEN.max + 1)
ASKED = fetch_client.PartitionFetch(
    topic="payments",
    topic_id=bytes(range(16)),
    partition=3,
    offset=2**40,
    isolation_level=1,
    wait_ms_max=500,
    bytes_min=1,
    bytes_max=50_000_000,
    partition_bytes_max=1_000_000,
)
ANSWER = FetchPartitionAnswer(3, 0, 90, 80, 10, [(7, 20), (8, 30)], (b"records",))


def answered(version: int, *answers: FetchPartitionAnswer, error_code: int = 0) -> bytes:
    topics = [("payments", bytes(16), answers)] if answers else []
    frame = b"".join(fetch.encode_response(version, 5, error_code, 0, topics))
    return frame[SIZE_BYTES:]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_reads_what_the_client_asked(version: int) -> None:
    frame = fetch_client.encode_request(version, 5, "spark", ASKED)
    assert frame_size(frame, 0, 1000) == len(frame) - SIZE_BYTES
    header = parse_request_header(frame[SIZE_BYTES:])
    assert header[:4] == (FETCH, version, 5, "spark")
    request = fetch.decode_request(frame[SIZE_BYTES + header.body :], version)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, topic.topic_id) == (("payments", None) if version < 13 else (None, ASKED.topic_id))
    assert (partition.partition, partition.fetch_offset, partition.bytes_max) == (3, 2**40, 1_000_000)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (-1, -1)
    assert (request.wait_ms_max, request.bytes_min, request.bytes_max) == (500, 1, 50_000_000)
    assert (request.isolation_level, request.session_epoch, request.forgotten) == (1, -1, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_general_codec_reads_all_of_what_the_client_asked(version: int) -> None:
    frame = fetch_client.encode_request(version, 5, "spark", ASKED)[SIZE_BYTES:]
    body = frame[parse_request_header(frame).body :]
    request = messages.decode_request(FETCH, version, body)
    assert len(request.topics) == 1
    again = messages.encode_request(FETCH, version, 5, "spark", request)
    assert again[SIZE_BYTES:] == frame


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_reads_what_the_broker_answers(version: int) -> None:
    found = fetch_client.decode_response(version, answered(version, ANSWER))
    assert bytes(found.records[0]) == b"records"
    log_start = 10 if version >= 5 else -1
    assert found._replace(records=()) == ANSWER._replace(records=(), log_start_offset=log_start)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_records_and_no_aborted_transactions_are_empty(version: int) -> None:
    found = fetch_client.decode_response(version, answered(version, FetchPartitionAnswer(3, 6, -1)))
    assert (found.error_code, list(found.records), found.aborted_transactions) == (6, [], [])


def test_an_error_of_the_whole_request_is_the_partitions() -> None:
    assert fetch_client.decode_response(12, answered(12, error_code=70)).error_code == 70


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_about_something_else_is_none(version: int) -> None:
    with pytest.raises(ProtocolError, match="0 topics"):
        fetch_client.decode_response(version, answered(version))
    with pytest.raises(ProtocolError, match="2 partitions"):
        fetch_client.decode_response(version, answered(version, ANSWER, ANSWER))


@given(st.sampled_from(VERSIONS), st.data())
def test_any_bytes_are_read_or_refused(version: int, data: st.DataObject) -> None:
    whole = bytearray(answered(version, ANSWER))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    frame = whole[: data.draw(st.integers(0, len(whole)))]
    with suppress(ProtocolError):
        fetch_client.decode_response(version, frame)
