"""Large groups hold up nobody else: they are assigned in steps, and their members are answered in turns."""

from dataclasses import replace
from typing import Any

import pytest

from semel.log.broker.broker import Broker
from semel.log.core.groups import classic
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_assignment import waits_for_assignment
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.consumer_topics import ASSIGNED_AT_ONCE, NAMES_MAX
from semel.log.core.groups.partitions import NOTHING
from semel.log.core.topics import Catalog
from semel.wire.refusals import Refused
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP
from stepping import Asked, in_a_broker

GROUP = "readers"


def test_the_members_of_a_classic_group_are_answered_in_many_turns() -> None:
    def test(broker: Broker) -> None:
        joins = []
        for number in range(5):
            values: dict[str, Any] = {"group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
            protocols = [{"name": "range", "metadata": b"s"}]
            joins.append(
                Asked(
                    *(broker, JOIN_GROUP, 3),
                    over=number + 1,
                    **{**values, "member_id": "", "protocol_type": "consumer", "protocols": protocols},
                )
            )
            while joins[-1].step():
                pass
        group = broker.log.state.groups.classic(GROUP)
        while group.rebalance.join_deadline_ms is not None:
            broker.groups._carry_out(group, classic.pass_time(group, group.rebalance.join_deadline_ms))
        assert not any(join.is_answered for join in joins)
        broker.turns.stop()

    in_a_broker(test)


def beat(broker: Broker, member_id: str, epoch: int = 0, *, over: int = 1) -> Asked:
    """A heartbeat of a member that reads all topics."""
    names = [topic.name for topic in broker.log.state.catalog] if epoch == 0 else None
    values: dict[str, Any] = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, "instance_id": None}
    values |= {"rack_id": None, "rebalance_timeout_ms": 10_000 if epoch == 0 else -1, "subscribed_topic_names": names}
    values |= {"subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [] if epoch == 0 else None}
    return Asked(broker, CONSUMER_GROUP_HEARTBEAT, over=over, **values)


def many_topics(broker: Broker) -> None:
    """So many that already the group of one member is assigned in steps."""
    catalog = broker.log.state.catalog
    for number in range(ASSIGNED_AT_ONCE + 1):
        broker.runtime.commit(catalog.decide_create(f"t{number:04}", 1, {}, number.to_bytes(16), 0))


def assigned(broker: Broker) -> list[int]:
    """The number of each partition in a target, in order."""
    targets = broker.log.state.groups.consumer(GROUP).targets.values()
    return sorted(name.number for target in targets for name in target)


def test_a_large_group_is_assigned_in_steps_and_its_new_member_learns_its_partitions_with_the_first_answer() -> None:
    def test(broker: Broker) -> None:
        many_topics(broker)
        answer = beat(broker, "a").answer()
        assert (answer.error_code, answer.member_epoch) == (0, 1)
        assert len(answer.assignment.topic_partitions) == ASSIGNED_AT_ONCE + 1
        answer = beat(broker, "b", over=2).answer()
        assert (answer.error_code, answer.member_epoch, answer.assignment.topic_partitions) == (0, 2, ())
        assert assigned(broker) == list(range(ASSIGNED_AT_ONCE + 1))

    in_a_broker(test)


def test_who_joins_or_leaves_while_a_large_group_is_assigned_is_a_part_of_the_next_assignment() -> None:
    def test(broker: Broker) -> None:
        many_topics(broker)
        for member_id in ("a", "b"):
            assert beat(broker, member_id).answer().error_code == 0
        group = broker.log.state.groups.consumer(GROUP)
        joining = beat(broker, "c", over=3)
        while not waits_for_assignment(group):
            assert joining.step()
        joining.step()
        assert beat(broker, "b", -1, over=2).answer().error_code == 0
        assert joining.answer().error_code == 0
        assert set(group.targets) == {"a", "c"}
        assert group.epoch > group.target_epoch
        assert beat(broker, "c", over=3).answer().error_code == 0
        assert group.epoch == group.target_epoch
        assert assigned(broker) == list(range(ASSIGNED_AT_ONCE + 1))

    in_a_broker(test)


def test_the_different_names_to_which_the_members_of_a_group_subscribe_have_a_bound() -> None:
    group, catalog = ConsumerGroup(), Catalog()
    names = tuple(map(str, range(NAMES_MAX + 1)))
    beat = Heartbeat("new", 0, "client", "/host", None, None, 1_000, names, None, None, NOTHING)
    with pytest.raises(Refused, match="names in all"):
        group.decide_heartbeat(GROUP, beat, catalog, MemberRules(), 0)
    entry = group.decide_heartbeat(GROUP, replace(beat, topic_names=names[1:]), catalog, MemberRules(), 0)
    assert entry is not None
