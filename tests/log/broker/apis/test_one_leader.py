"""A cluster of one leader has nothing to elect, to reassign or to move, and says so as Apache Kafka 4.3.1 does where it
has one broker."""

from typing import Any

import pytest

from asking import Asker
from guarded import DENIED_CLUSTER, GuardedBroker
from semel.log.broker.apis import APIS
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
)

PREFERRED, UNCLEAN = 0, 1
BROKER = 4
SET, DELETE = 0, 1
METADATA_LOG = "__cluster_metadata"


def asked_of(topic: str, *indexes: int) -> dict[str, object]:
    return {"topic": topic, "partitions": indexes}


def elected(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, partition.partition_id, int(partition.error_code))
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    ]


def reassigned(ask: Asker, *wanted: tuple[str, int, list[int] | None], version: int = 1) -> list[int]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for name, index, replicas in wanted
    ]
    fields = {"allow_replication_factor_change": True} if version else {}
    answer = ask(ALTER_PARTITION_REASSIGNMENTS, version, timeout_ms=1000, topics=topics, **fields)
    assert answer.error_code == 0
    assert [(topic.name, topic.partitions[0].partition_index) for topic in answer.responses] == [
        (name, index) for name, index, _ in wanted
    ]
    return [int(topic.partitions[0].error_code) for topic in answer.responses]


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_no_partition_needs_an_election(ask: Asker, kind: int) -> None:
    ask.create("orders", partitions=2)
    asked = [asked_of("orders", 0, 1, 7), asked_of("missing", 0), asked_of("", 0)]
    answer = ask(ELECT_LEADERS, election_type=kind, topic_partitions=asked, timeout_ms=1000)
    unknown, not_needed = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.ELECTION_NOT_NEEDED)
    assert answer.error_code == 0
    assert elected(answer) == [
        *(("orders", 0, not_needed), ("orders", 1, not_needed), ("orders", 7, unknown)),
        *(("missing", 0, unknown), ("", 0, unknown)),
    ]


def test_whoever_asks_for_all_elections_hears_of_none(ask: Asker) -> None:
    ask.create("orders")
    answer = ask(ELECT_LEADERS, election_type=PREFERRED, topic_partitions=None, timeout_ms=1000)
    assert (answer.error_code, elected(answer)) == (0, [])
    assert [topic.topic for topic in answer.replica_election_results] == ["orders"]


def test_an_election_of_an_unknown_type_is_refused_everywhere(ask: Asker) -> None:
    ask.create("orders")
    answer = ask(ELECT_LEADERS, election_type=2, topic_partitions=[asked_of("orders", 0)], timeout_ms=1000)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert elected(answer) == [("orders", 0, int(ErrorCode.INVALID_REQUEST))]


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_may_be_assigned_to_the_broker_that_has_it_and_to_no_other(ask: Asker, version: int) -> None:
    ask.create("orders", partitions=2)
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    wanted = {
        ("orders", 0, (1,)): ErrorCode.NONE,
        ("orders", 1, None): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ("orders", 7, (1,)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 7, None): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0, (1,)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", 0, ()): invalid,
        ("orders", 0, (1, 1)): invalid,
        ("orders", 0, (1, 2)): invalid,
        ("orders", 0, (-1,)): invalid,
    }
    asked = [(name, index, None if replicas is None else list(replicas)) for name, index, replicas in wanted]
    assert reassigned(ask, *asked, version=version) == [int(code) for code in wanted.values()]


@pytest.mark.parametrize("topics", [None, [], [{"name": "orders", "partition_indexes": [0, 7]}]])
def test_no_reassignment_is_ever_under_way(ask: Asker, topics: list[dict[str, object]] | None) -> None:
    ask.create("orders", partitions=2)
    answer = ask(LIST_PARTITION_REASSIGNMENTS, timeout_ms=1000, topics=topics)
    assert (answer.error_code, answer.topics) == (0, ())


def test_a_partition_may_be_moved_to_the_directory_in_which_it_is(ask: Asker) -> None:
    ask.create("orders")
    (described,) = ask(DESCRIBE_LOG_DIRS, topics=None).results
    topics = [{"name": "orders", "partitions": [0, 7]}, {"name": "missing", "partitions": [0]}]
    answer = ask(
        ALTER_REPLICA_LOG_DIRS,
        dirs=[{"path": described.log_dir, "topics": topics}, {"path": "/nowhere", "topics": topics}],
    )
    unknown, not_found = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND
    assert [
        (topic.topic_name, partition.partition_index, int(partition.error_code))
        for topic in answer.results
        for partition in topic.partitions
    ] == [
        *(("orders", 0, 0), ("orders", 7, unknown), ("missing", 0, unknown)),
        *(("orders", 0, not_found), ("orders", 7, not_found), ("missing", 0, not_found)),
    ]


def quorum(ask: Asker, *partitions: tuple[str, int], version: int = 2) -> Any:
    topics = [{"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in partitions]
    return ask(DESCRIBE_QUORUM, version, topics=topics)


@pytest.mark.parametrize("version", APIS[DESCRIBE_QUORUM].served)
def test_the_active_broker_is_the_only_voter_over_the_metadata(ask: Asker, version: int) -> None:
    (before,) = quorum(ask, (METADATA_LOG, 0), version=version).topics[0].partitions
    ask.create("orders")
    answer = quorum(ask, (METADATA_LOG, 0), version=version)
    (after,) = answer.topics[0].partitions
    (voter,) = after.current_voters
    assert (answer.error_code, after.error_code, after.leader_id, after.observers) == (0, 0, 1, ())
    assert (voter.replica_id, voter.log_end_offset) == (1, after.high_watermark)
    assert after.high_watermark > before.high_watermark
    if version >= 2:
        (node,) = answer.nodes
        assert (node.node_id, node.listeners[0].host) == (1, "127.0.0.1")


def test_no_other_partition_has_a_quorum(ask: Asker) -> None:
    ask.create("orders")
    answer = quorum(ask, (METADATA_LOG, 1), ("orders", 0))
    assert [int(topic.partitions[0].error_code) for topic in answer.topics] == [3, 3]


def test_a_configuration_that_no_broker_has_set_may_be_deleted(ask: Asker) -> None:
    """`kafka-reassign-partitions --verify` deletes its limits of rates from every broker, whether it has set them."""
    for name, operation, expected in (
        ("leader.replication.throttled.rate", DELETE, ErrorCode.NONE),
        ("leader.replication.throttled.rate", SET, ErrorCode.INVALID_REQUEST),
    ):
        config = {"name": name, "config_operation": operation, "value": "1"}
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
        (answer,) = ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
        assert answer.error_code == expected


def test_who_may_not_alter_the_cluster_hears_so_for_each_partition() -> None:
    with GuardedBroker() as broker, broker.stranger() as ask:
        answer = ask(ELECT_LEADERS, election_type=PREFERRED, topic_partitions=[asked_of("orders", 0)], timeout_ms=1000)
        assert elected(answer) == [("orders", 0, int(DENIED_CLUSTER))]
        assert answer.error_code == DENIED_CLUSTER


def test_an_old_client_elects_preferred_leaders(semel_broker: FaultyBroker) -> None:
    with Asker(semel_broker.bootstrap) as ask:
        ask.create("orders")
        answer = ask(ELECT_LEADERS, 0, topic_partitions=[asked_of("orders", 0)], timeout_ms=1000)
        assert elected(answer) == [("orders", 0, int(ErrorCode.ELECTION_NOT_NEEDED))]
