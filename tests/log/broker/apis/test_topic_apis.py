"""Topics come, grow, are described and go: each on its own, and for good once that was answered."""

from typing import Any

import pytest

from asking import Asker, at
from semel.log.broker.apis.describe_topic_partitions import PARTITIONS_PER_ANSWER_MAX
from semel.log.core.configs import DEFINITIONS
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.versions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)

STRANGER = bytes(range(16))


def wanted(name: str, partitions: int = 1, replicas: int = 1, **more: object) -> dict[str, object]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
        **more,
    }


def assignments(*broker_ids: list[int], first: int = 0) -> list[dict[str, object]]:
    return [{"partition_index": first + place, "broker_ids": ids} for place, ids in enumerate(broker_ids)]


def create(ask: Asker, *topics: dict[str, object], validate_only: bool = False) -> Any:
    return ask(CREATE_TOPICS, topics=topics, timeout_ms=1000, validate_only=validate_only).topics


def delete(ask: Asker, *topics: tuple[str | None, bytes]) -> Any:
    asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return ask(DELETE_TOPICS, topics=asked, timeout_ms=1000).responses


def grow(ask: Asker, name: str, count: int, brokers: list[list[int]] | None = None, validate_only: bool = False) -> Any:
    assigned = None if brokers is None else [{"broker_ids": ids} for ids in brokers]
    asked = [{"name": name, "count": count, "assignments": assigned}]
    return ask(CREATE_PARTITIONS, topics=asked, timeout_ms=1000, validate_only=validate_only).results[0]


def metadata(ask: Asker, *names: str, topic_ids: tuple[bytes, ...] = (), create: bool = False) -> Any:
    asked = [{"name": name, "topic_id": NO_ID} for name in names]
    asked += [{"name": None, "topic_id": topic_id} for topic_id in topic_ids]
    return ask(
        METADATA,
        topics=asked,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    ).topics


def codes(answers: Any) -> list[int]:
    return [int(answer.error_code) for answer in answers]


def test_a_new_topic_is_answered_with_its_id_and_configurations(ask: Asker) -> None:
    (created,) = create(ask, wanted("orders", 3, configs=[{"name": "retention.ms", "value": "1000"}]))
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 3, 1)
    values = {config.name: (config.value, config.config_source) for config in created.configs}
    assert set(values) == set(DEFINITIONS)
    assert values["retention.ms"] == ("1000", 1)
    assert values["segment.bytes"] == (DEFINITIONS["segment.bytes"].default, 5)
    (described,) = metadata(ask, "orders")
    assert described.topic_id == created.topic_id
    assert [partition.partition_index for partition in described.partitions] == [0, 1, 2]


def test_minus_one_is_the_default_of_the_broker() -> None:
    with FaultyBroker(partitions_default=4) as broker:
        (created,) = create(Asker(broker.bootstrap), wanted("orders", -1, -1))
    assert (created.num_partitions, created.replication_factor) == (4, 1)


def test_validating_makes_nothing(ask: Asker) -> None:
    good, bad = create(ask, wanted("orders", 2), wanted(".."), validate_only=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, NO_ID)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(metadata(ask, "orders")) == [3]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("new", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted("new", -2), ErrorCode.INVALID_PARTITIONS),
        (wanted("new", 10**9), ErrorCode.INVALID_PARTITIONS),
        (wanted("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("new", configs=[{"name": "no.such", "value": "1"}]), ErrorCode.INVALID_CONFIG),
        (wanted("new", configs=[{"name": "retention.ms", "value": "soon"}]), ErrorCode.INVALID_CONFIG),
        (wanted("new", configs=[{"name": "retention.ms", "value": None}]), ErrorCode.INVALID_CONFIG),
        (wanted("new", 1, -1, assignments=assignments([1])), ErrorCode.INVALID_REQUEST),
        (wanted("new", -1, 1, assignments=assignments([1])), ErrorCode.INVALID_REQUEST),
        (wanted("new", -1, -1, assignments=assignments([2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("new", -1, -1, assignments=assignments([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("new", -1, -1, assignments=assignments([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("new", -1, -1, assignments=assignments([1], first=1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("new", -1, -1, assignments=assignments([1]) * 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_be_made_does_not_keep_others_out(
    ask: Asker, topic: dict[str, object], error: ErrorCode
) -> None:
    ask.create("orders")
    refused, created = create(ask, topic, wanted("good"))
    assert (refused.error_code, created.error_code) == (error, 0)
    assert refused.error_message
    assert (refused.num_partitions, refused.replication_factor, refused.topic_id) == (-1, -1, NO_ID)
    assert {topic.name for topic in metadata(ask, "orders", "good", "new") if not topic.error_code} == {
        "orders",
        "good",
    }


def test_an_assignment_to_this_broker_is_taken(ask: Asker) -> None:
    (created,) = create(ask, wanted("orders", -1, -1, assignments=assignments([1], [1], [1])))
    assert (created.error_code, created.num_partitions) == (0, 3)


def test_a_topic_asked_for_twice_is_refused_once(ask: Asker) -> None:
    answers = create(ask, wanted("orders"), wanted("orders", 2), wanted("other"))
    assert {answer.name: int(answer.error_code) for answer in answers} == {"orders": 42, "other": 0}
    assert len(answers) == 2


def test_a_new_topic_is_there_after_a_kill(ask: Asker, semel_broker: FaultyBroker) -> None:
    topic_id = ask.create("orders", 2, retention_ms="1000").topic_id
    ask.create("gone")
    assert codes(delete(ask, ("gone", NO_ID))) == [0]
    assert grow(ask, "orders", 5).error_code == 0
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    orders, gone = metadata(again, "orders", "gone")
    assert (orders.topic_id, len(orders.partitions)) == (topic_id, 5)
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    again.close()


def test_topics_are_deleted_by_name_and_by_id(ask: Asker) -> None:
    by_name, by_id = (ask.create(name).topic_id for name in ("one", "two"))
    answers = delete(ask, ("one", NO_ID), (None, by_id))
    assert [(answer.name, answer.topic_id, answer.error_code) for answer in answers] == [
        ("one", by_name, 0),
        ("two", by_id, 0),
    ]
    assert codes(metadata(ask, "one", topic_ids=(by_id,))) == [3, 100]


def test_a_deletion_that_means_no_topic_says_why(ask: Asker) -> None:
    topic_id = ask.create("orders").topic_id
    answers = delete(ask, ("none", NO_ID), (None, STRANGER), (None, NO_ID), ("orders", topic_id))
    assert codes(answers) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert answers[1].topic_id == STRANGER
    assert all(answer.error_message for answer in answers)
    assert codes(metadata(ask, "orders")) == [0]


def test_a_topic_named_twice_in_one_deletion_stays(ask: Asker) -> None:
    topic_id = ask.create("orders").topic_id
    answers = delete(ask, ("orders", NO_ID), (None, topic_id))
    assert codes(answers) == [ErrorCode.INVALID_REQUEST] * 2
    assert codes(delete(ask, ("orders", NO_ID), ("orders", NO_ID))) == [ErrorCode.INVALID_REQUEST]
    assert codes(metadata(ask, "orders")) == [0]


def test_a_namesake_of_a_deleted_topic_is_another_topic(ask: Asker) -> None:
    first = ask.create("orders").topic_id
    ask.produce("orders", at(1000))
    delete(ask, ("orders", NO_ID))
    second = ask.create("orders").topic_id
    assert first != second
    assert codes(metadata(ask, topic_ids=(first, second))) == [100, 0]
    assert ask.produce("orders", at(1000)) == 0


def test_a_topic_grows_to_the_number_that_was_asked_for(ask: Asker) -> None:
    ask.create("orders", 2)
    assert grow(ask, "orders", 4, validate_only=True).error_code == 0
    assert len(metadata(ask, "orders")[0].partitions) == 2
    assert grow(ask, "orders", 3).error_code == 0
    assert grow(ask, "orders", 5, [[1], [1]]).error_code == 0
    assert len(metadata(ask, "orders")[0].partitions) == 5
    assert ask.produce("orders", at(1000), partition=4) == 0


@pytest.mark.parametrize(
    ("name", "count", "brokers", "error"),
    [
        ("none", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 10**9, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_growth_that_cannot_be_is_refused(
    ask: Asker, name: str, count: int, brokers: list[list[int]] | None, error: ErrorCode
) -> None:
    ask.create("orders", 2)
    answer = grow(ask, name, count, brokers)
    assert answer.error_code == error
    assert answer.error_message
    assert len(metadata(ask, "orders")[0].partitions) == 2


def test_topics_that_do_not_exist_and_cannot_exist_are_told_apart(ask: Asker) -> None:
    assert codes(metadata(ask, "none", "..", topic_ids=(STRANGER,))) == [3, 17, 100]
    assert codes(metadata(ask, "..", "x" * 250, create=True)) == [17, 17]


@pytest.mark.parametrize("name", ["", "other", None])
def test_where_an_id_is_given_the_name_does_not_count(ask: Asker, name: str | None) -> None:
    topic_id = ask.create("orders").topic_id
    options = {
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    asked = [{"name": name, "topic_id": known} for known in (topic_id, STRANGER)]
    known, unknown = ask(METADATA, 13, topics=asked, **options).topics
    assert (known.error_code, known.name) == (0, "orders")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (100, None, STRANGER)
    if name is not None:
        (unknown,) = ask(METADATA, 10, topics=asked[1:], **options).topics
        assert (unknown.error_code, unknown.name) == (100, "")


def test_a_topic_with_neither_a_name_nor_an_id_is_refused_as_that_version_can_say(ask: Asker) -> None:
    """Before version 12, an answer has a name in any case."""
    options = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": True}
    asked = [{"name": None, "topic_id": bytes(16)}]
    for version in range(10, 14):
        (unknown,) = ask(METADATA, version, topics=asked, allow_auto_topic_creation=True, **options).topics
        assert (unknown.error_code, unknown.name) == ((17, "") if version < 12 else (100, None))


def test_asking_for_a_topic_makes_it_where_the_client_wants_that(ask: Asker) -> None:
    assert codes(metadata(ask, "orders")) == [3]
    assert codes(metadata(ask, "orders", create=True)) == [0]
    assert codes(metadata(ask, "orders")) == [0]


def test_asking_for_a_topic_makes_none_where_the_broker_does_not_want_that() -> None:
    with FaultyBroker(auto_create_topics=False) as broker:
        ask = Asker(broker.bootstrap)
        assert codes(metadata(ask, "orders", create=True)) == [3]
        assert codes(ask(METADATA, 1, topics=[{"name": "orders"}]).topics) == [3]


def test_no_topics_means_all_in_version_0_and_none_later(ask: Asker) -> None:
    ask.create("orders")
    assert [topic.name for topic in ask(METADATA, 0, topics=[]).topics] == ["orders"]
    assert ask(METADATA, 1, topics=[]).topics == ()
    assert [topic.name for topic in ask(METADATA, 1, topics=None).topics] == ["orders"]


def test_a_topic_asked_about_many_times_is_described_once(ask: Asker) -> None:
    ask.create("orders", 100)
    assert len(metadata(ask, *["orders"] * 1000)) == 1
    topic_id = metadata(ask, "orders")[0].topic_id
    asked = [{"name": str(number), "topic_id": topic_id} for number in range(1000)]
    options = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    assert len(ask(METADATA, topics=asked, **options).topics) == 1


def page(ask: Asker, *names: str, limit: int, cursor: tuple[str, int] | None = None) -> Any:
    place = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return ask(
        DESCRIBE_TOPIC_PARTITIONS,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=place,
    )


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in answer.topics]


def test_partitions_are_described_page_by_page_in_the_order_of_names(ask: Asker) -> None:
    ask.create("b", 3)
    ask.create("a", 2)
    first = page(ask, limit=3)
    assert shown(first) == [("a", [0, 1]), ("b", [0])]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("b", 1)
    last = page(ask, limit=3, cursor=("b", 1))
    assert shown(last) == [("b", [1, 2])]
    assert last.next_cursor is None


def test_a_page_that_ends_with_a_topic_leads_to_the_next_topic(ask: Asker) -> None:
    ask.create("a", 2)
    ask.create("b", 1)
    answer = page(ask, "b", "a", limit=2)
    assert shown(answer) == [("a", [0, 1])]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("b", 0)


def test_a_page_has_at_least_one_partition_and_at_most_what_the_broker_allows(ask: Asker) -> None:
    ask.create("a", PARTITIONS_PER_ANSWER_MAX + 1)
    assert shown(page(ask, "a", limit=-4)) == [("a", [0])]
    answer = page(ask, "a", limit=10**6)
    assert len(answer.topics[0].partitions) == PARTITIONS_PER_ANSWER_MAX
    assert answer.next_cursor.partition_index == PARTITIONS_PER_ANSWER_MAX


def test_what_does_not_exist_has_an_error_among_the_described(ask: Asker) -> None:
    ask.create("a")
    answer = page(ask, "none", "..", "a", limit=10)
    assert {topic.name: int(topic.error_code) for topic in answer.topics} == {"a": 0, "none": 3, "..": 17}
