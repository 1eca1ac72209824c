"""The sums of an audit are exact: those of whole numbers modulo 2**128, however the rows were divided."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from semel.audit.hashes import Digests, siphash
from semel.audit.rows import Rows
from semel.audit.tally import NO_TIME, Cells, Grid, Tally, differing

BUCKETS = 4
IDS = st.lists(st.sampled_from([b"%d" % number for number in range(40)]), max_size=60)


def tallied(grid: Grid, *pieces: list[bytes]) -> Tally:
    """Each piece counted by somebody else, in two batches."""
    total = Tally(grid)
    for piece in pieces:
        tally = Tally(grid)
        for part in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
            tally.add(Rows(pa.array(part, pa.binary())))
        total.merge(tally)
    return total


def in_whole_numbers(grid: Grid, ids: list[bytes]) -> dict[int, tuple[int, int]]:
    rows = Rows(pa.array(ids, pa.binary()))
    digests, buckets = siphash(rows.ids, grid.key), grid.buckets_of(rows).tolist()
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for bucket, low, high in zip(buckets, digests.low.tolist(), digests.high.tolist(), strict=True):
        counts[bucket] += 1
        sums[bucket] = (sums[bucket] + low + (high << 64)) % 2**128
    return {bucket: (counts[bucket], sums[bucket]) for bucket in counts}


@given(IDS, st.binary(min_size=16, max_size=16))
def test_the_sums_are_those_of_whole_numbers(ids: list[bytes], key: bytes) -> None:
    grid = Grid(key, BUCKETS)
    found = {}
    for cells in tallied(grid, ids).windows.values():
        for bucket, (count, low, high) in enumerate(zip(cells.counts, cells.low, cells.high, strict=True)):
            if count:
                found[bucket] = (int(count), int(low) + (int(high) << 64))
    assert found == in_whole_numbers(grid, ids)


@given(IDS, st.integers(0, 60), st.integers(0, 60))
def test_it_is_nothing_to_the_sums_how_the_rows_were_divided(ids: list[bytes], first: int, second: int) -> None:
    grid = Grid(b"a key of 16 byte", BUCKETS)
    first, second = sorted((first, second))
    divided = tallied(grid, ids[second:], ids[:first], ids[first:second])
    assert differing(tallied(grid, ids), divided) == {}
    assert divided.rows == len(ids)


def test_each_bucket_is_compared_for_itself() -> None:
    grid = Grid(b"a key of 16 byte", BUCKETS)
    one, other = tallied(grid, [b"1", b"2", b"3"]), tallied(grid, [b"1", b"2", b"3", b"3"])
    [buckets] = differing(one, other).values()
    assert buckets.sum() == 1


def test_a_sum_is_carried_on_wherever_it_overflows() -> None:
    """The low half of a digest is summed as two quarters, and these sums can overflow when they are put together."""
    tally = Tally(Grid(b"a key of 16 byte", 1))
    digests = Digests(np.array([2**64 - 1, 1], np.uint64), np.array([3, 4], np.uint64))
    tally._add_digests(np.zeros(2, np.int64), np.zeros(2, np.int64), digests)
    [cells] = tally.windows.values()
    assert [int(half[0]) for half in (cells.counts, cells.low, cells.high)] == [2, 0, 8]


def test_two_sums_are_the_same_only_if_all_of_their_halves_are() -> None:
    none = np.zeros(1, np.uint64)
    for number in range(3):
        one, other = Cells(1), Cells(1)
        other.add(*(none + (place == number) for place in range(3)))
        assert one.differ(other).tolist() == [True]


def test_a_row_without_a_time_is_in_no_window_and_one_before_1970_in_its_own() -> None:
    grid = Grid(b"a key of 16 byte", 1, window_ms=1_000)
    rows = Rows(pa.array([b"1", b"2", b"3"], pa.binary()), pa.array([None, -1, 1_999], pa.int64()))
    assert grid.windows_of(rows).tolist() == [NO_TIME, -1_000, 1_000]
