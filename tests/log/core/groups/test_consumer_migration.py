"""Members of both protocols in one group, and a group that goes from one to the other and back."""

from dataclasses import replace

import pytest
from consumer_metadata import metadata
from hypothesis import given
from hypothesis import strategies as st

from refusal import refused
from semel.log.core.entries import ClassicGroupChanged, ConsumerGroupChanged, PartitionName, StoredMember
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic import begin_rebalance
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import JoinAnswer, JoinRequest, Leaver, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import JOIN_EPOCH
from semel.log.core.groups.consumer_migration import (
    check_heartbeat,
    decide_join,
    downgrade,
    is_to_downgrade,
    join_answer,
    leaving,
    sync_answer,
    upgrade,
)
from semel.log.core.groups.consumer_protocol import read_assignment, read_subscription, write_assignment
from semel.log.core.groups.consumer_requests import LEAVE_EPOCH, Heartbeat
from semel.log.core.groups.offsets import Committer
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.wire import refusals

RULES = MemberRules(members_max=4)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.apply(catalog.decide_create("orders", 4, {}, b"orders".ljust(16), 0))
    return catalog


def asks(member_id: str, brings: bytes, *, instance_id: str | None = None, protocol: str = "range") -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        new_member_id=f"{instance_id}-new" if instance_id else "new",
        instance_id=instance_id,
        client_id="client",
        client_host="/host",
        protocol_type="consumer",
        protocols={protocol: brings},
        session_timeout_ms=6_000,
        rebalance_timeout_ms=10_000,
        requires_known_id=True,
        may_skip_assignment=False,
    )


def classic_group(**assigned: tuple[int, ...]) -> ClassicGroup:
    """A classic group in its first generation, with what its leader gave to each static member."""
    group = ClassicGroup("group")
    brought = metadata(["orders"])
    members = [
        StoredMember(f"{name}-new", name, "client", "/host", 10_000, 6_000, brought, given)
        for name, indexes in assigned.items()
        for given in [write_assignment([("orders", indexes)])]
    ]
    group.apply(ClassicGroupChanged("group", 1, "consumer", "range", members[0].member_id, tuple(members), 0))
    return group


def upgraded(catalog: Catalog, **assigned: tuple[int, ...]) -> ConsumerGroup:
    group = ConsumerGroup()
    group.apply(upgrade(classic_group(**assigned), catalog, RULES, 0))
    return group


def beat(group: ConsumerGroup, catalog: Catalog, member_id: str, epoch: int, **said: object) -> None:
    heartbeat = replace(Heartbeat(member_id, epoch, "client", "/host"), **said)  # type: ignore[arg-type]
    kept(group, group.decide_heartbeat("group", heartbeat, catalog, RULES, 0))


def join_new(group: ConsumerGroup, catalog: Catalog, member_id: str) -> None:
    said = {"rebalance_timeout_ms": 1, "topic_names": ("orders",), "owned": NOTHING}
    beat(group, catalog, member_id, JOIN_EPOCH, **said)


def join_classic(group: ConsumerGroup, catalog: Catalog, request: JoinRequest) -> JoinAnswer:
    member_id, entry = decide_join("group", group, request, catalog, RULES, 0)
    kept(group, entry)
    return join_answer(group.members[member_id])


def kept(group: ConsumerGroup, entry: ConsumerGroupChanged | None) -> None:
    if entry is not None:
        group.apply(entry)


def reads(group: ConsumerGroup, member_id: str) -> set[int]:
    return {name.partition for name in group.members[member_id].held}


def test_members_read_on_what_they_read_when_the_group_goes_over(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1), b=(2, 3))
    assert (group.epoch, group.target_epoch, group.state_name) == (1, 1, "Stable")
    assert (reads(group, "a-new"), reads(group, "b-new")) == ({0, 1}, {2, 3})
    assert group.members["a-new"].is_classic
    assert group.is_subscribed_to("orders")


def test_what_no_longer_exists_or_is_claimed_twice_is_not_taken_over(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1, 7, -1), b=(1, 2))
    assert (reads(group, "a-new"), reads(group, "b-new")) == ({0, 1}, {2})


def test_a_group_of_others_than_consumers_does_not_go_over(catalog: Catalog) -> None:
    group = classic_group(a=())
    group.protocol_type = "connect"
    with refused(refusals.GROUP_ID_NOT_FOUND):
        upgrade(group, catalog, RULES, 0)


def test_a_classic_member_joins_again_until_it_has_its_share(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1, 2, 3))
    join_new(group, catalog, "n")
    with refused(refusals.REBALANCE_IN_PROGRESS):
        check_heartbeat(group, "a-new", "a", 1)
    with refused(refusals.REBALANCE_IN_PROGRESS):
        sync_answer(group, SyncRequest("a-new", "a", 1, None, None, {}), catalog)
    answer = join_classic(group, catalog, asks("a-new", metadata(["orders"]), instance_id="a"))
    assert (answer.generation, answer.protocol_type, answer.protocol, answer.leader) == (2, "consumer", "range", "")
    given = sync_answer(group, SyncRequest("a-new", "a", 2, "consumer", "range", {}), catalog)
    assert read_assignment(given.assignment) == {"orders": (0, 1)}
    check_heartbeat(group, "a-new", "a", 2)
    beat(group, catalog, "n", 2)
    assert reads(group, "n") == {2, 3}


def test_who_syncs_by_the_protocol_of_before_the_group_went_over_is_told_to_join_again(catalog: Catalog) -> None:
    classic = classic_group(a=(0, 1))
    member = next(iter(classic.members))
    classic.members.change_protocols(member, {"sticky": metadata(["orders"]), **member.protocols})
    group = ConsumerGroup()
    group.apply(upgrade(classic, catalog, RULES, 0))
    join_new(group, catalog, "n")
    with refused(refusals.REBALANCE_IN_PROGRESS):
        sync_answer(group, SyncRequest("a-new", "a", 1, "consumer", "range", {}), catalog)


def test_a_cooperative_member_lets_go_first_and_joins_again(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1, 2, 3))
    join_new(group, catalog, "n")
    everything = asks("a-new", metadata(["orders"], {"orders": (0, 1, 2, 3)}), instance_id="a")
    assert join_classic(group, catalog, everything).generation == 1
    given = sync_answer(group, SyncRequest("a-new", "a", 1, None, None, {}), catalog)
    assert read_assignment(given.assignment) == {"orders": (0, 1)}
    beat(group, catalog, "n", 2)
    assert reads(group, "n") == set()
    with refused(refusals.REBALANCE_IN_PROGRESS):
        check_heartbeat(group, "a-new", "a", 1)
    less = asks("a-new", metadata(["orders"], {"orders": (0, 1)}), instance_id="a")
    assert join_classic(group, catalog, less).generation == 2
    beat(group, catalog, "n", 2)
    assert reads(group, "n") == {2, 3}


def test_a_classic_member_has_its_rebalance_timeout_to_let_go_and_to_join_and_no_longer(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1, 2, 3))
    everything = asks("a-new", metadata(["orders"], {"orders": (0, 1, 2, 3)}), instance_id="a")
    group.expect_to_join("a-new", 0)
    group.expect_to_join("a-new", 9_000)
    assert group.overdue(9_999) == []
    assert group.overdue(10_000) == ["a-new"], "told again, it has no longer"
    group.note_joined("a-new")
    assert group.overdue(10_000) == []
    join_new(group, catalog, "n")
    join_classic(group, catalog, everything)
    group.note_joined("a-new")
    assert group.overdue(10_000) == ["a-new"], "it has joined, and not let go"


def test_a_classic_member_that_waits_for_others_is_told_when_they_have_let_go(catalog: Catalog) -> None:
    group = ConsumerGroup()
    join_new(group, catalog, "n")
    assert join_classic(group, catalog, asks("c", metadata(["orders"]))).generation == 2
    check_heartbeat(group, "c", None, 2)
    beat(group, catalog, "n", 1)
    beat(group, catalog, "n", 1, owned=Partitions.of([PartitionName(0, 0), PartitionName(0, 1)]))
    with refused(refusals.REBALANCE_IN_PROGRESS):
        check_heartbeat(group, "c", None, 2)
    join_classic(group, catalog, asks("c", metadata(["orders"])))
    assert reads(group, "c") == {2, 3}


def test_a_static_member_of_the_classic_protocol_comes_back_to_a_full_group(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0,))
    join_new(group, catalog, "n")
    room_left = RULES.members_max - len(group.members)
    for number in range(room_left):
        request = asks("", metadata(["orders"]), instance_id=f"{number}")
        join_classic(group, catalog, request._replace(new_member_id=f"{number}-1"))
    assert len(group.members) == RULES.members_max
    request = asks("", metadata(["orders"]), instance_id="0")._replace(new_member_id="0-2")
    assert join_classic(group, catalog, request).member_id == "0-2"


def test_who_does_not_fit_into_the_group_does_not_join(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0,))
    with refused(refusals.MEMBER_ID_REQUIRED):
        join_classic(group, catalog, asks("", metadata(["orders"])))
    with refused(refusals.INCONSISTENT_GROUP_PROTOCOL):
        join_classic(group, catalog, asks("c", metadata(["orders"]), protocol="sticky"))
    with refused(refusals.INCONSISTENT_GROUP_PROTOCOL):
        join_classic(group, catalog, asks("c", b"what"))
    with refused(refusals.INCONSISTENT_GROUP_PROTOCOL):
        join_classic(group, catalog, asks("c", metadata(["orders"]))._replace(protocol_type="connect"))
    for member_id in "cde":
        join_classic(group, catalog, asks(member_id, metadata(["orders"])))
    with refused(refusals.GROUP_MAX_SIZE_REACHED):
        join_classic(group, catalog, asks("f", metadata(["orders"])))


def test_a_static_member_goes_on_by_the_other_protocol(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1, 2, 3))
    said = {"rebalance_timeout_ms": 1, "topic_names": ("orders",), "owned": NOTHING, "instance_id": "a"}
    beat(group, catalog, "n", JOIN_EPOCH, **said)
    assert group.members.keys() == {"n"}
    assert reads(group, "n") == {0, 1, 2, 3}
    with refused(refusals.FENCED_INSTANCE_ID):
        check_heartbeat(group, "a-new", "a", 1)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        check_heartbeat(group, "", "a", 1)
    join_classic(group, catalog, asks("", metadata(["orders"]), instance_id="a"))
    assert group.members.keys() == {"a-new"}


def test_members_are_what_they_say(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1))
    join_new(group, catalog, "n")
    with refused(refusals.UNKNOWN_MEMBER_ID):
        check_heartbeat(group, "n", None, 2)
    with refused(refusals.UNKNOWN_MEMBER_ID):
        check_heartbeat(group, "x", None, 2)
    with refused(refusals.ILLEGAL_GENERATION):
        check_heartbeat(group, "a-new", "a", 9)
    with refused(refusals.ILLEGAL_GENERATION):
        group.check_commit(Committer("a-new", "a", 9, is_transactional=False, version=8))
    group.check_commit(Committer("a-new", "a", 1, is_transactional=False, version=8))
    with refused(refusals.UNKNOWN_MEMBER_ID):
        leaving(group, Leaver("", "x"))
    assert leaving(group, Leaver("", "a")) == "a-new"


def test_the_group_goes_back_when_the_last_of_the_new_protocol_is_gone(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0, 1), b=(2, 3))
    join_new(group, catalog, "n")
    assert not is_to_downgrade(group)
    leave = Heartbeat("n", LEAVE_EPOCH, "", "")
    group.apply(group.decide_leave("group", leave, catalog, 0))
    assert is_to_downgrade(group)
    entry = downgrade("group", group, catalog, 5)
    assert isinstance(entry, ClassicGroupChanged)
    # "n" was given epoch 2, and may come back: what it sends then must not be mistaken for what it sent in there.
    assert (entry.generation, entry.protocol, entry.at_ms) == (2, "range", 5)
    classic = ClassicGroup("group")
    classic.apply(entry)
    assert classic.subscribed_topics() == frozenset({"orders"})
    assert {one.instance_id: read_assignment(one.assignment) for one in classic.members} == {
        "a": {"orders": tuple(sorted(name.partition for name in group.target_of("a-new")))},
        "b": {"orders": tuple(sorted(name.partition for name in group.target_of("b-new")))},
    }
    classic.begin(0)
    begin_rebalance(classic, 0)
    assert classic.state_name == "PreparingRebalance"


partitions = st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 99), max_size=4), max_size=3)


@given(topics=st.lists(st.text(max_size=5)), owned=partitions, version=st.integers(0, 4), rack=st.none() | st.text())
def test_subscriptions_are_read_as_clients_write_them(
    topics: list[str], owned: dict[str, list[int]], version: int, rack: str | None
) -> None:
    subscription = read_subscription(metadata(topics, owned, version, rack))
    assert subscription is not None
    assert subscription.topic_names == tuple(topics)
    assert subscription.owned == ({name: tuple(indexes) for name, indexes in owned.items()} if version >= 1 else {})
    assert subscription.rack_id == (rack if version >= 3 else None)


@given(assigned=partitions)
def test_assignments_are_read_as_they_were_written(assigned: dict[str, list[int]]) -> None:
    expected = {name: tuple(indexes) for name, indexes in assigned.items()}
    assert read_assignment(write_assignment(assigned.items())) == expected


def test_a_classic_member_asks_for_no_more_topics_than_others_may(catalog: Catalog) -> None:
    too_many = metadata(["t" * 200 + str(index) for index in range(1_400)])
    group = upgraded(catalog, a=(0,))
    with refused(refusals.INVALID_REQUEST):
        join_classic(group, catalog, asks("m", too_many))
    classic = classic_group(a=(0,))
    classic.members.change_protocols(next(iter(classic.members)), {"range": too_many})
    with refused(refusals.GROUP_ID_NOT_FOUND):
        upgrade(classic, catalog, RULES, 0)


def test_protocols_without_metadata_count_as_what_a_classic_member_takes(catalog: Catalog) -> None:
    group = upgraded(catalog, a=(0,))
    request = asks("m", metadata(["orders"]))
    many = request._replace(protocols=request.protocols | dict.fromkeys(map(str, range(100)), b""))
    few_bytes, many_bytes = (
        group.growth_bytes(entry)
        for asked in (request, many)
        if (entry := decide_join("group", group, asked, catalog, RULES, 0)[1]) is not None
    )
    assert many_bytes - few_bytes > 10_000


def test_a_topic_that_is_named_a_hundred_thousand_times_is_one() -> None:
    assignment = write_assignment([("orders", (index,)) for index in range(100_000)])
    assert read_assignment(assignment) == {"orders": tuple(range(100_000))}


@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_none(data: bytes) -> None:
    read_subscription(data)
    read_assignment(data)
    read_subscription(b"\x00\x01\x00\x00\x00\x01" + data)
