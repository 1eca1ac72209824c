"""A client that lacks a right is denied what needs it, as Apache Kafka denies it, and gets everything else."""

import pytest

from asking import Asker, ConnectionEnded, at, fetch_fields, topic_wanted
from guarded import (
    ASKS_NO_OPERATIONS,
    CLUSTER,
    CREATE,
    DENIED_CLUSTER,
    DENIED_GROUP,
    DENIED_ID,
    DENIED_TOPIC,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    GuardedBroker,
    add_partitions,
    create_topic,
    producing_in_a_transaction,
    rule,
)
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern, ResourceType
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

# -- records --------------------------------------------------------------------------------------------------------


def produced(ask: Asker, *topics: str, acks: int = -1) -> dict[str, int]:
    batch = bytes(encode_batch(at(1)))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]} for topic in topics]
    answer = ask(PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=data)
    return {topic.name: int(topic.partition_responses[0].error_code) for topic in answer.responses}


def test_one_topic_of_many_is_denied_and_does_not_keep_the_others_out(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    for name in ("orders", "payments"):
        admin.create(name)
    broker.add(rule(TOPIC, "orders", WRITE))
    assert produced(stranger, "orders", "payments", "missing") == {
        "orders": 0,
        "payments": DENIED_TOPIC,
        "missing": DENIED_TOPIC,
    }
    assert len(broker.log("orders")) == 1
    assert broker.log("payments") == []


def test_the_right_to_write_is_none_to_read(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    topic_id = admin.create("orders").topic_id
    admin.produce("orders", at(1, 2))
    broker.add(rule(TOPIC, "orders", WRITE))
    for answer in (stranger.fetch("orders"), stranger.fetch(topic_id, version=18)):
        assert (answer.error_code, answer.records) in ((DENIED_TOPIC, None), (DENIED_TOPIC, b""))
    broker.add(rule(TOPIC, "orders", READ))
    assert stranger.fetch("orders").error_code == 0
    assert stranger.fetch(topic_id, version=18).records


def test_rules_that_change_count_from_the_next_request_on_and_what_was_acknowledged_stays(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")
    writes = rule(TOPIC, "orders", WRITE)
    for round_number in range(1, 4):
        broker.add(writes)
        assert produced(stranger, "orders") == {"orders": 0}
        broker.remove(writes)
        assert produced(stranger, "orders") == {"orders": DENIED_TOPIC}
        assert len(broker.log("orders")) == round_number


def test_a_fetch_that_waits_gets_no_record_once_its_right_is_gone(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")
    reads = rule(TOPIC, "orders", READ)
    broker.add(reads)
    answer = stranger.ask_later(FETCH, 12, **fetch_fields("orders", wait_ms=60_000))
    broker.remove(reads)
    admin.produce("orders", at(1))
    (topic,) = answer().responses
    assert (topic.partitions[0].error_code, topic.partitions[0].records) == (DENIED_TOPIC, b"")


def test_with_acks_0_a_denied_client_loses_its_connection(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    admin.create("orders")
    with pytest.raises(ConnectionEnded):
        produced(stranger, "orders", acks=0)
    assert broker.log("orders") == []


@pytest.mark.parametrize(
    ("operation", "resource_type", "name", "pattern", "expected"),
    [
        (None, TOPIC, "", Pattern.LITERAL, DENIED_CLUSTER),
        (Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, Pattern.LITERAL, 0),
        (WRITE, TOPIC, "any", Pattern.LITERAL, 0),
        (WRITE, TOPIC, "a", Pattern.PREFIXED, 0),
        (Operation.ALL, TOPIC, "*", Pattern.LITERAL, 0),
        (READ, TOPIC, "any", Pattern.LITERAL, DENIED_CLUSTER),
        (WRITE, GROUP, "any", Pattern.LITERAL, DENIED_CLUSTER),
    ],
)
def test_a_producer_id_needs_idempotent_write_or_write_on_any_topic(
    broker: GuardedBroker,
    stranger: Asker,
    operation: Operation | None,
    resource_type: ResourceType,
    name: str,
    pattern: Pattern,
    expected: int,
) -> None:
    if operation is not None:
        broker.add(rule(resource_type, name, operation, pattern=pattern))
    plain = {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    answer = stranger(INIT_PRODUCER_ID, **plain)
    assert (answer.error_code, answer.producer_id >= 0) == (expected, expected == 0)


# -- topics ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC, "orders"), (CLUSTER, CLUSTER_NAME)])
def test_a_topic_may_be_created_with_the_right_to_create_it_or_any(
    broker: GuardedBroker, stranger: Asker, resource_type: ResourceType, name: str
) -> None:
    assert create_topic(stranger, "orders") == DENIED_TOPIC
    broker.add(rule(resource_type, name, CREATE))
    assert create_topic(stranger, "orders") == 0
    assert create_topic(stranger, "payments") == (0 if resource_type == CLUSTER else DENIED_TOPIC)


def test_a_new_topic_shows_its_configurations_only_with_the_right_to_see_them(
    broker: GuardedBroker, stranger: Asker
) -> None:
    broker.add(rule(TOPIC, "*", CREATE), rule(TOPIC, "payments", Operation.DESCRIBE_CONFIGS))
    names = ("orders", "payments")
    answer = stranger(CREATE_TOPICS, topics=map(topic_wanted, names), timeout_ms=1000, validate_only=False)
    hidden, shown = answer.topics
    assert (hidden.error_code, hidden.topic_config_error_code) == (0, DENIED_TOPIC)
    assert (hidden.num_partitions, hidden.replication_factor, hidden.configs or ()) == (-1, -1, ())
    assert (shown.error_code, shown.topic_config_error_code, shown.num_partitions) == (0, 0, 1)
    assert shown.configs


def test_asking_for_a_topic_makes_it_only_with_the_right_to_create_it(broker: GuardedBroker, stranger: Asker) -> None:
    topics = [{"name": "orders", "topic_id": bytes(16)}]
    wish = {"topics": topics, "allow_auto_topic_creation": True, **ASKS_NO_OPERATIONS}
    broker.add(rule(TOPIC, "orders", DESCRIBE))
    assert stranger(METADATA, 12, **wish).topics[0].error_code == DENIED_TOPIC
    assert broker.topics() == []
    broker.add(rule(TOPIC, "orders", CREATE))
    assert stranger(METADATA, 12, **wish).topics[0].error_code == 0
    assert broker.topics() == ["orders"]


def test_a_topic_may_be_deleted_by_a_client_that_may_see_and_delete_it(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    topic_id = admin.create("orders").topic_id

    def delete(name: str | None = None, topic_id: bytes = bytes(16)) -> int:
        answer = stranger(DELETE_TOPICS, topics=[{"name": name, "topic_id": topic_id}], timeout_ms=1000)
        return int(answer.responses[0].error_code)

    assert delete("orders") == delete("missing") == delete(topic_id=topic_id) == DENIED_TOPIC
    broker.add(rule(TOPIC, "*", DESCRIBE))
    assert (delete("orders"), delete(topic_id=topic_id)) == (DENIED_TOPIC, DENIED_TOPIC)
    assert delete("missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.add(rule(TOPIC, "orders", Operation.DELETE))
    assert delete(topic_id=topic_id) == 0


def test_growing_a_topic_needs_the_right_to_alter_it(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    admin.create("orders")

    def grow() -> int:
        wish = [{"name": "orders", "count": 2, "assignments": None}]
        (result,) = stranger(CREATE_PARTITIONS, topics=wish, timeout_ms=1000, validate_only=False).results
        return int(result.error_code)

    broker.add(rule(TOPIC, "orders", Operation.ALTER_CONFIGS))
    assert grow() == DENIED_TOPIC
    broker.add(rule(TOPIC, "orders", Operation.ALTER))
    assert grow() == 0


@pytest.mark.parametrize(
    ("number", "name", "right", "denied"),
    [
        (2, "orders", (TOPIC, "orders"), DENIED_TOPIC),
        (4, "1", (CLUSTER, CLUSTER_NAME), DENIED_CLUSTER),
        (32, "readers", (GROUP, "readers"), DENIED_GROUP),
    ],
)
def test_configurations_need_the_right_for_what_they_are_of(
    broker: GuardedBroker,
    admin: Asker,
    stranger: Asker,
    number: int,
    name: str,
    right: tuple[ResourceType, str],
    denied: ErrorCode,
) -> None:
    admin.create("orders")

    def codes() -> tuple[int, int]:
        resource = {"resource_type": number, "resource_name": name}
        whole = {**resource, "configuration_keys": None}
        (shown,) = stranger(
            DESCRIBE_CONFIGS, resources=[whole], include_synonyms=False, include_documentation=False
        ).results
        (changed,) = stranger(
            INCREMENTAL_ALTER_CONFIGS, resources=[{**resource, "configs": []}], validate_only=True
        ).responses
        return int(shown.error_code), int(changed.error_code)

    assert codes() == (denied, denied)
    broker.add(rule(*right, Operation.DESCRIBE_CONFIGS))
    assert codes() == (0, denied)
    broker.remove(rule(*right, Operation.DESCRIBE_CONFIGS))
    broker.add(rule(*right, Operation.ALTER_CONFIGS))
    assert codes() == (0, 0)


def test_an_epoch_is_told_to_brokers_and_to_clients_that_may_see_the_topic(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")

    def code() -> int:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        wish = [{"topic": "orders", "partitions": [partition]}]
        (topic,) = stranger(OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=wish).topics
        return int(topic.partitions[0].error_code)

    assert code() == DENIED_TOPIC
    acts = rule(CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)
    broker.add(acts)
    assert code() == 0
    broker.remove(acts)
    broker.add(rule(TOPIC, "orders", DESCRIBE))
    assert code() == 0


# -- groups and transactions ----------------------------------------------------------------------------------------


def test_a_commit_needs_the_group_and_each_topic(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    for name in ("orders", "payments"):
        admin.create(name)

    def commit() -> dict[str, int]:
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": name, "partitions": partitions} for name in ("orders", "payments", "missing")]
        answer = stranger(
            OFFSET_COMMIT, 9, group_id="readers", generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        return {topic.name: int(topic.partitions[0].error_code) for topic in answer.topics}

    broker.add(rule(TOPIC, "orders", READ))
    assert commit() == dict.fromkeys(("orders", "payments", "missing"), DENIED_GROUP)
    broker.add(rule(GROUP, "readers", READ))
    assert commit() == {"orders": 0, "payments": DENIED_TOPIC, "missing": DENIED_TOPIC}


def test_every_key_of_find_coordinator_stands_for_itself(broker: GuardedBroker, stranger: Asker) -> None:
    broker.add(rule(GROUP, "readers", DESCRIBE), rule(TRANSACTIONAL_ID, "till", WRITE))
    keys = ["readers", "others", "till"]
    groups = stranger(FIND_COORDINATOR, key_type=0, coordinator_keys=keys).coordinators
    assert [one.error_code for one in groups] == [0, DENIED_GROUP, DENIED_GROUP]
    transactions = stranger(FIND_COORDINATOR, key_type=1, coordinator_keys=keys).coordinators
    assert [one.error_code for one in transactions] == [DENIED_ID, DENIED_ID, 0]


def test_a_member_of_the_new_protocol_may_read_the_group_and_see_each_topic(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    for name in ("orders", "payments"):
        admin.create(name)

    def join(*names: str) -> int:
        member = {"group_id": "readers", "member_id": "me", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
        answer = stranger(CONSUMER_GROUP_HEARTBEAT, **member, subscribed_topic_names=names, topic_partitions=[])
        return int(answer.error_code)

    assert join("orders") == DENIED_GROUP
    broker.add(rule(GROUP, "readers", READ))
    assert join("orders") == DENIED_TOPIC
    broker.add(rule(TOPIC, "orders", DESCRIBE))
    assert join("orders", "payments") == DENIED_TOPIC
    assert join("orders") == 0
    describe = {"group_ids": ["readers"], "include_authorized_operations": False}
    (described,) = stranger(CONSUMER_GROUP_DESCRIBE, **describe).groups
    assert (described.error_code, len(described.members)) == (0, 1)
    broker.remove(rule(TOPIC, "orders", DESCRIBE))
    (described,) = stranger(CONSUMER_GROUP_DESCRIBE, **describe).groups
    assert (described.error_code, described.members) == (DENIED_TOPIC, ())


def test_a_transaction_takes_all_partitions_or_none(broker: GuardedBroker, admin: Asker, stranger: Asker) -> None:
    for name in ("orders", "payments"):
        admin.create(name)
    broker.add(rule(TRANSACTIONAL_ID, "till", WRITE), rule(TOPIC, "orders", WRITE))
    claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    assert stranger(INIT_PRODUCER_ID, transactional_id="other", **claim).error_code == DENIED_ID
    owner = stranger(INIT_PRODUCER_ID, transactional_id="till", **claim)
    identity = owner.producer_id, owner.producer_epoch
    assert add_partitions(stranger, "till", identity, "orders", "payments") == {
        "orders": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "payments": DENIED_TOPIC,
    }
    assert add_partitions(stranger, "till", identity, "orders") == {"orders": 0}


@pytest.mark.parametrize("version", [3, 11])
def test_a_transactional_batch_needs_the_right_to_its_transactional_id(
    broker: GuardedBroker, admin: Asker, stranger: Asker, version: int
) -> None:
    admin.create("orders")
    broker.add(rule(TOPIC, "orders", WRITE))
    claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    owner = admin(INIT_PRODUCER_ID, transactional_id="payments", **claim)
    assert add_partitions(admin, "payments", (owner.producer_id, 0), "orders") == {"orders": 0}
    sent = producing_in_a_transaction(bytes(16), owner.producer_id)
    answer = stranger(PRODUCE, version, **sent)
    assert answer.responses[0].partition_responses[0].error_code == DENIED_ID
    broker.add(rule(TRANSACTIONAL_ID, "payments", WRITE))
    answer = stranger(PRODUCE, version, **sent)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_offsets_in_a_transaction_need_its_id_the_group_and_each_topic(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")
    claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    owner = admin(INIT_PRODUCER_ID, transactional_id="till", **claim)

    def commit() -> int:
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        answer = stranger(
            TXN_OFFSET_COMMIT,
            transactional_id="till",
            group_id="readers",
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            topics=[{"name": "orders", "partitions": partitions}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    for missing, expected in (
        (rule(TRANSACTIONAL_ID, "till", WRITE), DENIED_ID),
        (rule(GROUP, "readers", READ), DENIED_GROUP),
        (rule(TOPIC, "orders", READ), DENIED_TOPIC),
    ):
        assert commit() == expected
        broker.add(missing)
    assert commit() == 0
