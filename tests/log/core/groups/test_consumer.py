"""The rules of consumer groups, one at a time: who may join, stay, come back and commit, and who is fenced."""

from dataclasses import replace

import pytest

from refusal import refused
from semel.log.core.entries import ConsumerGroupChanged, PartitionName
from semel.log.core.groups import consumer_requests
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import AWAY_EPOCH, JOIN_EPOCH, STABLE, UNRELEASED, UNREVOKED
from semel.log.core.groups.consumer_requests import LEAVE_EPOCH, Heartbeat
from semel.log.core.groups.consumer_topics import EXPRESSIONS_MAX
from semel.log.core.groups.offsets import Committer
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.wire import refusals

RULES = MemberRules(members_max=3)


class Room:
    """A group with the topics it may read, where time stands still until it is moved."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.group = ConsumerGroup()
        self.now_ms = 0
        self.rules = RULES

    def topic(self, name: str, count: int) -> None:
        topic_id = name.encode().ljust(16)
        self.catalog.apply(self.catalog.decide_create(name, count, {}, topic_id, 0))

    def beat(self, member_id: str, epoch: int, **said: object) -> ConsumerGroupChanged | None:
        beat = replace(Heartbeat(member_id, epoch, "client", "/host"), **said)  # type: ignore[arg-type]
        consumer_requests.check(beat)
        entry = self.group.decide_heartbeat("group", beat, self.catalog, self.rules, self.now_ms)
        return self._kept(entry, member_id)

    def join(self, member_id: str, *names: str, **said: object) -> ConsumerGroupChanged | None:
        fields = {"rebalance_timeout_ms": 1000, "topic_names": names, "owned": NOTHING, **said}
        return self.beat(member_id, JOIN_EPOCH, **fields)

    def leave(self, member_id: str, epoch: int = LEAVE_EPOCH, instance_id: str | None = None) -> None:
        beat = Heartbeat(member_id, epoch, "", "", instance_id=instance_id)
        consumer_requests.check(beat)
        self._kept(self.group.decide_leave("group", beat, self.catalog, self.now_ms), member_id)

    def _kept(self, entry: ConsumerGroupChanged | None, member_id: str) -> ConsumerGroupChanged | None:
        if entry is not None:
            self.group.apply(entry)
        self.group.hear(member_id, RULES, self.now_ms)
        return entry

    def epoch(self, member_id: str) -> int:
        return self.group.members[member_id].epoch

    def state(self, member_id: str) -> int:
        return self.group.members[member_id].position.state

    def held(self, member_id: str) -> set[int]:
        return {name.partition for name in self.group.members[member_id].held}


@pytest.fixture
def room() -> Room:
    room = Room()
    room.topic("orders", 4)
    return room


def owned(*indexes: int) -> Partitions:
    return Partitions.of(PartitionName(0, index) for index in indexes)


def test_who_is_alone_gets_everything_at_once(room: Room) -> None:
    room.join("a", "orders")
    assert (room.epoch("a"), room.state("a"), room.held("a")) == (1, STABLE, {0, 1, 2, 3})


def test_a_partition_changes_hands_when_its_member_has_let_go_and_not_before(room: Room) -> None:
    room.join("a", "orders")
    room.join("b", "orders")
    assert (room.epoch("b"), room.state("b"), room.held("b")) == (2, UNRELEASED, set())
    room.beat("a", 1)
    assert (room.epoch("a"), room.state("a"), room.held("a")) == (1, UNREVOKED, {0, 1})
    room.beat("a", 1)
    room.beat("b", 2)
    assert room.held("b") == set()
    room.beat("a", 1, owned=owned(0, 1))
    assert (room.epoch("a"), room.state("a")) == (2, STABLE)
    room.beat("b", 2)
    assert (room.state("b"), room.held("b"), room.group.state_name) == (STABLE, {2, 3}, "Stable")


def test_a_heartbeat_that_says_nothing_new_changes_nothing(room: Room) -> None:
    room.join("a", "orders")
    assert room.beat("a", 1) is None
    assert room.beat("a", 1, owned=owned(0, 1, 2, 3)) is None
    assert room.join("a", "orders") is None


def test_a_member_whose_answer_was_lost_may_say_it_again_in_the_epoch_before(room: Room) -> None:
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    room.beat("a", 1, owned=owned(0, 1))
    assert room.epoch("a") == 2
    room.beat("a", 1, owned=owned(0, 1))
    with refused(refusals.FENCED_MEMBER_EPOCH):
        room.beat("a", 1)
    with refused(refusals.FENCED_MEMBER_EPOCH):
        room.beat("a", 1, owned=owned(0, 1, 2))


def test_who_is_ahead_or_far_behind_is_fenced(room: Room) -> None:
    room.join("a", "orders")
    room.beat("a", 1, topic_names=())
    room.beat("a", 1, owned=NOTHING)
    with refused(refusals.FENCED_MEMBER_EPOCH):
        room.beat("a", 7)
    room.beat("a", 2, topic_names=("orders",))
    with refused(refusals.FENCED_MEMBER_EPOCH):
        room.beat("a", 1, owned=NOTHING)


def test_what_was_said_in_the_epoch_before_takes_no_partition_away(room: Room) -> None:
    """Seen by Hypothesis: a heartbeat that was on its way for long speaks of what was read before this epoch began."""
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    room.beat("a", 1, owned=owned(0, 1))
    room.leave("b")
    room.beat("a", 2)
    assert (room.epoch("a"), room.held("a")) == (3, {0, 1, 2, 3})
    room.join("b", "orders")
    with refused(refusals.FENCED_MEMBER_EPOCH):
        room.beat("a", 2, owned=owned(0, 1))
    assert room.held("a") == {0, 1, 2, 3}


def test_who_is_not_known_cannot_stay_and_cannot_leave(room: Room) -> None:
    room.join("a", "orders")
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.beat("b", 1)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.leave("b")


def test_a_group_that_is_full_takes_nobody_in(room: Room) -> None:
    for member_id in "abc":
        room.join(member_id, "orders")
    with refused(refusals.GROUP_MAX_SIZE_REACHED):
        room.join("d", "orders")
    room.beat("c", room.epoch("c"))


@pytest.mark.parametrize(
    "said",
    [
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": owned(0)},
        {"topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"topic_names": ("x" * 300_000,)},
    ],
)
def test_who_joins_says_all_there_is_to_say(room: Room, said: dict[str, object]) -> None:
    with refused(refusals.INVALID_REQUEST):
        room.join("a", "orders", **said)


def test_a_member_without_an_id_or_with_an_epoch_that_is_none_is_refused(room: Room) -> None:
    with refused(refusals.INVALID_REQUEST):
        room.join("", "orders")
    with refused(refusals.INVALID_REQUEST):
        room.beat("a", -3)
    with refused(refusals.INVALID_REQUEST):
        room.leave("a", AWAY_EPOCH)


def test_assignors_are_those_of_the_broker(room: Room) -> None:
    with refused(refusals.UNSUPPORTED_ASSIGNOR):
        room.join("a", "orders", assignor="sticky")
    room.join("a", "orders", assignor="range")
    assert room.group.assignor == "range"


def test_an_expression_that_is_none_is_refused(room: Room) -> None:
    with refused(refusals.INVALID_REGULAR_EXPRESSION):
        room.join("a", topic_regex="(")
    assert room.group.is_empty


def test_a_group_has_only_so_many_expressions(room: Room) -> None:
    room.rules = replace(room.rules, members_max=EXPRESSIONS_MAX + 2)
    for index in range(EXPRESSIONS_MAX):
        room.join(str(index), topic_regex=f"orders{index}?")
    room.join("like another", topic_regex="orders1?")
    with refused(refusals.GROUP_MAX_SIZE_REACHED):
        room.join("different", topic_regex="orders")
    room.leave("0")
    room.join("different", topic_regex="orders")


def test_topics_that_come_grow_and_go_are_noticed(room: Room) -> None:
    room.join("a", topic_regex="ord.*")
    room.topic("ordinary", 1)
    room.beat("a", 1)
    assert len(room.group.members["a"].held) == 5
    room.catalog.apply(room.catalog.decide_partitions("orders", 6))
    room.beat("a", 2)
    assert len(room.group.members["a"].held) == 7
    room.catalog.apply(room.catalog.decide_delete("orders", 0, 0))
    room.beat("a", 3)
    room.beat("a", 3, owned=Partitions.of([PartitionName(1, 0)]))
    assert set(room.group.members["a"].held) == {PartitionName(1, 0)}
    room.topic("else", 1)
    assert room.beat("a", 4) is None


def test_who_is_silent_for_too_long_is_gone(room: Room) -> None:
    room.join("a", "orders")
    room.now_ms = 30_000
    room.join("b", "orders")
    assert room.group.next_deadline_ms() is not None
    assert room.group.overdue(44_999) == []
    assert room.group.overdue(45_000) == ["a"]
    room.group.apply(room.group.decide_removal("group", ["a"], room.catalog, 45_000))
    room.beat("b", 2)
    assert room.held("b") == {0, 1, 2, 3}


def test_members_are_told_to_be_quick_as_long_as_the_group_is_in_motion(room: Room) -> None:
    room.join("a", "orders")
    assert room.group.heartbeat_interval_ms(RULES, 4_999) == 500
    assert room.group.heartbeat_interval_ms(RULES, 5_000) == 5_000
    assert room.group.heartbeat_interval_ms(replace(RULES, heartbeat_interval_ms=100), 0) == 100


def test_a_group_that_was_changed_before_the_clock_was_set_back_is_at_rest_after_a_restart(room: Room) -> None:
    room.now_ms = 3_600_000
    room.join("a", "orders")
    room.now_ms = 0
    assert room.group.heartbeat_interval_ms(RULES, room.now_ms) == RULES.heartbeat_interval_ms


def test_topics_that_a_member_gives_up_are_taken_from_it_at_once(room: Room) -> None:
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    assert (room.state("a"), room.held("a")) == (UNREVOKED, {0, 1})
    room.beat("a", 1, topic_names=())
    assert (room.state("a"), room.held("a")) == (UNREVOKED, set())
    room.beat("b", 2)
    assert room.held("b") == set()
    room.beat("a", 1, owned=owned())
    room.beat("b", 3)
    assert room.held("b") == {0, 1, 2, 3}


def test_who_takes_too_long_to_let_go_is_gone_though_it_is_heard(room: Room) -> None:
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    room.now_ms = 900
    room.beat("a", 1)
    assert room.group.overdue(999) == []
    assert room.group.overdue(1000) == ["a"]


def test_after_a_restart_a_member_has_its_whole_time_again_to_let_go(room: Room) -> None:
    room.now_ms = 5_000
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    # The clock that counts begins anew with the process, below what it showed before or far above.
    for began_ms in (0, 100_000):
        room.group.hear_all(RULES, began_ms)
        assert room.group.next_deadline_ms() is not None
        assert room.group.overdue(began_ms + 999) == []
        assert room.group.overdue(began_ms + 1_000) == ["a"]


def test_a_static_member_comes_back_under_another_id_to_what_it_had(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    room.join("b", "orders", instance_id="two")
    room.beat("a", 1)
    room.beat("a", 1, owned=owned(0, 1))
    room.beat("b", 2)
    with refused(refusals.UNRELEASED_INSTANCE_ID):
        room.join("c", "orders", instance_id="one")
    room.leave("a", AWAY_EPOCH, "one")
    assert room.epoch("a") == AWAY_EPOCH
    room.beat("b", 2)
    assert room.held("b") == {2, 3}
    room.join("c", "orders", instance_id="one")
    assert (room.epoch("c"), room.held("c"), room.group.epoch) == (2, {0, 1}, 2)
    with refused(refusals.FENCED_INSTANCE_ID):
        room.beat("a", 2, instance_id="one")
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.beat("a", 2)
    with refused(refusals.FENCED_INSTANCE_ID):
        room.leave("a", AWAY_EPOCH, "one")


def test_a_static_member_comes_back_under_another_id_to_a_full_group(room: Room) -> None:
    for member_id in "abc":
        room.join(member_id, "orders", instance_id=f"instance {member_id}")
    room.leave("a", AWAY_EPOCH, "instance a")
    entry = room.join("d", "orders", instance_id="instance a")
    assert entry is not None
    assert sorted(room.group.members) == ["b", "c", "d"]
    with refused(refusals.GROUP_MAX_SIZE_REACHED):
        room.join("e", "orders", instance_id="another")
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.beat("a", 1)


def test_a_static_member_under_another_id_takes_the_memory_of_the_former_one(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    room.leave("a", AWAY_EPOCH, "one")
    beat = Heartbeat("b", JOIN_EPOCH, "client", "/host", "one", None, 1000, ("orders",), owned=NOTHING)
    entry = room.group.decide_heartbeat("group", beat, room.catalog, room.rules, room.now_ms)
    assert entry is not None
    assert room.group.growth_bytes(entry) == 0


def test_a_static_member_that_leaves_for_a_while_has_its_whole_session_to_come_back(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    room.join("b", "orders")
    room.beat("a", 1, instance_id="one")
    assert room.state("a") == UNREVOKED
    room.leave("a", AWAY_EPOCH, "one")
    room.beat("b", 2)
    assert room.held("b") == {2, 3}
    assert room.group.overdue(RULES.session_timeout_ms - 1) == []
    room.join("c", "orders", instance_id="one")
    assert room.held("c") == {0, 1}


def test_a_static_member_that_says_twice_that_it_joins_is_the_same(room: Room) -> None:
    """Kafka refuses the second time. But a member id is made for one process only, so it is the same one."""
    room.join("a", "orders", instance_id="one")
    assert room.join("a", "orders", instance_id="one") is None


def commit(
    room: Room,
    member_id: str,
    epoch: int,
    *,
    transactional: bool = False,
    version: int = 9,
    partitions: Partitions | None = None,
) -> None:
    room.group.check_commit(
        Committer(member_id, None, epoch, is_transactional=transactional, version=version, partitions=partitions)
    )


def test_members_commit_in_their_epoch(room: Room) -> None:
    commit(room, "", -1)
    room.join("a", "orders")
    commit(room, "a", 1)
    with refused(refusals.STALE_MEMBER_EPOCH):
        commit(room, "a", 0)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        commit(room, "b", 1)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        commit(room, "", -1)
    with refused(refusals.UNSUPPORTED_VERSION):
        commit(room, "a", 1, version=8)
    commit(room, "a", 1, transactional=True, version=5)


def test_a_member_that_has_not_heard_of_its_epoch_goes_on_with_what_it_has_had(room: Room) -> None:
    room.join("a", "orders")
    room.join("b", "orders")
    room.beat("a", 1)
    commit(room, "a", 1, partitions=owned(0, 3))
    room.beat("a", 1, owned=owned(0, 1))
    room.beat("b", 2)
    commit(room, "a", 1, partitions=owned(0, 1))
    commit(room, "b", 2, partitions=owned(2, 3))
    for member_id, epoch, partitions in (("a", 1, owned(0, 2)), ("a", 3, owned(0)), ("b", 1, owned(2))):
        with refused(refusals.STALE_MEMBER_EPOCH):
            commit(room, member_id, epoch, partitions=partitions)


def test_a_transaction_may_commit_for_nobody(room: Room) -> None:
    room.join("a", "orders")
    commit(room, "", -1, transactional=True)


def test_whoever_names_epoch_0_has_to_be_a_member(room: Room) -> None:
    """Also in a group without members, and in a transaction."""
    for _ in range(2):
        for transactional in (False, True):
            with refused(refusals.UNKNOWN_MEMBER_ID):
                commit(room, "", 0, transactional=transactional)
        with refused(refusals.UNKNOWN_MEMBER_ID):
            room.group.check_fetch(None, 0)
        room.join("a", "orders")


def test_who_asks_for_offsets_as_a_member_is_one(room: Room) -> None:
    room.join("a", "orders")
    room.group.check_fetch(None, -1)
    room.group.check_fetch("a", 1)
    with refused(refusals.STALE_MEMBER_EPOCH):
        room.group.check_fetch("a", 2)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.group.check_fetch("b", 1)


def test_an_entry_that_cannot_follow_is_none(room: Room) -> None:
    room.join("a", "orders")
    gone = room.group.decide_removal("group", ["a"], room.catalog, 0)
    room.group.apply(gone)
    with pytest.raises(ValueError, match="'a' is no member"):
        room.group.check(gone)


def test_an_entry_that_gives_a_partition_a_second_owner_cannot_follow(room: Room) -> None:
    room.join("a", "orders")
    entry = room.group.as_entry("group")
    (position,), (subscription,) = entry.positions, entry.subscriptions
    second = replace(
        entry,
        subscriptions=(subscription._replace(member_id="b"),),
        positions=(position._replace(member_id="b"),),
    )
    with pytest.raises(ValueError, match="partition 0 of topic 0 belongs to 'a', and not to 'b'"):
        room.group.check(second)
    room.group.check(replace(second, left=("a",)))


def test_an_entry_that_gives_an_instance_a_second_member_cannot_follow(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    (subscription,) = room.group.as_entry("group").subscriptions
    second = ConsumerGroupChanged("group", 2, 2, "", (), (subscription._replace(member_id="b"),), (), (), 0)
    with pytest.raises(ValueError, match="instance 'one' is 'a', and not 'b'"):
        room.group.check(second)


def test_a_member_does_not_become_another_instance(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    room.join("b", "orders")
    for member_id, instance_id in (("a", "two"), ("b", "two"), ("b", "one")):
        with refused(refusals.INVALID_REQUEST):
            room.join(member_id, "orders", instance_id=instance_id)
    # Which one it is need not be said again.
    room.join("a", "orders")
    assert room.group.static_member("one") is room.group.member("a")


def test_a_member_that_became_another_instance_in_an_older_journal_is_the_one_before_no_more(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    (subscription,) = room.group.as_entry("group").subscriptions
    other = subscription._replace(instance_id="two")
    room.group.apply(ConsumerGroupChanged("group", 2, 2, "", (), (other,), (), (), 0))
    assert room.group.static_member("one") is None
    assert room.group.static_member("two") is room.group.member("a")


def test_a_member_of_the_classic_protocol_is_never_away(room: Room) -> None:
    room.join("a", "orders", instance_id="one")
    member = room.group.member("a")
    member.subscription = member.subscription._replace(classic_session_timeout_ms=10_000)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        room.leave("a", AWAY_EPOCH, instance_id="one")


def test_what_a_step_costs_goes_by_topics_and_not_by_partitions() -> None:
    """A group of three members that reads twenty thousand partitions keeps nobody waiting."""
    room = Room()
    room.topic("large", 20_000)
    for member_id in ("a", "b", "c"):
        entry = room.join(member_id, "large")
        assert entry is not None
        assert sum(len(target.partitions) for target in entry.targets) <= 6
        assert sum(len(position.held) + len(position.revoking) for position in entry.positions) <= 6
    assert sorted(len(target) for target in room.group.targets.values()) == [6_666, 6_667, 6_667]
