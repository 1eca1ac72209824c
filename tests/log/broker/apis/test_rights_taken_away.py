"""A right that is taken away counts from the next request on, also in a transaction or a group that is under way: what
was acknowledged stays, and what is left open ends as if its client were gone."""

from collections.abc import Callable, Iterator

import pytest

from asking import Asker
from guarded import (
    DENIED_GROUP,
    DENIED_ID,
    DENIED_TOPIC,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    GuardedBroker,
    rule,
)
from semel.log.core.access import Permission
from semel.log.core.entries import AccessRule
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from transacting import TransactionalProducer, committed, described

OWNS = rule(TRANSACTIONAL_ID, "payments", WRITE)
WRITES = rule(TOPIC, "orders", WRITE)
READS = rule(TOPIC, "orders", READ)
JOINS = rule(GROUP, "readers", READ)
SESSION_MS = 6_000


@pytest.fixture
def broker() -> Iterator[GuardedBroker]:
    with GuardedBroker() as broker:
        broker.add(OWNS, WRITES, READS, JOINS)
        yield broker


@pytest.fixture
def admin(broker: GuardedBroker) -> Iterator[Asker]:
    with broker.administrator() as asker:
        asker.create("orders")
        yield asker


@pytest.fixture
def stranger(broker: GuardedBroker, admin: Asker) -> Iterator[Asker]:
    with broker.stranger() as asker:
        yield asker


@pytest.fixture
def producer(stranger: Asker) -> TransactionalProducer:
    """In a transaction with one acknowledged record and an offset."""
    producer = TransactionalProducer(stranger)
    assert producer.claim() == 0
    assert producer.add("orders") == [0]
    assert producer.send("orders", "first") == 0
    assert producer.add_group("readers") == 0
    assert producer.commit_offset("readers", "orders", 1) == 0
    return producer


def by_removal(broker: GuardedBroker, allowed: AccessRule) -> None:
    broker.remove(allowed)


def by_denial(broker: GuardedBroker, allowed: AccessRule) -> None:
    broker.add(allowed._replace(permission=Permission.DENY))


@pytest.mark.parametrize("take", [by_removal, by_denial])
def test_a_transaction_takes_no_record_more_for_a_topic_and_can_still_be_committed(
    broker: GuardedBroker, admin: Asker, producer: TransactionalProducer, take: Callable[..., None]
) -> None:
    take(broker, WRITES)
    assert producer.send("orders", "second") == DENIED_TOPIC
    assert producer.add("orders") == [DENIED_TOPIC]
    assert committed(admin, "orders") == []
    assert producer.end() == 0
    assert committed(admin, "orders") == ["first"]
    assert committed_offset(admin) == 1


def test_a_transaction_takes_no_offset_more_for_a_group(
    broker: GuardedBroker, admin: Asker, producer: TransactionalProducer
) -> None:
    broker.remove(JOINS)
    assert producer.commit_offset("readers", "orders", 2) == DENIED_GROUP
    assert producer.add_group("readers") == DENIED_GROUP
    broker.add(JOINS)
    broker.remove(READS)
    assert producer.commit_offset("readers", "orders", 2) == DENIED_TOPIC
    assert producer.end() == 0
    assert committed_offset(admin) == 1


def test_a_producer_that_lost_its_transactional_id_does_nothing_more_until_it_has_it_again(
    broker: GuardedBroker, admin: Asker, producer: TransactionalProducer
) -> None:
    broker.remove(OWNS)
    assert producer.send("orders", "second") == DENIED_ID
    assert producer.add("orders") == [DENIED_ID]
    assert producer.add_group("readers") == DENIED_ID
    assert producer.commit_offset("readers", "orders", 2) == DENIED_ID
    assert [producer.end(), producer.end(committed=False), producer.claim()] == [DENIED_ID] * 3
    assert described(admin).transaction_state == "Ongoing"
    broker.add(OWNS)
    assert producer.send("orders", "second") == 0
    assert producer.end() == 0
    assert committed(admin, "orders") == ["first", "second"]


def test_a_transaction_whose_producer_may_not_end_it_is_aborted_in_time_and_holds_no_reader_back(
    broker: GuardedBroker, admin: Asker, producer: TransactionalProducer
) -> None:
    broker.remove(OWNS)
    with broker.administrator() as other:
        next_one = TransactionalProducer(other, "others")
        assert (next_one.claim(), next_one.add("orders"), next_one.send("orders", "behind")) == (0, [0], 0)
        assert next_one.end() == 0
        assert committed(admin, "orders") == [], "the open transaction lies before it"
        broker.skip(61)
        assert described(admin).transaction_state == "CompleteAbort"
        assert committed(admin, "orders") == ["behind"]
        assert committed_offset(admin) == -1


def committed_offset(ask: Asker) -> int:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    groups = [{"group_id": "readers", "topics": topics}]
    answer = ask(OFFSET_FETCH, 9, groups=groups, require_stable=False)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def commit(ask: Asker, offset: int, member_id: str, epoch: int) -> int:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    topics = [{"name": "orders", "partitions": partitions}]
    fields = {"group_id": "readers", "generation_id_or_member_epoch": epoch, "member_id": member_id}
    answer = ask(OFFSET_COMMIT, 9, **fields, topics=topics)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_member_of_a_classic_group_is_refused_and_what_it_committed_stays(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    wish = {
        "group_id": "readers",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 30_000,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    member_id = stranger(JOIN_GROUP, **wish, member_id="", reason=None).member_id
    generation = stranger(JOIN_GROUP, **wish, member_id=member_id, reason=None).generation_id
    place = {"group_id": "readers", "member_id": member_id, "generation_id": generation, "group_instance_id": None}
    share = [{"member_id": member_id, "assignment": b""}]

    def sync() -> int:
        kind = {"protocol_type": "consumer", "protocol_name": "range"}
        return int(stranger(SYNC_GROUP, **place, **kind, assignments=share).error_code)

    def beat() -> int:
        return int(stranger(HEARTBEAT, **place).error_code)

    assert (sync(), beat(), commit(stranger, 1, member_id, generation)) == (0, 0, 0)
    broker.remove(READS)
    assert (beat(), commit(stranger, 2, member_id, generation)) == (0, DENIED_TOPIC)
    broker.remove(JOINS)
    assert (sync(), beat(), commit(stranger, 2, member_id, generation)) == (DENIED_GROUP,) * 3
    assert stranger(JOIN_GROUP, **wish, member_id=member_id, reason=None).error_code == DENIED_GROUP
    assert committed_offset(admin) == 1
    broker.add(JOINS, READS)
    assert (beat(), commit(stranger, 2, member_id, generation)) == (0, 0)
    broker.remove(JOINS)
    broker.skip(SESSION_MS / 1000 + 1)

    def members() -> int:
        (group,) = admin(DESCRIBE_GROUPS, groups=["readers"], include_authorized_operations=False).groups
        return len(group.members)

    assert members() == 0
    assert committed_offset(admin) == 2


def test_a_member_of_the_new_protocol_is_refused_and_what_it_committed_stays(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    def beat(epoch: int, **said: object) -> tuple[int, int]:
        fields = {"group_id": "readers", "member_id": "me", "member_epoch": epoch, "topic_partitions": None, **said}
        answer = stranger(CONSUMER_GROUP_HEARTBEAT, **fields)
        return int(answer.error_code), int(answer.member_epoch)

    error, epoch = beat(0, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=[])
    assert error == 0
    assert commit(stranger, 1, "me", epoch) == 0
    broker.remove(READS)
    assert commit(stranger, 2, "me", epoch) == DENIED_TOPIC
    broker.remove(JOINS)
    assert beat(epoch)[0] == DENIED_GROUP
    assert commit(stranger, 2, "me", epoch) == DENIED_GROUP
    assert committed_offset(admin) == 1
    broker.add(JOINS, READS)
    assert (beat(epoch)[0], commit(stranger, 2, "me", epoch)) == (0, 0)
    broker.remove(JOINS)
    broker.skip(60)

    def members() -> int:
        (group,) = admin(CONSUMER_GROUP_DESCRIBE, group_ids=["readers"], include_authorized_operations=False).groups
        return len(group.members)

    assert members() == 0
    assert committed_offset(admin) == 2
