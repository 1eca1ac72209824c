"""Groups of the new protocol as clients of the protocol see them: heartbeats, descriptions, and a broker that dies."""

from typing import Any

import pytest

from asking import Asker
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
)


def beat(ask: Asker, member_id: str, epoch: int, version: int = 1, group: str = "readers", **said: Any) -> Any:
    return ask(
        CONSUMER_GROUP_HEARTBEAT,
        version,
        **{"group_id": group, "member_id": member_id, "member_epoch": epoch, "topic_partitions": None, **said},
    )


def join(ask: Asker, member_id: str, *names: str, version: int = 1, **said: Any) -> Any:
    fields: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": names,
        "topic_partitions": [],
        **said,
    }
    return beat(ask, member_id, 0, version, **fields)


def described(ask: Asker, group: str = "readers") -> Any:
    (answer,) = ask(CONSUMER_GROUP_DESCRIBE, group_ids=[group], include_authorized_operations=False).groups
    return answer


def partitions(assignment: Any) -> list[int]:
    return sorted(index for topic in assignment.topic_partitions for index in topic.partitions)


def owned(topic: Any, *indexes: int) -> list[dict[str, object]]:
    return [{"topic_id": topic.topic_id, "partitions": indexes}]


def test_a_member_joins_and_is_told_what_to_read(ask: Asker) -> None:
    topic = ask.create("orders", partitions=3)
    answer = join(ask, "a", "orders")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 1)
    (told,) = answer.assignment.topic_partitions
    assert (told.topic_id, told.partitions) == (topic.topic_id, (0, 1, 2))


def test_in_version_0_the_broker_makes_up_the_member_id(ask: Asker) -> None:
    ask.create("orders")
    answer = join(ask, "", "orders", version=0)
    assert answer.member_id
    assert beat(ask, answer.member_id, answer.member_epoch, 0).error_code == 0
    assert join(ask, "", "orders").error_code == ErrorCode.INVALID_REQUEST


def test_a_second_member_gets_its_share_when_the_first_has_let_go(ask: Asker) -> None:
    topic = ask.create("orders", partitions=2)
    join(ask, "a", "orders")
    assert partitions(join(ask, "b", "orders").assignment) == []
    assert partitions(beat(ask, "a", 1).assignment) == [0]
    assert beat(ask, "b", 2).assignment is None
    assert beat(ask, "a", 1, topic_partitions=owned(topic, 0)).member_epoch == 2
    assert partitions(beat(ask, "b", 2).assignment) == [1]


def test_a_lost_answer_is_given_again(ask: Asker) -> None:
    ask.create("orders", partitions=2)
    first = join(ask, "a", "orders")
    again = join(ask, "a", "orders")
    assert again == first
    everything: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    assert partitions(beat(ask, "a", 1, **everything).assignment) == [0, 1]


def test_a_group_is_described_with_its_members(ask: Asker) -> None:
    topic = ask.create("orders", partitions=2)
    join(ask, "a", "orders", instance_id="one", rack_id="left", server_assignor="range")
    group = described(ask)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 1, 1)
    assert group.assignor_name == "range"
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "one", "left", 1)
    assert (member.client_id, member.client_host, member.member_type) == ("asker", "/127.0.0.1", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("orders",), "")
    (read,) = member.assignment.topic_partitions
    assert (read.topic_id, read.topic_name, read.partitions) == (topic.topic_id, "orders", (0, 1))
    assert member.target_assignment == member.assignment


def test_a_group_is_listed_by_its_type_and_is_none_of_the_classic_protocol(ask: Asker) -> None:
    ask.create("orders")
    join(ask, "a", "orders")
    (listed,) = ask(LIST_GROUPS, states_filter=["stable"], types_filter=["consumer"]).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("readers", "Stable", "consumer")
    assert listed.protocol_type == "consumer"
    assert ask(LIST_GROUPS, states_filter=[], types_filter=["classic"]).groups == ()
    (classic,) = ask(DESCRIBE_GROUPS, groups=["readers"], include_authorized_operations=False).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_when_its_members_have_left(ask: Asker) -> None:
    ask.create("orders")
    join(ask, "a", "orders")
    (result,) = ask(DELETE_GROUPS, groups_names=["readers"]).results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    assert beat(ask, "a", -1).member_epoch == -1
    assert described(ask).group_state == "Empty"
    (result,) = ask(DELETE_GROUPS, groups_names=["readers"]).results
    assert result.error_code == 0
    assert described(ask).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_is_not_there_has_no_members_to_be_heard(ask: Asker) -> None:
    assert beat(ask, "a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(ask, "a", 1, group="").error_code == ErrorCode.INVALID_REQUEST
    assert described(ask).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_expression_finds_topics_that_come_later(ask: Asker) -> None:
    ask.create("orders-1")
    answer = join(ask, "a", subscribed_topic_regex="orders-[0-9]+", subscribed_topic_names=None)
    assert partitions(answer.assignment) == [0]
    ask.create("orders-2")
    ask.create("payments")
    later = beat(ask, "a", 1)
    assert (later.member_epoch, len(later.assignment.topic_partitions)) == (2, 2)
    refused = join(ask, "b", subscribed_topic_regex="(", subscribed_topic_names=None)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_members_go_on_where_they_were_after_the_broker_died(semel_broker: FaultyBroker, ask: Asker) -> None:
    topic = ask.create("orders", partitions=2)
    join(ask, "a", "orders")
    join(ask, "b", "orders")
    beat(ask, "a", 1)
    before = described(ask)
    semel_broker.kill()
    semel_broker.start()
    ask = Asker(semel_broker.bootstrap)
    assert described(ask) == before
    assert beat(ask, "a", 1, topic_partitions=owned(topic, 0)).member_epoch == 2
    assert partitions(beat(ask, "b", 2).assignment) == [1]
    semel_broker.restart()
    ask = Asker(semel_broker.bootstrap)
    assert described(ask).group_state == "Stable"
    assert beat(ask, "b", 2).error_code == 0
    ask.close()


def test_who_is_silent_for_too_long_is_gone_and_the_rest_goes_on() -> None:
    with FaultyBroker() as broker:
        half_a_session = Limits().consumer_group_session_timeout_ms / 1000 / 2 + 1
        ask = Asker(broker.bootstrap)
        ask.create("orders", partitions=2)
        join(ask, "a", "orders")
        epoch = join(ask, "b", "orders").member_epoch
        broker.skip(half_a_session)
        epoch = beat(ask, "b", epoch).member_epoch
        broker.skip(half_a_session)
        answer = beat(ask, "b", epoch)
        assert partitions(answer.assignment) == [0, 1]
        assert [member.member_id for member in described(ask).members] == ["b"]
        assert beat(ask, "a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        ask.close()


def test_members_have_their_whole_session_to_come_back_after_the_broker_died_and_no_longer() -> None:
    session_seconds = Limits().consumer_group_session_timeout_ms / 1000
    with FaultyBroker() as broker:
        with Asker(broker.bootstrap) as ask:
            ask.create("orders")
            join(ask, "a", "orders")
            broker.skip(session_seconds - 1)
        broker.kill()
        broker.restart()
        with Asker(broker.bootstrap) as ask:
            broker.skip(session_seconds - 1)
            assert [member.member_id for member in described(ask).members] == ["a"]
            broker.skip(2)
            assert described(ask).members == ()


@pytest.mark.parametrize(
    ("epoch", "error"), [(1, 0), (0, ErrorCode.STALE_MEMBER_EPOCH), (2, ErrorCode.STALE_MEMBER_EPOCH)]
)
def test_members_commit_in_their_epoch(ask: Asker, epoch: int, error: int) -> None:
    topic = ask.create("orders")
    join(ask, "a", "orders")
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = ask(
        OFFSET_COMMIT,
        group_id="readers",
        member_id="a",
        generation_id_or_member_epoch=epoch,
        topics=[{"name": "orders", "topic_id": topic.topic_id, "partitions": [offset]}],
    )
    assert answer.topics[0].partitions[0].error_code == error


def test_members_take_no_more_memory_than_they_may() -> None:
    with FaultyBroker(limits=Limits(group_bytes_max=5_000, groups_bytes_max=6_000)) as broker:
        ask = Asker(broker.bootstrap)
        assert join(ask, "a", "x" * 2_000).error_code == 0
        assert join(ask, "b", "x" * 2_000).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert join(ask, "a", "x" * 2_500).error_code == 0
        assert join(ask, "b", "orders").error_code == 0
        assert join(ask, "c", "x" * 1_000, group="others").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        beat(ask, "a", -1)
        assert join(ask, "c", "x" * 1_000, group="others").error_code == 0
        ask.close()


@pytest.mark.parametrize("limits", [Limits(group_bytes_max=5_000), Limits(groups_bytes_max=5_000)])
def test_each_limit_of_the_memory_of_members_counts_by_itself_and_after_a_restart(limits: Limits) -> None:
    group = "readers" if limits.group_bytes_max == 5_000 else "others"
    with FaultyBroker(limits=limits) as broker:
        with Asker(broker.bootstrap) as ask:
            assert join(ask, "a", "x" * 2_000).error_code == 0
        broker.restart()
        with Asker(broker.bootstrap) as ask:
            assert join(ask, "b", "x" * 2_000, group=group).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            beat(ask, "a", -1)
            assert join(ask, "b", "x" * 2_000, group=group).error_code == 0


def test_configurations_of_a_group_that_are_only_tried_change_nothing(ask: Asker) -> None:
    ask.create("orders")
    before = join(ask, "a", "orders").heartbeat_interval_ms
    configs = [{"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}]
    resource = {"resource_type": 32, "resource_name": "readers", "configs": configs}
    (tried,) = ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=True).responses
    assert tried.error_code == 0
    assert described_configs(ask) == {"consumer.heartbeat.interval.ms": "5000"}
    assert before == beat(ask, "a", 1).heartbeat_interval_ms


def described_configs(ask: Asker) -> dict[str, str]:
    resource = {
        "resource_type": 32,
        "resource_name": "readers",
        "configuration_keys": ["consumer.heartbeat.interval.ms"],
    }
    (answer,) = ask(
        DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    ).results
    return {one.name: one.value for one in answer.configs}


def test_the_memory_of_all_groups_is_one_whichever_protocol_they_speak() -> None:
    joining = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "reason": None,
    }
    classic = {**joining, "group_id": "classic", "member_id": "", "group_instance_id": None}
    with FaultyBroker(limits=Limits(groups_bytes_max=6_000)) as broker, Asker(broker.bootstrap) as ask:

        def join_classic(size: int) -> int:
            wish = [{"name": "range", "metadata": bytes(size)}]
            return int(ask(JOIN_GROUP, **classic, protocols=wish).error_code)

        assert join_classic(3_000) == ErrorCode.MEMBER_ID_REQUIRED
        assert join(ask, "a", "x" * 2_000).error_code == 0
        assert join_classic(3_000) == ErrorCode.GROUP_MAX_SIZE_REACHED
        beat(ask, "a", -1)
        assert join_classic(3_000) == ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_under_several_instance_ids_does_not_keep_the_broker_from_starting(semel_broker: FaultyBroker) -> None:
    """As any client may say it. Once it left an instance id behind that led to two members with one partition."""
    ask = Asker(semel_broker.bootstrap)
    ask.create("orders", partitions=2)
    join(ask, "m1", "orders", instance_id="x")
    assert join(ask, "m1", "orders", instance_id="y").error_code == ErrorCode.INVALID_REQUEST
    beat(ask, "m1", -1, instance_id="y")
    join(ask, "m1", "orders")
    beat(ask, "m1", -2, instance_id="x")
    join(ask, "m2", "orders", instance_id="x")
    beat(ask, "m1", -1)
    beat(ask, "m2", -1)
    semel_broker.kill()
    semel_broker.start()
    ask = Asker(semel_broker.bootstrap)
    assert partitions(join(ask, "m3", "orders", instance_id="x").assignment) == [0, 1]
    ask.close()


def test_members_of_a_group_with_configurations_of_its_own_live_by_those() -> None:
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    # At rest from the beginning, so that members are told the interval itself.
    limits = Limits(consumer_group_heartbeat_interval_in_motion_ms=60_000)
    with FaultyBroker(limits=limits) as broker, Asker(broker.bootstrap) as ask:
        ask.create("orders")
        configs = [{"name": session, "config_operation": 0, "value": "60000"}]
        configs += [{"name": interval, "config_operation": 0, "value": "7000"}]
        resource = {"resource_type": 32, "resource_name": "patient", "configs": configs}
        (altered,) = ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
        assert altered.error_code == 0
        intervals = [join(ask, "a", "orders", group=name).heartbeat_interval_ms for name in ("patient", "others")]
        assert intervals == [7000, 5000]
        broker.skip(46)
        assert beat(ask, "a", 1, group="patient").error_code == 0
        assert beat(ask, "a", 1, group="others").error_code == ErrorCode.UNKNOWN_MEMBER_ID
        broker.skip(59)
        assert beat(ask, "a", 1, group="patient").error_code == 0
        broker.skip(61)
        assert beat(ask, "a", 1, group="patient").error_code == ErrorCode.UNKNOWN_MEMBER_ID
