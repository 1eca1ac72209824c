"""ShareGroupDescribe: a share group with its members."""

from __future__ import annotations

from asking import Asker
from semel.wire.errors import ErrorCode
from semel.wire.versions import SHARE_GROUP_DESCRIBE
from sharing import sharer

REQUEST: dict[str, object] = {"group_ids": ["workers"], "include_authorized_operations": True}


def test_a_group_is_described_with_its_members(ask: Asker) -> None:
    ada = sharer(ask)
    (group,) = ask(SHARE_GROUP_DESCRIBE, **REQUEST).groups
    assert (group.group_state, group.assignor_name, group.group_epoch) == ("Stable", "simple", 1)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("ada", "asker", ("jobs",))
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (ada.topic_id, "jobs", (0,))


def test_an_unknown_group_is_an_error(ask: Asker) -> None:
    (group,) = ask(SHARE_GROUP_DESCRIBE, **REQUEST).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
