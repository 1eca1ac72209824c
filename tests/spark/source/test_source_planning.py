"""How much a batch takes and how it is cut: held against a naive model, and to what is promised of it."""

from fractions import Fraction
from itertools import pairwise
from random import Random
from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st

from semel.client.places import Slice, Topic, TopicPartition
from semel.spark.source.portions import limited, must_wait, split

PLACES = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(4)]
SIZES = st.integers(0, 12) | st.integers(0, 10**6) | st.integers(2**60, 2**62)


@st.composite
def lags(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Beginnings and ends; a partition may also have lost its end."""
    places = draw(st.lists(st.sampled_from(PLACES), unique=True))
    begins = {place: draw(SIZES) for place in places}
    return begins, {place: max(begins[place] + draw(SIZES | st.integers(-5, -1)), 0) for place in places}


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    places = draw(st.lists(st.sampled_from(PLACES), unique=True))
    sizes = st.integers(0, 12) | st.integers(0, 10**6)
    starts = {place: draw(SIZES) for place in places}
    return [
        Slice(Topic(place.topic, UUID(int=1), 4), place.partition, starts[place], starts[place] + draw(sizes))
        for place in places
    ]


# Limits


@given(lags(), st.integers(1, 40) | st.integers(1, 2**61))
def test_a_limit_is_used_up_and_never_exceeded_but_for_one_offset_of_each_partition(
    found: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], limit: int
) -> None:
    begins, ends = found
    taken = limited(begins, ends, limit)
    sizes = {place: max(end - begins[place], 0) for place, end in ends.items()}
    got = {place: max(taken[place] - begins[place], 0) for place in ends}
    busy = [place for place, size in sizes.items() if size]
    assert taken.keys() == ends.keys()
    assert sum(got.values()) == min(sum(sizes.values()), max(limit, len(busy)))
    assert all(1 <= got[place] <= sizes[place] for place in busy)
    assert all(taken[place] == ends[place] for place in ends if place not in busy)


@given(lags(), st.integers(1, 10**6))
def test_a_limit_is_shared_in_proportion_to_what_each_partition_has(
    found: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], limit: int
) -> None:
    begins, ends = found
    lag = {place: end - begins[place] for place, end in ends.items() if end > begins[place]}
    assume(limit >= len(lag) and sum(lag.values()) > limit)
    taken = limited(begins, ends, limit)
    weights = {place: size - 1 for place, size in lag.items()}
    for place, weight in weights.items():
        fair = 1 + Fraction(weight * (limit - len(lag)), sum(weights.values()))
        assert abs(taken[place] - begins[place] - fair) < 1


@given(lags(), st.integers(1, 40), st.randoms())
def test_the_same_offsets_give_the_same_plan_whatever_the_order_they_come_in(
    found: tuple[dict[TopicPartition, int], dict[TopicPartition, int]],
    limit: int,
    chance: Random,
) -> None:
    begins, ends = found
    shuffled = list(ends)
    chance.shuffle(shuffled)
    assert limited(begins, {place: ends[place] for place in shuffled}, limit) == limited(begins, ends, limit)


@given(st.dictionaries(st.sampled_from(PLACES), st.integers(0, 30)), st.integers(1, 40))
def test_limited_batches_come_to_the_end(ends: dict[TopicPartition, int], limit: int) -> None:
    reached = dict.fromkeys(ends, 0)
    batches = 0
    while reached != ends:
        following = limited(reached, ends, limit)
        assert all(following[place] >= reached[place] for place in ends)
        assert following != reached
        reached, batches = following, batches + 1
    assert batches <= -(-sum(ends.values()) // limit)


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    small, large = PLACES[:2]
    assert limited({small: 0, large: 0}, {small: 2, large: 10**9}, 100) == {small: 1, large: 99}


def test_a_batch_waits_for_its_least_size_but_not_for_ever() -> None:
    assert must_wait(4, 5, waited_ms=0, wait_ms_max=1000)
    assert not must_wait(5, 5, waited_ms=0, wait_ms_max=1000)
    assert not must_wait(4, 5, waited_ms=1000, wait_ms_max=1000)


# Cuts


def naive_count(size: int, whole: int, partitions_min: int) -> int:
    """Spark's number of tasks for one partition: its share of the least number, rounded half up, one at least."""
    return max(int(Fraction(size * partitions_min, whole) + Fraction(1, 2)), 1)


def evenly(size: int, count: int) -> list[int]:
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def naive_sizes(sizes: list[int], partitions_min: int | None, records_max: int | None) -> list[list[int]]:
    """How many tasks each slice is cut into, as Spark's KafkaOffsetRangeCalculator has it, and their sizes."""
    counts = [-(-size // records_max) if records_max else 1 for size in sizes]
    pieces = [evenly(size, count) for size, count in zip(sizes, counts, strict=True)]
    flat = [size for cut in pieces for size in cut]
    if partitions_min is None or len(flat) >= partitions_min:
        return pieces
    unsplit = [size for size in flat if naive_count(size, sum(flat), partitions_min) == 1]
    rest, rest_min = sum(flat) - sum(unsplit), max(partitions_min - len(unsplit), 1)

    def again(size: int) -> list[int]:
        if naive_count(size, sum(flat), partitions_min) == 1:
            return [size]
        return evenly(size, min(naive_count(size, rest, rest_min), size))

    return [[part for size in cut for part in again(size)] for cut in pieces]


@given(slices(), st.none() | st.integers(1, 64), st.none() | st.integers(1, 50) | st.integers(50_000, 10**6))
def test_slices_are_cut_as_spark_cuts_them(pieces: list[Slice], least: int | None, most: int | None) -> None:
    pieces = [piece for piece in pieces if most is None or piece.end - piece.start <= 500 * most]
    cut = split(pieces, least, most)
    expected = naive_sizes([piece.end - piece.start for piece in pieces if piece.end > piece.start], least, most)
    assert [piece.end - piece.start for piece in cut] == [size for sizes in expected for size in sizes]


@given(slices(), st.none() | st.integers(1, 64), st.none() | st.integers(10_000, 10**6))
def test_cuts_hold_every_offset_once_and_are_never_empty(
    pieces: list[Slice], least: int | None, most: int | None
) -> None:
    cut = split(pieces, least, most)
    assert all(piece.end > piece.start for piece in cut)
    assert most is None or all(piece.end - piece.start <= most for piece in cut)
    for piece in pieces:
        parts = [part for part in cut if part.topic_partition == piece.topic_partition]
        edges = [(part.start, part.end) for part in parts]
        if piece.end > piece.start:
            assert edges[0][0] == piece.start
            assert edges[-1][1] == piece.end
            assert all(before[1] == after[0] for before, after in pairwise(edges))
        else:
            assert edges == []


def test_a_slice_whose_end_was_lost_is_no_task() -> None:
    assert split([Slice(Topic("a", UUID(int=1), 1), 0, 9, 4)], None, None) == []


def test_the_largest_partitions_are_cut_first() -> None:
    topic = Topic("a", UUID(int=1), 2)
    cut = split([Slice(topic, 0, 0, 10), Slice(topic, 1, 0, 1000)], 5, None)
    assert [(piece.partition, piece.start, piece.end) for piece in cut] == [
        (0, 0, 10),
        *((1, start, start + 250) for start in (0, 250, 500, 750)),
    ]
