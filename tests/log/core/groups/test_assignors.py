"""The assignors: each partition has one reader who wants it, shares are even, nothing changes hands for nothing."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.entries import PartitionName
from semel.log.core.groups.assignors import ASSIGNORS, Assignment, Reader
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.wire.steps import finish


def reader(*topics: int, given: Partitions = NOTHING, instance_id: str | None = None) -> Reader:
    return Reader(frozenset(topics), given, instance_id)


def assigned(name: str, readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Assignment:
    return finish(ASSIGNORS[name](readers, partition_counts))


def partitions(number: int, *indexes: int) -> Partitions:
    return Partitions.of(PartitionName(number, index) for index in indexes)


counts = st.dictionaries(st.integers(0, 5), st.integers(1, 9), max_size=6)
subscriptions = st.dictionaries(
    st.sampled_from("abcdefg"), st.frozensets(st.integers(0, 6), max_size=5), min_size=1, max_size=7
)


def readers_of(wanted: Mapping[str, frozenset[int]], before: Assignment) -> dict[str, Reader]:
    return {member_id: Reader(topics, before.get(member_id, NOTHING)) for member_id, topics in wanted.items()}


def owners(assignment: Assignment) -> dict[PartitionName, str]:
    owner_of: dict[PartitionName, str] = {}
    for member_id, names in assignment.items():
        for name in names:
            assert name not in owner_of, "a partition with two readers"
            owner_of[name] = member_id
    return owner_of


def least_sum_of_squares(wanted: Mapping[str, frozenset[int]], partition_counts: Mapping[int, int]) -> int:
    """How even it can be: from any assignment, take every improvement along every path, found by brute force."""
    loads = dict.fromkeys(wanted, 0)
    held: dict[tuple[str, int], int] = Counter()
    for number, count in partition_counts.items():
        takers = [member_id for member_id, topics in wanted.items() if number in topics]
        if takers:
            loads[takers[0]] += count
            held[takers[0], number] += count
    improved = True
    while improved:
        improved = False
        for source in wanted:
            reachable: dict[str, list[tuple[str, int, str]]] = {source: []}
            queue = [source]
            for member_id in queue:
                for (owner, number), amount in list(held.items()):
                    if owner == member_id and amount:
                        for taker, topics in wanted.items():
                            if number in topics and taker not in reachable:
                                reachable[taker] = [*reachable[member_id], (member_id, number, taker)]
                                queue.append(taker)
            for taker, way in reachable.items():
                if loads[taker] <= loads[source] - 2:
                    for giver, number, receiver in way:
                        held[giver, number] -= 1
                        held[receiver, number] += 1
                    loads[source] -= 1
                    loads[taker] += 1
                    improved = True
                    break
    return sum(load * load for load in loads.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(before=subscriptions, wanted=subscriptions, counts_before=counts, partition_counts=counts)
def test_every_partition_that_is_wanted_goes_to_exactly_one_who_wants_it(
    name: str,
    before: Mapping[str, frozenset[int]],
    wanted: Mapping[str, frozenset[int]],
    counts_before: Mapping[int, int],
    partition_counts: Mapping[int, int],
) -> None:
    earlier = assigned(name, readers_of(before, {}), counts_before)
    assignment = assigned(name, readers_of(wanted, earlier), partition_counts)
    assert assignment.keys() == wanted.keys()
    owner_of = owners(assignment)
    assert all(partition.number in wanted[owner] for partition, owner in owner_of.items())
    read = set().union(*wanted.values())
    assert owner_of.keys() == {
        PartitionName(number, index)
        for number, count in partition_counts.items()
        if number in read
        for index in range(count)
    }


@given(before=subscriptions, wanted=subscriptions, partition_counts=counts)
def test_uniform_is_as_even_as_the_subscriptions_allow(
    before: Mapping[str, frozenset[int]], wanted: Mapping[str, frozenset[int]], partition_counts: Mapping[int, int]
) -> None:
    earlier = assigned("uniform", readers_of(before, {}), partition_counts)
    assignment = assigned("uniform", readers_of(wanted, earlier), partition_counts)
    squares = sum(len(names) ** 2 for names in assignment.values())
    assert squares == least_sum_of_squares(wanted, partition_counts)


@given(wanted=subscriptions, partition_counts=counts)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_an_assignment_made_again_stays_as_it_is(
    name: str, wanted: Mapping[str, frozenset[int]], partition_counts: Mapping[int, int]
) -> None:
    assignment = assigned(name, readers_of(wanted, {}), partition_counts)
    assert assigned(name, readers_of(wanted, assignment), partition_counts) == assignment


@given(count=st.integers(1, 40), members=st.integers(1, 8))
def test_uniform_moves_no_more_than_the_newcomer_needs(count: int, members: int) -> None:
    ids = [f"m{number}" for number in range(members)]
    before = assigned("uniform", {member_id: reader(1) for member_id in ids}, {1: count})
    readers = {member_id: reader(1, given=before[member_id]) for member_id in ids} | {"new": reader(1)}
    after = assigned("uniform", readers, {1: count})
    assert len(after["new"]) == count // (members + 1)
    assert all(after[member_id] <= before[member_id] for member_id in ids)


@given(count=st.integers(1, 40), members=st.integers(2, 8))
def test_uniform_gives_only_the_partitions_of_who_left_to_others(count: int, members: int) -> None:
    ids = [f"m{number}" for number in range(members)]
    before = assigned("uniform", {member_id: reader(1) for member_id in ids}, {1: count})
    after = assigned("uniform", {member_id: reader(1, given=before[member_id]) for member_id in ids[1:]}, {1: count})
    assert all(before[member_id] <= after[member_id] for member_id in ids[1:])


def test_uniform_finds_the_way_round_by_a_third_member() -> None:
    """Who has many and who has few have no topic in common, but both have one in common with a third."""
    readers = {
        "many": reader(1, given=partitions(1, 0, 1, 2)),
        "between": reader(1, 2, given=partitions(2, 0, 1)),
        "few": reader(2, given=partitions(2, 2)),
    }
    after = assigned("uniform", readers, {1: 3, 2: 3})
    assert {member_id: len(names) for member_id, names in after.items()} == {"many": 2, "between": 2, "few": 2}


def test_ranges_cut_topics_of_equal_length_alike() -> None:
    readers = {"b": reader(1, 2), "a": reader(1, 2), "c": reader(1, 2)}
    assert assigned("range", readers, {1: 7, 2: 7}) == {
        "a": partitions(1, 0, 1, 2) | partitions(2, 0, 1, 2),
        "b": partitions(1, 3, 4) | partitions(2, 3, 4),
        "c": partitions(1, 5, 6) | partitions(2, 5, 6),
    }


def test_ranges_of_static_members_stay_when_a_member_gets_a_new_id() -> None:
    before = assigned("range", {"x": reader(1, instance_id="one"), "y": reader(1, instance_id="two")}, {1: 4})
    after = assigned("range", {"z": reader(1, instance_id="one"), "y": reader(1, instance_id="two")}, {1: 4})
    assert after["z"] == before["x"]
    assert after["y"] == before["y"]


def test_two_who_were_given_the_same_partition_before_do_not_both_keep_it() -> None:
    readers = {"a": reader(1, given=partitions(1, 0)), "b": reader(1, given=partitions(1, 0))}
    assert owners(assigned("uniform", readers, {1: 1})).keys() == set(partitions(1, 0))
