"""Share groups: members share partitions, and nobody waits for anybody. Their share partitions outlive restarts."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.entries import (
    GroupDeleted,
    MembersChanged,
    PartitionName,
    ShareBatch,
    ShareChange,
    ShareStart,
    ShareStartsSet,
    ShareStatesChanged,
    TopicDeleted,
)
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.assignors import Reader, assign_shares
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.groups import Groups
from semel.log.core.groups.offsets import Committer
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.groups.share import ShareGroup
from semel.log.core.groups.share_partition import ACQUIRED, DONE
from semel.log.core.topics import Catalog
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import FENCED_MEMBER_EPOCH, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, Refused
from semel.wire.steps import finish

RULES = MemberRules()


class Room:
    """The groups of a broker with one topic of so many partitions, and the share group `workers`."""

    def __init__(self, partition_count: int = 2) -> None:
        self.catalog = Catalog(topics_max=10, partitions_max=100)
        self.catalog.apply(self.catalog.decide_create("jobs", partition_count, {}, bytes(16), 0))
        self.number = self.catalog.named("jobs").number  # type: ignore[union-attr]
        self.groups = Groups()

    @property
    def group(self) -> ShareGroup:
        return self.groups.share("workers")

    def beat(self, member_id: str, epoch: int, names: tuple[str, ...] | None = None) -> MembersChanged | None:
        beat = Heartbeat(member_id, epoch, "client", "/host", topic_names=names, owned=NOTHING)
        if beat.leaves:
            entry = self.group.decide_leave("workers", beat, self.catalog, 0)
        else:
            entry = self.group.decide_heartbeat("workers", beat, self.catalog, RULES, 0)
        if entry is not None:
            kind, parts = encode(entry)
            again = decode(kind, memoryview(b"".join(parts)))
            assert type(again) is type(entry)
            self.groups.check(again)
            self.groups.apply(again)
        return entry

    def held(self) -> dict[str, list[int]]:
        return {member_id: [index for _, index in member.held] for member_id, member in self.group.members.items()}


def test_members_share_the_partitions_if_there_are_more_members_than_partitions() -> None:
    room = Room(partition_count=1)
    for member_id in ("ada", "bob", "cid"):
        room.beat(member_id, 0, ("jobs",))
    assert room.held()["cid"] == [0]
    for member_id in ("ada", "bob"):
        room.beat(member_id, room.group.members[member_id].epoch)
    assert room.held() == {"ada": [0], "bob": [0], "cid": [0]}
    assert room.group.state_name == "Stable"


def test_a_member_moves_to_its_target_at_once_and_gives_up_nothing_first() -> None:
    room = Room()
    room.beat("ada", 0, ("jobs",))
    assert room.held() == {"ada": [0, 1]}
    room.beat("bob", 0, ("jobs",))
    assert room.held()["bob"] == [1]
    assert room.beat("ada", 1) is not None
    assert room.held() == {"ada": [0], "bob": [1]}


def test_an_answer_that_was_lost_may_be_asked_for_again_but_no_other_epoch_counts() -> None:
    room = Room()
    room.beat("ada", 0, ("jobs",))
    room.beat("bob", 0, ("jobs",))
    room.beat("ada", 1)
    assert room.beat("ada", 1) is None
    for epoch in (7, 3):
        with pytest.raises(Refused) as refused:
            room.beat("ada", epoch)
        assert refused.value.error == FENCED_MEMBER_EPOCH
    with pytest.raises(Refused) as refused:
        room.beat("eve", 1)
    assert refused.value.error == UNKNOWN_MEMBER_ID


def test_an_empty_group_stays_and_has_no_offsets_to_commit() -> None:
    room = Room()
    room.beat("ada", 0, ("jobs",))
    room.beat("ada", -1)
    group = room.groups.existing("workers")
    assert (group.is_empty, room.group.state_name) == (True, "Empty")
    assert list(room.groups.decide_expiry(group, 10**15, 1, lambda _: "jobs")) == []
    with pytest.raises(Refused) as refused:
        group.check_commit(Committer("", None, -1, False, 9))
    assert refused.value.error == GROUP_ID_NOT_FOUND


def test_share_partitions_are_in_the_checkpoint_and_are_counted() -> None:
    room = Room()
    room.groups.apply(ShareStartsSet("workers", (ShareStart(room.number, 0, 5), ShareStart(room.number, 1, 0))))
    acquired = ShareStatesChanged("workers", (ShareChange(room.number, 0, (ShareBatch(5, 9, ACQUIRED, 1),)),))
    room.groups.check(acquired)
    room.groups.apply(acquired)
    room.groups.apply(ShareStatesChanged("workers", (ShareChange(room.number, 0, (ShareBatch(5, 6, DONE, 1),)),)))
    assert (room.groups.shares.partitions, room.groups.shares.records) == (2, 3)
    snapshot = room.groups.begin_snapshot()
    finish(room.groups.take_all())
    again = Groups()
    again.restore(json.loads(json.dumps(snapshot)))
    partition = again.share("workers").partition(PartitionName(room.number, 0))
    assert partition is not None
    assert [run[:2] for run in partition.runs()] == [(7, 9)]
    assert (again.shares.partitions, again.shares.records) == (2, 3)


@pytest.mark.parametrize("end", [TopicDeleted, GroupDeleted, ShareStartsSet])
def test_share_partitions_go_with_their_topic_their_group_or_on_request(end: type) -> None:
    room = Room()
    room.groups.apply(ShareStartsSet("workers", (ShareStart(room.number, 0, 5),)))
    room.groups.apply(
        {
            TopicDeleted: TopicDeleted(room.number, 0, 0),
            GroupDeleted: GroupDeleted("workers"),
            ShareStartsSet: ShareStartsSet("workers", (ShareStart(room.number, 0, -1),)),
        }[end]
    )
    assert room.groups.shares.partitions == 0
    assert not any(True for _ in room.group.partitions())


def test_an_entry_for_a_share_partition_that_nobody_began_is_damage() -> None:
    room = Room()
    with pytest.raises(ValueError, match="no share partition"):
        room.groups.check(ShareStatesChanged("workers", (ShareChange(room.number, 0, ()),)))
    room.groups.classic("readers")
    with pytest.raises(ValueError, match="no share group"):
        room.groups.check(ShareStartsSet("readers", ()))


@given(
    partition_counts=st.dictionaries(st.integers(1, 4), st.integers(1, 5), min_size=1),
    wishes=st.lists(st.frozensets(st.integers(1, 4), min_size=1), min_size=1, max_size=9),
)
def test_every_partition_is_read_and_members_with_the_same_topics_have_nearly_equally_many(
    partition_counts: dict[int, int], wishes: list[frozenset[int]]
) -> None:
    readers = {f"m{place}": Reader(topics, NOTHING) for place, topics in enumerate(wishes)}
    given_to = finish(assign_shares(readers, partition_counts))
    for topics in set(wishes):
        alike = [given_to[member_id] for member_id, reader in readers.items() if reader.topics == topics]
        names = {PartitionName(n, i) for n in topics for i in range(partition_counts.get(n, 0))}
        assert set(Partitions.union(alike)) == names
        shared = Counter(name for partitions in alike for name in partitions)
        if names:
            assert max(shared.values()) - min(shared.values()) <= 1
            assert max(map(len, alike)) - min(map(len, alike)) <= 1
            assert min(map(len, alike)) >= 1
