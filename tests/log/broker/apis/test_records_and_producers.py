"""Deleting records, producers' ids, and looking at what a partition holds, who wrote to it, and the broker itself."""

from typing import Any

import pytest

import plain_messages as messages
import semel
from asking import Asker, ConnectionEnded, at
from semel.log.broker.apis import APIS
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.frames import parse_response_header, request_prefix
from semel.wire.versions import (
    API_VERSIONS,
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)

NOT_ASKED = -(2**31)


def delete_below(ask: Asker, offset: int, *, topic: str = "orders", partition: int = 0) -> tuple[int, int]:
    """Error code and low watermark of the answer."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    (answer,) = ask(DELETE_RECORDS, topics=topics, timeout_ms=1000).topics[0].partitions
    return int(answer.error_code), answer.low_watermark


def end_of_epoch(
    ask: Asker, epoch: int, *, topic: str = "orders", partition: int = 0, current: int = -1
) -> tuple[int, int, int]:
    """Error code, epoch and end offset of the answer."""
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = ask(OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=[{"topic": topic, "partitions": [asked]}])
    (end,) = answer.topics[0].partitions
    return int(end.error_code), end.leader_epoch, end.end_offset


def producers(ask: Asker, *, topic: str = "orders", partitions: tuple[int, ...] = (0,)) -> Any:
    asked = [{"name": topic, "partition_indexes": partitions}]
    return ask(DESCRIBE_PRODUCERS, topics=asked).topics[0].partitions


def new_producer(ask: Asker, *, transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1) -> Any:
    return ask(
        INIT_PRODUCER_ID,
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def log_dir(ask: Asker, topics: list[dict[str, object]] | None) -> dict[str, dict[int, int]]:
    """The size of each partition."""
    (described,) = ask(DESCRIBE_LOG_DIRS, topics=topics).results
    return {
        topic.name: {partition.partition_index: partition.partition_size for partition in topic.partitions}
        for topic in described.topics
    }


def test_records_below_an_offset_are_deleted_and_never_come_back(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders")
    ask.produce("orders", at(1, 2, 3))
    assert delete_below(ask, 2) == (0, 2)
    assert delete_below(ask, 1) == (0, 2)
    assert delete_below(ask, 0) == (0, 2)
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert delete_below(again, 0) == (0, 2)
    assert delete_below(again, -1) == (0, 3)
    assert again.produce("orders", at(4)) == 3
    again.close()


def test_all_records_of_an_empty_partition_can_be_deleted(ask: Asker) -> None:
    ask.create("orders")
    assert delete_below(ask, -1) == (0, 0)
    assert delete_below(ask, 0) == (0, 0)


def test_what_is_not_there_cannot_be_deleted(ask: Asker) -> None:
    ask.create("orders")
    ask.produce("orders", at(1, 2, 3))
    assert delete_below(ask, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_below(ask, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_below(ask, 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_below(ask, 0, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_the_one_epoch_ends_where_the_log_ends(ask: Asker) -> None:
    ask.create("orders")
    assert end_of_epoch(ask, 0) == (0, 0, 0)
    ask.produce("orders", at(1, 2, 3))
    assert end_of_epoch(ask, 0) == (0, 0, 3)
    assert end_of_epoch(ask, 0, current=0) == (0, 0, 3)
    assert end_of_epoch(ask, 1) == (0, -1, -1)
    assert end_of_epoch(ask, -1) == (0, -1, -1)
    assert end_of_epoch(ask, 0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(ask, 0, current=-3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(ask, 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of_epoch(ask, 0, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_every_producer_gets_an_id_of_its_own(ask: Asker) -> None:
    answers = [new_producer(ask) for _ in range(5)]
    assert len({answer.producer_id for answer in answers}) == 5
    assert all((answer.error_code, answer.producer_epoch) == (0, 0) for answer in answers)


def test_an_id_without_its_epoch_is_refused(ask: Asker) -> None:
    for answer in (
        new_producer(ask, producer_id=5),
        new_producer(ask, epoch=5),
        new_producer(ask, transactional_id=""),
    ):
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert new_producer(ask, producer_id=5, epoch=5).producer_id != 5


def test_a_partition_shows_who_wrote_to_it_and_how_far(ask: Asker) -> None:
    ask.create("orders", 2)
    first, second = (new_producer(ask).producer_id for _ in range(2))
    ask.produce("orders", at(1, 2, 3), producer_id=first, producer_epoch=0, base_sequence=0)
    ask.produce("orders", at(4), producer_id=second, producer_epoch=0, base_sequence=0)
    ask.produce("orders", at(5))
    written, empty, missing = producers(ask, partitions=(0, 1, 9))
    assert [(one.producer_id, one.producer_epoch, one.last_sequence) for one in written.active_producers] == [
        (second, 0, 0),
        (first, 0, 2),
    ]
    assert all(one.current_txn_start_offset == one.coordinator_epoch == -1 for one in written.active_producers)
    assert (empty.error_code, empty.active_producers) == (0, ())
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(ask, topic="none")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(ask, topic="..")[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_producers_in_one_answer_are_bounded() -> None:
    assert Limits().producers_per_answer_max < Limits().producer_states_max
    with semel.broker(limits=Limits(producers_per_answer_max=3)) as broker, Asker(broker.bootstrap) as ask:
        ask.create("orders", 2)
        for partition in range(2):
            for _ in range(2):
                producer_id = new_producer(ask).producer_id
                ask.produce("orders", at(1), partition, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert [len(one.active_producers) for one in producers(ask, partitions=(0, 0, 1))] == [2, 1]


def test_the_size_of_a_partition_is_what_its_batches_take(ask: Asker) -> None:
    ask.create("orders", 2)
    ask.create("empty")
    assert log_dir(ask, None) == {"orders": {0: 0, 1: 0}, "empty": {0: 0}}
    ask.produce("orders", at(1, 2, 3), partition=1)
    sizes = log_dir(ask, None)["orders"]
    assert sizes[0] == 0 < sizes[1]
    asked = [{"topic": "orders", "partitions": [1, 9, 1]}, {"topic": "none", "partitions": [0]}]
    assert log_dir(ask, asked) == {"orders": {1: sizes[1]}}


def test_the_cluster_is_this_broker(ask: Asker, semel_broker: FaultyBroker) -> None:
    options = {"include_fenced_brokers": False, "include_cluster_authorized_operations": False}
    answer = ask(DESCRIBE_CLUSTER, endpoint_type=1, **options)
    (one,) = answer.brokers
    assert f"{one.host}:{one.port}" == semel_broker.bootstrap
    assert answer.controller_id == one.broker_id == 1
    assert answer.cluster_id == ask(METADATA, 5, topics=[], allow_auto_topic_creation=False).cluster_id
    assert answer.cluster_authorized_operations == NOT_ASKED
    assert ask(DESCRIBE_CLUSTER, endpoint_type=2, **options).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert ask(DESCRIBE_CLUSTER, endpoint_type=3, **options).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_operations_are_told_when_asked_for(ask: Asker) -> None:
    ask.create("orders")
    answer = ask(
        METADATA,
        10,
        topics=[{"name": "orders", "topic_id": bytes(16)}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert answer.cluster_authorized_operations > 0
    assert answer.topics[0].topic_authorized_operations > 0


def test_a_client_learns_which_versions_there_are(ask: Asker) -> None:
    answer = ask(API_VERSIONS, client_software_name="test", client_software_version="1")
    announced = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert announced == {key: api.versions for key, api in APIS.items()}


def test_a_client_from_the_future_learns_how_to_ask_again(ask: Asker) -> None:
    frame = ask.send(request_prefix(API_VERSIONS, 99, 7, "future", 0))
    correlation_id, body = parse_response_header(API_VERSIONS, 0, frame)
    answer = messages.decode_response(API_VERSIONS, 0, frame[body:])
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.max_version) for key in answer.api_keys] == [(API_VERSIONS, 4)]
    assert ask(API_VERSIONS, 0).error_code == 0


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 99), (LIST_OFFSETS, 0), (JOIN_GROUP, 5), (999, 0)])
def test_what_was_not_announced_ends_the_connection(ask: Asker, api_key: int, version: int) -> None:
    with pytest.raises(ConnectionEnded):
        ask.send(request_prefix(api_key, version, 7, "stranger", 4) + bytes(4))
