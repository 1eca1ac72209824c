"""A group with members: only they commit, each in its generation or epoch, and what they read is not forgotten."""

from collections.abc import Iterator
from typing import Any

import pytest
from test_classic_groups import Member
from test_consumer_groups import beat, join

from asking import Asker
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import INIT_PRODUCER_ID, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, TXN_OFFSET_COMMIT

PLACE = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": None}
TOPICS = [{"name": "orders", "partitions": [PLACE]}]
GROUP = "tills"


@pytest.fixture
def member(ask: Asker, semel_broker: FaultyBroker) -> Iterator[Member]:
    """The one member of a classic group that reads `orders`, with an instance id."""
    ask.create("orders")
    ask.create("payments")
    member = Member(semel_broker.bootstrap, GROUP, instance_id="till-1")
    member.join()
    assert member.post_sync({member.member_id: b""})().error_code == 0
    yield member
    member.close()


def committed(ask: Asker, member_id: str, generation: int, instance_id: str | None = None, *, version: int = 9) -> int:
    """The error code of a commit."""
    answer = ask(
        OFFSET_COMMIT,
        version,
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance_id,
        topics=TOPICS,
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed_in_transaction(
    ask: Asker, member_id: str, generation: int, instance_id: str | None = None, *, group: str = GROUP
) -> int:
    """The error code of a commit in a transaction of its own."""
    producer = ask(
        INIT_PRODUCER_ID, transactional_id="copier", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = ask(
        TXN_OFFSET_COMMIT,
        transactional_id="copier",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
        member_id=member_id,
        generation_id=generation,
        group_instance_id=instance_id,
        topics=TOPICS,
    )
    return int(answer.topics[0].partitions[0].error_code)


def forgotten(ask: Asker, topic: str) -> tuple[int, list[int]]:
    """The error code of the group, and those of the topic's partitions."""
    answer = ask(OFFSET_DELETE, group_id=GROUP, topics=[{"name": topic, "partitions": [{"partition_index": 0}]}])
    return int(answer.error_code), [int(one.error_code) for topic in answer.topics for one in topic.partitions]


def test_members_commit_and_strangers_do_not(member: Member, ask: Asker) -> None:
    who, when, where = member.member_id, member.generation, member.instance_id
    assert committed(ask, who, when, where) == 0
    assert committed(ask, who, when) == 0
    assert committed(ask, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(ask, "stranger", when) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(ask, who, when + 1, where) == ErrorCode.ILLEGAL_GENERATION
    assert committed(ask, "stranger", when, where) == ErrorCode.FENCED_INSTANCE_ID
    assert committed(ask, who, when, "till-2") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_producer_commits_for_a_member_only_while_that_is_one(member: Member, ask: Asker) -> None:
    """KIP-447. Who names no member is an older producer, and is believed."""
    who, when, where = member.member_id, member.generation, member.instance_id
    assert committed_in_transaction(ask, who, when, where) == 0
    assert committed_in_transaction(ask, "", -1) == 0
    assert committed_in_transaction(ask, "stranger", when) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed_in_transaction(ask, who, when - 1, where) == ErrorCode.ILLEGAL_GENERATION
    assert committed_in_transaction(ask, who, when + 1, where) == ErrorCode.ILLEGAL_GENERATION
    assert committed_in_transaction(ask, "stranger", when, where) == ErrorCode.FENCED_INSTANCE_ID
    asked = {"group_id": GROUP, "topics": [{"name": "orders", "partition_indexes": [0]}]}
    (found,) = ask(OFFSET_FETCH, 7, **asked, require_stable=False).topics[0].partitions
    assert found.committed_offset == -1


def test_what_members_read_is_not_forgotten_and_the_rest_is(member: Member, ask: Asker) -> None:
    committed(ask, member.member_id, member.generation)
    assert forgotten(ask, "orders") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert forgotten(ask, "payments") == (0, [0])
    member.leave()
    assert forgotten(ask, "orders") == (0, [0])


def test_nothing_is_forgotten_of_members_that_do_not_say_what_they_read(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders")
    connector = Member(semel_broker.bootstrap, GROUP, instance_id="till-1")
    connector.take(connector.post_join(protocol_type="connect")())
    assert forgotten(ask, "orders") == (ErrorCode.NON_EMPTY_GROUP, [])
    connector.close()


def test_members_of_the_new_protocol_commit_and_ask_in_their_epoch(ask: Asker) -> None:
    ask.create("orders")
    epoch = join(ask, "m1", "orders", group_id=GROUP).member_epoch
    assert committed(ask, "m1", epoch) == 0
    assert committed(ask, "m1", epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert committed(ask, "m1", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert committed(ask, "m2", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(ask, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed_in_transaction(ask, "m1", epoch) == 0
    assert committed_in_transaction(ask, "m1", epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert committed_in_transaction(ask, "m2", epoch) == ErrorCode.UNKNOWN_MEMBER_ID

    def asked(member_id: str | None, member_epoch: int) -> Any:
        wish = {"group_id": GROUP, "member_id": member_id, "member_epoch": member_epoch, "topics": None}
        (found,) = ask(OFFSET_FETCH, 9, groups=[wish], require_stable=False).groups
        return found.error_code

    assert asked("m1", epoch) == asked(None, -1) == 0
    assert asked("m1", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert asked("m2", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert forgotten(ask, "orders") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    beat(ask, "m1", -1, group=GROUP)
    assert forgotten(ask, "orders") == (0, [0])
