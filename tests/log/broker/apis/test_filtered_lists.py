"""Lists, descriptions and metadata show what a client may describe, and what it may do, and no more."""

from typing import Any

from asking import Asker
from guarded import (
    ASKS_NO_OPERATIONS,
    CLUSTER,
    CREATE,
    DENIED_TOPIC,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    GuardedBroker,
    add_partitions,
    rule,
)
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern
from semel.testing.broker import FaultyBroker
from semel.wire.versions import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)

# -- what is shown --------------------------------------------------------------------------------------------------


def names_of(ask: Asker, version: int = 13) -> set[str]:
    return {
        topic.name
        for topic in ask(METADATA, version, topics=None, allow_auto_topic_creation=False, **ASKS_NO_OPERATIONS).topics
    }


def test_lists_show_what_a_client_may_describe_and_no_more(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    for name in ("orders", "payments"):
        admin.create(name)
        offsets = [
            {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}
        ]
        admin(OFFSET_COMMIT, 9, group_id=name, generation_id_or_member_epoch=-1, member_id="", topics=offsets)
        claim = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
        admin(INIT_PRODUCER_ID, transactional_id=name, **claim)

    def seen() -> list[set[str]]:
        groups = stranger(LIST_GROUPS, states_filter=[], types_filter=[]).groups
        nothing: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        ids = stranger(LIST_TRANSACTIONS, **nothing, transactional_id_pattern="").transaction_states
        partitions = stranger(DESCRIBE_TOPIC_PARTITIONS, topics=[], response_partition_limit=9, cursor=None).topics
        return [
            names_of(stranger),
            {topic.name for topic in partitions},
            {group.group_id for group in groups},
            {one.transactional_id for one in ids},
        ]

    assert seen() == [set(), set(), set(), set()]
    for resource_type in (TOPIC, GROUP, TRANSACTIONAL_ID):
        broker.add(rule(resource_type, "orders", DESCRIBE))
    assert seen() == [{"orders"}, {"orders"}, {"orders"}, {"orders"}]
    broker.add(rule(CLUSTER, CLUSTER_NAME, DESCRIBE))
    assert seen() == [{"orders"}, {"orders"}, {"orders", "payments"}, {"orders"}]


def test_an_id_does_not_tell_the_name_of_a_topic(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    topic_id = admin.create("orders").topic_id
    wish = {"topics": [{"name": None, "topic_id": topic_id}], "allow_auto_topic_creation": False}
    (topic,) = stranger(METADATA, **wish, **ASKS_NO_OPERATIONS).topics
    assert (topic.error_code, topic.name, topic.partitions) == (DENIED_TOPIC, None, ())


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def test_a_client_that_asks_is_told_what_it_may_do(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    admin.create("orders")
    wish = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    broker.add(rule(TOPIC, "orders", READ), rule(GROUP, "readers", Operation.DELETE))

    def shown() -> tuple[int, int]:
        answer = stranger(METADATA, 10, topics=[{"name": "orders", "topic_id": bytes(16)}], **wish)
        return answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations

    assert shown() == (bits(READ, DESCRIBE), 0)
    broker.add(rule(CLUSTER, CLUSTER_NAME, Operation.ALTER))
    assert shown() == (bits(READ, DESCRIBE), bits(DESCRIBE, Operation.ALTER))
    cluster = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    described = stranger(DESCRIBE_CLUSTER, **cluster)
    assert described.cluster_authorized_operations == bits(DESCRIBE, Operation.ALTER)
    (group,) = stranger(DESCRIBE_GROUPS, 5, groups=["readers"], include_authorized_operations=True).groups
    assert group.authorized_operations == bits(DESCRIBE, Operation.DELETE)


def test_where_no_rules_are_in_force_a_client_may_do_everything(semel_broker: FaultyBroker) -> None:
    with Asker(semel_broker.bootstrap) as ask:
        ask.create("orders")
        wish = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
        answer = ask(METADATA, 10, topics=[{"name": "orders", "topic_id": bytes(16)}], **wish)
    configs = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    both = (CREATE, Operation.ALTER, DESCRIBE, *configs)
    assert answer.topics[0].topic_authorized_operations == bits(READ, WRITE, Operation.DELETE, *both)
    only_cluster = (Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE)
    assert answer.cluster_authorized_operations == bits(*both, *only_cluster)


def test_offsets_of_all_topics_leave_out_those_that_a_client_may_not_see(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    for name in ("orders", "payments"):
        admin.create(name)
        offsets = [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}
        ]
        admin(OFFSET_COMMIT, 9, group_id="readers", generation_id_or_member_epoch=-1, member_id="", topics=offsets)
    broker.add(rule(GROUP, "readers", DESCRIBE), rule(TOPIC, "orders", DESCRIBE))
    everything = stranger(OFFSET_FETCH, 8, groups=[{"group_id": "readers", "topics": None}], require_stable=False)
    assert [topic.name for topic in everything.groups[0].topics] == ["orders"]
    named = [{"name": name, "partition_indexes": [0]} for name in ("orders", "payments")]
    answer = stranger(OFFSET_FETCH, 8, groups=[{"group_id": "readers", "topics": named}], require_stable=False)
    found = [
        (topic.partitions[0].error_code, topic.partitions[0].committed_offset) for topic in answer.groups[0].topics
    ]
    assert found == [(0, 5), (DENIED_TOPIC, -1)]


def test_a_transaction_shows_the_topics_that_a_client_may_see(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    for name in ("orders", "payments"):
        admin.create(name)
    claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    owner = admin(INIT_PRODUCER_ID, transactional_id="till", **claim)
    added = add_partitions(admin, "till", (owner.producer_id, owner.producer_epoch), "orders", "payments")
    assert added == {"orders": 0, "payments": 0}
    broker.add(rule(TRANSACTIONAL_ID, "till", DESCRIBE), rule(TOPIC, "pay", READ, pattern=Pattern.PREFIXED))
    (described,) = stranger(DESCRIBE_TRANSACTIONS, transactional_ids=["till"]).transaction_states
    assert [topic.topic for topic in described.topics] == ["payments"]
