"""Groups keep their offsets: each promise by itself."""

import json
from typing import Any

import pytest

from log_contents import snapshot_of
from semel.log.core.entries import (
    GroupDeleted,
    OffsetsForgotten,
    PartitionName,
    StoredOffset,
    TopicDeleted,
    TransactionalOffsets,
    TransactionEnded,
)
from semel.log.core.groups.group import FORGOTTEN_AT_ONCE, Group
from semel.log.core.groups.groups import Groups
from semel.log.core.groups.offsets import DEFAULT_RETENTION, Committer
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused

ORDERS, PAYMENTS = 1, 2
TOPIC_NAMES = {ORDERS: "orders", PAYMENTS: "payments"}
RETENTION_MS = 1_000
PRODUCER, OTHER_PRODUCER = 7, 8


def offset(value: int, partition: int = 0, *, number: int = ORDERS, metadata: str = "") -> StoredOffset:
    return StoredOffset(number, partition, value, 0, metadata)


def commit(
    groups: Groups, *offsets: StoredOffset, group: str = "readers", at_ms: int = 0, wish_ms: int = DEFAULT_RETENTION
) -> None:
    groups.apply(groups.decide_commit(group, offsets, at_ms, retention_ms=wish_ms))


def commit_in_transaction(groups: Groups, *offsets: StoredOffset, producer_id: int = PRODUCER, at_ms: int = 0) -> None:
    groups.apply(TransactionalOffsets(producer_id, 0, "readers", offsets, at_ms))


def end(groups: Groups, *, committed: bool, producer_id: int = PRODUCER, names: tuple[str, ...] = ("readers",)) -> None:
    groups.apply(TransactionEnded(producer_id, 0, producer_id, 0, committed, (), names, 0))


def committed(groups: Groups, partition: int = 0, *, number: int = ORDERS, group: str = "readers") -> int | None:
    known = groups.existing(group).offsets.committed.get(PartitionName(number, partition))
    return None if known is None else known.offset


def expire(groups: Groups, now_ms: int) -> list[OffsetsForgotten | GroupDeleted]:
    """Forget what is too old, and answer the entries."""
    entries = []
    for group in list(groups):
        for entry in groups.decide_expiry(group, now_ms, RETENTION_MS, TOPIC_NAMES.__getitem__):
            groups.apply(entry)
            entries.append(entry)
    return entries


class Members:
    """Members as far as offsets need to know them."""

    def __init__(self, *topics: str, is_empty: bool = False, retention_begins_ms: int | None = None) -> None:
        self.topics = topics
        self.is_empty = is_empty
        self.is_stored = False
        self.group_type = "classic"
        self.state_name = "Stable"
        self.protocol_type = "consumer"
        self._retention_begins_ms = retention_begins_ms

    def check_commit(self, who: Committer) -> None:
        if who.member_id != "m1":
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "not a member")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_forget(self) -> None: ...

    def is_subscribed_to(self, topic_name: str) -> bool:
        return topic_name in self.topics

    def retention_begins_ms(self, committed_at_ms: int) -> int | None:
        return self._retention_begins_ms

    def snapshot(self) -> dict[str, Any]:
        return {}


def with_members(groups: Groups, members: Members) -> Group:
    group = groups.add("readers")
    group.machine = members
    return group


def test_the_last_commit_of_a_partition_counts() -> None:
    groups = Groups()
    commit(groups, offset(5), offset(6, 1))
    commit(groups, offset(3), offset(4))
    assert (committed(groups), committed(groups, 1), groups.offset_count) == (4, 6, 2)


def test_offsets_of_a_transaction_count_when_it_is_committed_and_not_before() -> None:
    groups = Groups()
    commit(groups, offset(1))
    commit_in_transaction(groups, offset(5), offset(6, 1))
    assert (committed(groups), committed(groups, 1)) == (1, None)
    assert groups.existing("readers").offsets.is_pending(PartitionName(ORDERS, 0))
    end(groups, committed=True)
    assert (committed(groups), committed(groups, 1)) == (5, 6)
    assert not groups.existing("readers").offsets.is_pending(PartitionName(ORDERS, 0))
    assert groups.offset_count == 2


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    groups = Groups()
    commit(groups, offset(1))
    commit_in_transaction(groups, offset(5), offset(6, 1))
    end(groups, committed=False)
    end(groups, committed=True)
    assert (committed(groups), committed(groups, 1), groups.offset_count) == (1, None, 1)


def test_the_end_of_one_transaction_is_not_that_of_another() -> None:
    groups = Groups()
    commit_in_transaction(groups, offset(5))
    commit_in_transaction(groups, offset(6), producer_id=OTHER_PRODUCER)
    end(groups, committed=True)
    assert committed(groups) == 5
    assert groups.existing("readers").offsets.is_pending(PartitionName(ORDERS, 0))
    end(groups, committed=False, producer_id=OTHER_PRODUCER)
    assert committed(groups) == 5


def test_a_plain_commit_is_not_undone_by_the_end_of_a_transaction_from_before() -> None:
    groups = Groups()
    commit_in_transaction(groups, offset(5))
    commit_in_transaction(groups, offset(6), producer_id=OTHER_PRODUCER)
    commit(groups, offset(9))
    end(groups, committed=True)
    end(groups, committed=True, producer_id=OTHER_PRODUCER)
    assert committed(groups) == 9


def test_of_two_transactions_the_one_that_committed_its_offset_later_counts_whichever_ends_first() -> None:
    for first, second in ((PRODUCER, OTHER_PRODUCER), (OTHER_PRODUCER, PRODUCER)):
        groups = Groups()
        commit_in_transaction(groups, offset(5))
        commit_in_transaction(groups, offset(6), producer_id=OTHER_PRODUCER)
        end(groups, committed=True, producer_id=first)
        end(groups, committed=True, producer_id=second)
        assert committed(groups) == 6


def test_the_offsets_of_a_deleted_topic_are_gone_pending_ones_too() -> None:
    groups = Groups()
    commit(groups, offset(1), offset(2, number=PAYMENTS, metadata="note"))
    commit_in_transaction(groups, offset(3), offset(4, number=PAYMENTS))
    groups.apply(TopicDeleted(PAYMENTS, 0, 0))
    end(groups, committed=True)
    assert (committed(groups), committed(groups, number=PAYMENTS), groups.offset_count) == (3, None, 1)


def test_forgotten_offsets_do_not_come_back_with_the_end_of_a_transaction() -> None:
    groups = Groups()
    commit(groups, offset(1), offset(2, 1))
    commit_in_transaction(groups, offset(3))
    group = groups.existing("readers")
    entry = group.decide_forget("orders", [PartitionName(ORDERS, partition) for partition in (0, 0, 2)])
    assert entry == OffsetsForgotten("readers", (PartitionName(ORDERS, 0),))
    groups.apply(entry)
    end(groups, committed=True)
    assert (committed(groups), committed(groups, 1)) == (None, 2)
    assert group.decide_forget("orders", [PartitionName(ORDERS, 0)]) is None


def test_offsets_of_a_topic_that_members_read_are_not_forgotten() -> None:
    groups = Groups()
    commit(groups, offset(1))
    group = with_members(groups, Members("orders"))
    with pytest.raises(Refused) as refusal:
        group.decide_forget("orders", [PartitionName(ORDERS, 0)])
    assert refusal.value.error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_deleted_group_takes_its_offsets_along_and_a_late_end_finds_nothing() -> None:
    groups = Groups()
    commit(groups, offset(1))
    commit_in_transaction(groups, offset(5))
    groups.apply(GroupDeleted("readers"))
    end(groups, committed=True)
    groups.apply(GroupDeleted("readers"))
    groups.apply(OffsetsForgotten("readers", (PartitionName(ORDERS, 0),)))
    assert (len(groups), groups.offset_count) == (0, 0)
    with pytest.raises(Refused) as refusal:
        groups.existing("readers")
    assert refusal.value.error == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_snapshot_that_is_taken_bit_by_bit_is_of_the_moment_at_which_it_was_begun() -> None:
    groups = Groups()
    for name in ("first", "second", "third", "fourth"):
        commit(groups, offset(1), offset(2, number=PAYMENTS), group=name)
    before = json.dumps(snapshot_of(groups)["groups"])
    snapshot = groups.begin_snapshot()
    steps = groups.take_all()
    assert next(steps) > 0
    groups.apply(GroupDeleted("second"))
    commit(groups, offset(9), group="second")
    groups.consumer("third")
    groups.apply(TopicDeleted(PAYMENTS, 0, 0))
    commit(groups, offset(9), group="new")
    assert sum(steps) == 0
    assert json.dumps(snapshot["groups"]) == before


def test_those_who_have_offsets_in_a_topic_that_is_to_go_are_taken_before_one_by_one() -> None:
    groups = Groups()
    for name, number in (("one", ORDERS), ("two", PAYMENTS), ("three", PAYMENTS)):
        commit(groups, offset(1, number=number), group=name)
    snapshot = groups.begin_snapshot()
    assert len([pieces for pieces in groups.take_readers(PAYMENTS) if pieces]) == 2
    assert [kept["name"] for kept in snapshot["groups"]] == ["two", "three"]
    groups.apply(TopicDeleted(PAYMENTS, 0, 0))
    assert [kept["name"] for kept in snapshot["groups"]] == ["two", "three"]


def test_what_happens_after_a_snapshot_does_not_change_it() -> None:
    groups = Groups()
    commit(groups, offset(1), offset(2, 1), offset(3, number=PAYMENTS))
    commit_in_transaction(groups, offset(9, 2))
    snapshot = snapshot_of(groups)
    before = json.dumps(snapshot)
    commit(groups, offset(4), offset(5, 3))
    end(groups, committed=True)
    groups.apply(OffsetsForgotten("readers", (PartitionName(ORDERS, 1),)))
    groups.apply(TopicDeleted(PAYMENTS, 0, 0))
    commit(groups, offset(6, number=PAYMENTS))
    assert json.dumps(snapshot) == before
    kept = Groups()
    kept.restore(json.loads(before))
    assert (committed(kept), committed(kept, 1), committed(kept, number=PAYMENTS), kept.offset_count) == (1, 2, 3, 4)
    groups.apply(GroupDeleted("readers"))
    assert json.dumps(snapshot) == before


# Who may commit


@pytest.mark.parametrize("transactional", [False, True])
def test_a_group_without_members_takes_commits_from_whoever_is_no_member(transactional: bool) -> None:
    groups = Groups()
    for _ in range(2):
        groups.check_commit("readers", Committer("", None, -1, is_transactional=transactional, version=9))
        commit(groups, offset(1))


def test_a_member_of_a_group_that_is_not_there_is_told_so() -> None:
    groups = Groups()
    with pytest.raises(Refused) as refusal:
        groups.check_commit("readers", Committer("m1", None, 3, is_transactional=False, version=9))
    assert refusal.value.error == ErrorCode.GROUP_ID_NOT_FOUND
    commit(groups, offset(1))
    with pytest.raises(Refused) as refusal:
        groups.check_commit("readers", Committer("m1", None, 3, is_transactional=False, version=9))
    assert refusal.value.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_that_names_generation_0_is_one_of_a_member_whether_the_group_is_there_or_not() -> None:
    groups = Groups()
    for error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID):
        with pytest.raises(Refused) as refusal:
            groups.check_commit("readers", Committer("m1", None, 0, is_transactional=False, version=9))
        assert refusal.value.error == error
        commit(groups, offset(1))


def test_where_there_are_members_they_say_who_may_commit() -> None:
    groups = Groups()
    with_members(groups, Members())
    groups.check_commit("readers", Committer("m1", None, 3, is_transactional=False, version=9))
    with pytest.raises(Refused) as refusal:
        groups.check_commit("readers", Committer("", None, -1, is_transactional=False, version=9))
    assert refusal.value.error == ErrorCode.UNKNOWN_MEMBER_ID


# Bounds


def test_groups_are_bounded_and_those_that_are_there_go_on() -> None:
    groups = Groups(groups_max=1)
    commit(groups, offset(1))
    with pytest.raises(Refused) as refusal:
        commit(groups, offset(1), group="writers")
    assert refusal.value.error == ErrorCode.POLICY_VIOLATION
    commit(groups, offset(2))
    assert (len(groups), committed(groups)) == (1, 2)


def test_offsets_are_bounded_pending_ones_among_them() -> None:
    groups = Groups(offsets_max=3)
    commit(groups, offset(1), offset(1, 1))
    commit_in_transaction(groups, offset(5, 2))
    with pytest.raises(Refused) as refusal:
        commit(groups, offset(1, 3))
    assert refusal.value.error == ErrorCode.POLICY_VIOLATION
    # What is known already takes no more room, or a full broker could not get on.
    commit(groups, offset(2), offset(2, 1))
    end(groups, committed=False)
    commit(groups, offset(1, 3))
    assert groups.offset_count == 3


def test_offsets_of_transactions_are_bounded_with_all_others_and_replace_themselves_in_a_full_broker() -> None:
    groups = Groups(offsets_max=3)
    commit(groups, offset(1))
    commit_in_transaction(groups, offset(5), offset(5, 1))
    for producer_id, more in ((PRODUCER, offset(5, 2)), (OTHER_PRODUCER, offset(5))):
        with pytest.raises(Refused) as refusal:
            groups.check_offsets("readers", [more], producer_id)
        assert refusal.value.error == ErrorCode.POLICY_VIOLATION
    groups.check_offsets("readers", [offset(6), offset(6, 1)], PRODUCER)


def test_a_transaction_has_no_more_offsets_over_a_restart() -> None:
    groups = Groups()
    commit_in_transaction(groups, offset(5), offset(5, 1))
    again = Groups(transaction_offsets_max=2)
    again.restore(json.loads(json.dumps(snapshot_of(groups))))
    with pytest.raises(Refused) as refusal:
        again.check_offsets("readers", [offset(5, 2)], PRODUCER)
    assert refusal.value.error == ErrorCode.POLICY_VIOLATION
    end(again, committed=True)
    again.check_offsets("readers", [offset(6, 1), offset(6, 2)], PRODUCER)


def test_metadata_that_the_end_of_a_transaction_replaces_makes_room() -> None:
    groups = Groups(metadata_characters_total_max=10)
    commit(groups, offset(1, metadata="12345678"))
    commit_in_transaction(groups, offset(2, metadata="12"))
    end(groups, committed=True)
    commit(groups, offset(1, 1, metadata="12345678"))


def test_what_is_noted_beside_all_offsets_is_bounded() -> None:
    groups = Groups(metadata_characters_total_max=10)
    commit(groups, offset(1, metadata="12345678"))
    with pytest.raises(Refused) as refusal:
        commit(groups, offset(1, 1, metadata="123"))
    assert refusal.value.error == ErrorCode.OFFSET_METADATA_TOO_LARGE
    commit(groups, offset(2, metadata="123"))
    commit(groups, offset(1, 1, metadata="1234567"))


# Expiry


def test_an_offset_without_members_is_forgotten_when_it_is_too_old_and_the_group_with_its_last() -> None:
    groups = Groups()
    commit(groups, offset(1), at_ms=0)
    commit(groups, offset(2, 1), at_ms=500)
    assert expire(groups, 999) == []
    assert expire(groups, 1_000) == [OffsetsForgotten("readers", (PartitionName(ORDERS, 0),))]
    assert expire(groups, 1_500) == [OffsetsForgotten("readers", (PartitionName(ORDERS, 1),)), GroupDeleted("readers")]
    assert len(groups) == 0


def test_the_wish_of_an_old_client_counts_from_the_commit() -> None:
    groups = Groups()
    commit(groups, offset(1), at_ms=100, wish_ms=50)
    commit(groups, offset(2, 1), at_ms=100, wish_ms=5_000)
    assert expire(groups, 149) == []
    assert expire(groups, 150) == [OffsetsForgotten("readers", (PartitionName(ORDERS, 0),))]
    assert expire(groups, 5_099) == []
    assert committed(groups, 1) == 2


def test_an_old_client_that_wants_its_offset_kept_for_no_time_at_all_is_obeyed() -> None:
    groups = Groups()
    commit(groups, offset(1), at_ms=100, wish_ms=0)
    assert expire(groups, 99) == []
    assert expire(groups, 100) == [OffsetsForgotten("readers", (PartitionName(ORDERS, 0),)), GroupDeleted("readers")]


def test_what_members_read_is_kept_however_old_and_the_rest_is_not() -> None:
    groups = Groups()
    commit(groups, offset(1), offset(2, number=PAYMENTS))
    with_members(groups, Members("orders", retention_begins_ms=0))
    assert expire(groups, 10_000) == [OffsetsForgotten("readers", (PartitionName(PAYMENTS, 0),))]
    assert committed(groups) == 1


def test_while_members_are_at_odds_nothing_is_forgotten() -> None:
    groups = Groups()
    commit(groups, offset(1))
    with_members(groups, Members(retention_begins_ms=None))
    assert expire(groups, 10**9) == []


def test_the_offsets_of_a_group_count_from_when_its_last_member_left_or_from_a_later_commit() -> None:
    groups = Groups()
    commit(groups, offset(1), at_ms=0)
    with_members(groups, Members(is_empty=True, retention_begins_ms=600))
    assert expire(groups, 1_599) == []
    commit(groups, offset(2, 1), at_ms=1_500)
    assert expire(groups, 1_600) == [OffsetsForgotten("readers", (PartitionName(ORDERS, 0),))]
    assert expire(groups, 2_499) == []
    assert expire(groups, 2_500)[-1] == GroupDeleted("readers")


def test_an_offset_that_is_set_while_the_old_ones_of_a_long_empty_group_are_forgotten_is_kept() -> None:
    groups = Groups()
    with_members(groups, Members(is_empty=True, retention_begins_ms=600))
    commit(groups, *(offset(1, partition) for partition in range(FORGOTTEN_AT_ONCE + 2)))
    entries = groups.decide_expiry(groups.existing("readers"), 10_000, RETENTION_MS, TOPIC_NAMES.__getitem__)
    groups.apply(next(entries))
    commit(groups, offset(7, FORGOTTEN_AT_ONCE), at_ms=10_000)
    for entry in entries:
        groups.apply(entry)
    assert (committed(groups, FORGOTTEN_AT_ONCE), groups.offset_count) == (7, 1)


def test_an_offset_that_a_transaction_may_still_move_is_kept() -> None:
    groups = Groups()
    commit(groups, offset(1))
    commit_in_transaction(groups, offset(2))
    assert expire(groups, 10_000) == []
    end(groups, committed=False)
    assert expire(groups, 10_000)[-1] == GroupDeleted("readers")


def test_a_group_of_which_nothing_is_left_goes_and_one_with_members_stays() -> None:
    groups = Groups()
    groups.add("readers")
    with_members(groups, Members(is_empty=False))
    groups.add("gone")
    assert expire(groups, 0) == [GroupDeleted("gone")]
    assert [group.name for group in groups] == ["readers"]
