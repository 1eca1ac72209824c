"""ShareGroupHeartbeat: members come, are told where to look for records, and go."""

from __future__ import annotations

import pytest

from asking import Asker
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    SHARE_GROUP_DESCRIBE,
)
from sharing import Sharer, another, sharer

REQUEST: dict[str, object] = {
    "group_id": "workers",
    "member_id": "ada",
    "member_epoch": 0,
    "rack_id": None,
    "subscribed_topic_names": ["orders"],
}


def test_a_member_is_told_where_to_look_and_shares_it_with_others(ask: Asker) -> None:
    topic = ask.create("jobs")
    for member_id in ("ada", "bob"):
        answer = Sharer(ask, topic.topic_id, member_id).beat(0, "jobs")
        assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms > 0) == (0, member_id, True)
        (told,) = answer.assignment.topic_partitions
        assert (told.topic_id, told.partitions) == (topic.topic_id, (0,))


def test_a_group_is_listed_and_goes_only_when_it_is_deleted(ask: Asker) -> None:
    ada = sharer(ask)
    (listed,) = ask(LIST_GROUPS, states_filter=[], types_filter=["share"]).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("workers", "Stable", "share")
    assert ask(DELETE_GROUPS, groups_names=["workers"]).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert ada.beat(-1).member_epoch == -1
    assert ask(DELETE_GROUPS, groups_names=["workers"]).results[0].error_code == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_epoch": 7}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": 1, "member_id": "eve"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 1, "group_id": "others"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_heartbeat_is_refused(ask: Asker, change: dict[str, object], error: ErrorCode) -> None:
    sharer(ask)
    assert ask(76, **{**REQUEST, **change}).error_code == error


def test_a_silent_member_is_removed(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask)
    semel_broker.skip(45.0)
    bob = another(ada, "bob")
    assert ada.beat(1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (group,) = ask(SHARE_GROUP_DESCRIBE, group_ids=["workers"], include_authorized_operations=False).groups
    assert [member.member_id for member in group.members] == [bob.member_id]


def test_a_full_group_refuses_a_newcomer_only() -> None:
    with FaultyBroker(limits=Limits(share_group_members_max=1)) as broker, Asker(broker.bootstrap) as ask:
        ada = sharer(ask)
        assert Sharer(ask, ada.topic_id, "bob").beat(0, "jobs").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert ada.beat(1).error_code == 0


def test_groups_of_other_types_and_share_groups_do_not_become_each_other(ask: Asker) -> None:
    ada = sharer(ask)
    ada.beat(-1)
    joined = ask(
        CONSUMER_GROUP_HEARTBEAT,
        group_id="workers",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["jobs"],
        topic_partitions=[],
    )
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    protocols = [{"name": "range", "metadata": b""}]
    classic = ask(
        JOIN_GROUP,
        group_id="workers",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    assert classic.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    committed = ask(OFFSET_COMMIT, 9, group_id="workers", topics=[commit("jobs")])
    assert committed.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    ask(OFFSET_COMMIT, 9, group_id="readers", topics=[commit("jobs")])
    assert Sharer(ask, ada.topic_id, "ada", "readers").beat(0, "jobs").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def commit(topic: str) -> dict[str, object]:
    return {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
