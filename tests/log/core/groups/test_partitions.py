"""Sets of partitions as bits are sets: whatever is asked of them, plain sets of names answer the same."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.entries import PartitionName
from semel.log.core.groups.partitions import NOTHING, Partitions, lowest, span_bits

names = st.builds(PartitionName, st.integers(0, 3), st.integers(0, 9) | st.sampled_from([63, 64, 200]))
sets = st.frozensets(names, max_size=12)


@given(one=sets, other=sets)
def test_they_agree_with_plain_sets(one: frozenset[PartitionName], other: frozenset[PartitionName]) -> None:
    a, b = Partitions.of(one), Partitions.of(other)
    assert set(a & b) == one & other
    assert set(a | b) == one | other
    assert set(a - b) == one - other
    assert (a <= b, a == b, a.isdisjoint(b)) == (one <= other, one == other, one.isdisjoint(other))
    assert (len(a), bool(a)) == (len(one), bool(one))
    assert list(a) == sorted(one)
    assert [name for name in other if name in a] == [name for name in other if name in one]
    assert set(a.within({0, 2})) == {name for name in one if name.number in (0, 2)}
    assert Partitions.union([a, b, a]) == a | b
    assert (hash(a) == hash(b)) or one != other


@given(one=sets)
def test_spans_say_the_same_and_no_two_of_them_touch(one: frozenset[PartitionName]) -> None:
    spans = Partitions.of(one).spans()
    assert Partitions.of_spans(reversed(spans)) == Partitions.of(one)
    assert all(before.number < after.number or before.end < after.begin for before, after in itertools.pairwise(spans))


@given(bits=st.integers(0, 2**70), count=st.integers(0, 80))
def test_the_lowest_are_the_first_ones(bits: int, count: int) -> None:
    indexes = [index for index in range(71) if bits >> index & 1]
    assert lowest(bits, count) == sum(1 << index for index in indexes[:count])


@given(indexes=st.lists(st.integers(-3, 12)), count=st.integers(0, 9))
def test_what_a_topic_does_not_have_is_no_partition_whatever_a_client_names(indexes: list[int], count: int) -> None:
    own = {PartitionName(5, index) for index in indexes if 0 <= index < count}
    assert set(Partitions.of_indexes(5, indexes, count)) == own


def test_a_number_without_bound_takes_no_memory() -> None:
    assert Partitions.of_indexes(1, [2**31 - 1, -(2**31)], 3) == NOTHING
    assert PartitionName(1, -1) not in Partitions({1: span_bits(0, 3)})
