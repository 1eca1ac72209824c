"""Offsets at a time or a place: exact, readable, and never below the log start."""

import pytest

from asking import Asker, at
from semel.log.broker.apis.list_offsets import OPENED_BYTES_MAX
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import CODECS, Record
from semel.wire.versions import DELETE_RECORDS, LIST_OFFSETS

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOTHING = (0, -1, -1, -1)


def offset_of(
    ask: Asker, timestamp: int, *, topic: str = "orders", partition: int = 0, epoch: int = -1, version: int = 11
) -> tuple[int, int, int, int]:
    """Error code, offset, timestamp and leader epoch of an answer."""
    asked = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [asked]}]
    answer = ask(LIST_OFFSETS, version, replica_id=-1, isolation_level=0, timeout_ms=1000, topics=topics)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.offset, found.timestamp, found.leader_epoch if version >= 4 else 0


def delete_below(ask: Asker, offset: int) -> None:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = ask(DELETE_RECORDS, topics=topics, timeout_ms=1000)
    assert answer.topics[0].partitions[0].error_code == 0


def test_the_places_that_have_names_are_found(ask: Asker) -> None:
    ask.create("orders")
    ask.produce("orders", at(1000, 5000, 3000))
    ask.produce("orders", at(4000))
    assert offset_of(ask, LATEST) == (0, 4, -1, 0)
    assert offset_of(ask, EARLIEST) == (0, 0, -1, 0)
    assert offset_of(ask, EARLIEST_LOCAL) == (0, 0, -1, 0)
    assert offset_of(ask, MAX_TIMESTAMP) == (0, 1, 5000, 0)
    assert offset_of(ask, LATEST_TIERED) == NOTHING
    assert offset_of(ask, EARLIEST_PENDING_UPLOAD) == NOTHING


def test_an_empty_partition_begins_and_ends_at_zero(ask: Asker) -> None:
    ask.create("orders")
    assert offset_of(ask, LATEST) == (0, 0, -1, 0)
    assert offset_of(ask, EARLIEST) == (0, 0, -1, 0)
    assert offset_of(ask, MAX_TIMESTAMP) == NOTHING
    assert offset_of(ask, 0) == NOTHING


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_gives_the_first_record_that_is_not_earlier(ask: Asker, codec: str) -> None:
    ask.create("orders")
    ask.produce("orders", at(1000, 2000, 3000), codec=codec)
    ask.produce("orders", at(4000, 9000, 5000), codec=codec)
    expected = {
        0: (0, 1000),
        1000: (0, 1000),
        1001: (1, 2000),
        3000: (2, 3000),
        3001: (3, 4000),
        4500: (4, 9000),
        9000: (4, 9000),
    }
    assert {time: offset_of(ask, time)[1:3] for time in expected} == expected
    assert offset_of(ask, 9001) == NOTHING


def test_a_time_is_found_among_many_segments_and_batches(ask: Asker) -> None:
    ask.create("orders", segment_bytes="1024")
    for batch in range(300):
        ask.produce("orders", at(*range(batch * 100, batch * 100 + 30, 10)))
    for time in (0, 5, 10_000, 10_005, 10_020, 10_021, 29_920):
        offset, timestamp = offset_of(ask, time)[1:3]
        assert timestamp >= time
        batch, place = divmod(offset, 3)
        assert timestamp == batch * 100 + place * 10
        assert offset == 0 or timestamp - (10 if place else 80) < time
    assert offset_of(ask, MAX_TIMESTAMP) == (0, 899, 29_920, 0)


def test_what_lies_below_the_log_start_is_not_found(ask: Asker) -> None:
    ask.create("orders")
    ask.produce("orders", at(9000, 1000, 2000))
    ask.produce("orders", at(500, 3000))
    delete_below(ask, 1)
    assert offset_of(ask, EARLIEST) == (0, 1, -1, 0)
    assert offset_of(ask, 0) == (0, 1, 1000, 0)
    assert offset_of(ask, 2500) == (0, 4, 3000, 0)
    delete_below(ask, 3)
    assert offset_of(ask, 0) == (0, 3, 500, 0)
    assert offset_of(ask, MAX_TIMESTAMP) == (0, 4, 3000, 0)


def test_where_the_log_sets_the_time_all_of_a_batch_has_it(ask: Asker) -> None:
    ask.create("orders", message_timestamp_type="LogAppendTime")
    ask.produce("orders", at(1000, 2000))
    _, offset, timestamp, _ = offset_of(ask, 3000)
    assert offset == 0
    assert timestamp > 1_600_000_000_000
    delete_below(ask, 1)
    assert offset_of(ask, 3000) == (0, 1, timestamp, 0)


def test_a_batch_too_large_to_look_through_is_found_at_its_first_record(ask: Asker) -> None:
    ask.create("orders", max_message_bytes="8000000")
    filler = Record(bytes(OPENED_BYTES_MAX), timestamp_ms=1500)
    ask.produce("orders", [*at(1000), filler, *at(2000)])
    ask.produce("orders", [*at(1000), filler, *at(2000)], codec="gzip")
    ask.produce("orders", at(3000))
    assert offset_of(ask, 2000) == (0, 0, 1000, 0)
    delete_below(ask, 3)
    assert offset_of(ask, 2000) == (0, 3, 1000, 0)
    delete_below(ask, 4)
    assert offset_of(ask, 2000)[1] == 4
    assert offset_of(ask, 2001) == (0, 6, 3000, 0)


def test_unknown_topics_partitions_and_epochs_are_told_apart(ask: Asker) -> None:
    ask.create("orders")
    assert offset_of(ask, LATEST, topic="none") == (3, -1, -1, -1)
    assert offset_of(ask, LATEST, partition=1) == (3, -1, -1, -1)
    assert offset_of(ask, LATEST, epoch=0)[0] == 0
    assert offset_of(ask, LATEST, epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert offset_of(ask, LATEST, epoch=-2)[0] == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("place", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10)]
)
def test_a_place_is_not_known_before_its_version(ask: Asker, place: int, version: int) -> None:
    ask.create("orders")
    assert offset_of(ask, place, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert offset_of(ask, place, version=version + 1)[0] == 0
    assert offset_of(ask, -7, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_asked_about_twice_is_refused(ask: Asker) -> None:
    ask.create("orders")
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "orders", "partitions": [asked, asked]}]
    answer = ask(LIST_OFFSETS, replica_id=-1, isolation_level=0, timeout_ms=1000, topics=topics)
    assert [found.error_code for found in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


def test_offsets_are_the_same_after_a_kill(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders")
    ask.produce("orders", at(1000, 2000, 3000))
    delete_below(ask, 1)
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert offset_of(again, EARLIEST) == (0, 1, -1, 0)
    assert offset_of(again, 2500) == (0, 2, 3000, 0)
    assert offset_of(again, LATEST) == (0, 3, -1, 0)
    again.close()
