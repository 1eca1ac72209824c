"""Produce from the client's side is what the broker's side of it reads in every version, and the general codec."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain_messages as messages
from semel.wire import produce, produce_client
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import SIZE_BYTES, frame_size, parse_request_header
from semel.wire.produce import ProducePartitionAnswer, ProduceTopic, ProduceTopicAnswer
from semel.wire.produce_client import PartitionBatch, PartitionProduced
from semel.wire.versions import PRODUCE

VERSIONS = range(produce_client.SPOKEN.min, produce_client.SPOKEN.max + 1)
ALL_REPLICAS = -1

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = texts | st.sampled_from(["n" * 126, "n" * 127, "ü" * 200])
batches = st.dictionaries(
    st.tuples(names, int32s),
    st.binary(max_size=20) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 20_000]),
    max_size=6,
)
answers = st.lists(
    st.tuples(
        names,
        st.none(),
        st.lists(
            st.builds(
                ProducePartitionAnswer,
                int32s,
                st.sampled_from(ErrorCode).map(int),
                int64s,
                int64s,
                int64s,
                st.lists(st.tuples(int32s, st.none() | names), max_size=3),
                st.none() | names,
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)


def by_topic(asked: dict[tuple[str, int], bytes]) -> list[tuple[str, list[tuple[int, bytes]]]]:
    topics = list(dict.fromkeys(topic for topic, _ in asked))
    return [(name, [(index, batch) for (topic, index), batch in asked.items() if topic == name]) for name in topics]


def requested(version: int, asked: dict[tuple[str, int], bytes], transactional_id: str | None = None) -> bytes:
    given_batches = [PartitionBatch(*place, memoryview(batch)) for place, batch in asked.items()]
    return produce_client.encode_request(version, 5, "spark", transactional_id, 30_000, given_batches)


def answered(version: int, topics: list[ProduceTopicAnswer]) -> bytes:
    return produce.encode_response(version, 5, topics)[SIZE_BYTES:]


def what_is_heard(version: int, topic: str, answer: ProducePartitionAnswer) -> PartitionProduced:
    of_records = [message for _, message in answer.record_errors if message is not None]
    message = of_records[0] if answer.error_message is None and of_records else answer.error_message
    return PartitionProduced(
        topic, answer.partition, answer.error_code, answer.base_offset, message if version >= 8 else None
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(asked=batches, transactional_id=st.none() | names)
def test_the_broker_reads_what_the_client_asked(
    version: int, asked: dict[tuple[str, int], bytes], transactional_id: str | None
) -> None:
    frame = requested(version, asked, transactional_id)
    assert frame_size(frame, 0, 1_000_000) == len(frame) - SIZE_BYTES
    header = parse_request_header(frame[SIZE_BYTES:])
    assert header[:4] == (PRODUCE, version, 5, "spark")
    request = produce.decode_request(frame[SIZE_BYTES + header.body :], version)
    assert request[:3] == (transactional_id, ALL_REPLICAS, 30_000)
    assert request.topics == [ProduceTopic(name, None, partitions) for name, partitions in by_topic(asked)]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(asked=batches, transactional_id=st.none() | names)
def test_the_general_codec_reads_all_of_what_the_client_asked(
    version: int, asked: dict[tuple[str, int], bytes], transactional_id: str | None
) -> None:
    frame = requested(version, asked, transactional_id)
    body = frame[SIZE_BYTES + parse_request_header(frame[SIZE_BYTES:]).body :]
    request = messages.decode_request(PRODUCE, version, body)
    assert len(request.topic_data) == len(by_topic(asked))
    assert messages.encode_request(PRODUCE, version, 5, "spark", request) == frame


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60)
@given(topics=answers)
def test_the_client_reads_what_the_broker_answers(version: int, topics: list[ProduceTopicAnswer]) -> None:
    heard = [what_is_heard(version, name or "", answer) for name, _, its_answers in topics for answer in its_answers]
    assert produce_client.decode_response(version, answered(version, topics)) == heard


@pytest.mark.parametrize("version", VERSIONS)
def test_the_usual_answer_is_one_offset(version: int) -> None:
    frame = answered(version, [("payments", None, [ProducePartitionAnswer(3, 0, 2**40)])])
    assert produce_client.decode_response(version, frame) == [PartitionProduced("payments", 3, 0, 2**40, None)]


@pytest.mark.parametrize("version", [8, 11])
def test_the_first_record_error_with_a_text_stands_in_for_a_missing_message(version: int) -> None:
    errors = [(0, None), (1, "no key"), (2, "no value")]
    refused = ProducePartitionAnswer(3, ErrorCode.INVALID_RECORD, -1, record_errors=errors)
    frame = answered(version, [("payments", None, [refused, refused._replace(error_message="the batch")])])
    assert [produced.message for produced in produce_client.decode_response(version, frame)] == ["no key", "the batch"]


@pytest.mark.parametrize("version", [9, 10, 11])
def test_tagged_fields_are_skipped_wherever_they_stand(version: int) -> None:
    refused = ProducePartitionAnswer(3, 6, -1, record_errors=[(0, "moved")], error_message="moved")
    plain = answered(version, [("payments", None, [refused])])
    tagged = b"\x02\x00\x02xy\xc8\x01\x00"
    header, record_error, ends = plain[:4], plain.index(b"moved") + 5, plain[-7:]
    assert (plain[4], plain[record_error], ends) == (0, 0, b"\x00\x00" + bytes(4) + b"\x00")
    whole = header + tagged + plain[5:record_error] + tagged + plain[record_error + 1 : -7]
    whole += tagged + tagged + bytes(4) + tagged
    assert produce_client.decode_response(version, whole) == produce_client.decode_response(version, plain)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_ends_too_early_is_refused(version: int) -> None:
    refused = ProducePartitionAnswer(3, 6, -1, record_errors=[(0, "moved")], error_message="moved")
    whole = answered(version, [("payments", None, [refused, refused])])
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            produce_client.decode_response(version, whole[:size])


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(version: int, frame: bytes) -> None:
    with suppress(ProtocolError):
        assert isinstance(produce_client.decode_response(version, frame), list)


@given(st.sampled_from(VERSIONS), st.data())
def test_an_answer_with_changed_bytes_is_read_or_refused(version: int, data: st.DataObject) -> None:
    refused = ProducePartitionAnswer(3, 6, -1, record_errors=[(0, "moved")], error_message="moved")
    whole = bytearray(answered(version, [("payments", None, [refused, refused])]))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        assert isinstance(produce_client.decode_response(version, memoryview(whole)), list)
