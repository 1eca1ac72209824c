"""What is done about a gap, without Spark: rows of one bucket, batch after batch, at times that the test says."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.dedup.judge import Moment, State
from semel.spark.dedup.sequence_judge import GapFound, OnGap, SequenceJudge

Shown = tuple[int, str, int | None]


@dataclass
class Bucket:
    """Gives numbered rows of one producer to a judge, and reads them as (number, outcome, expected)."""

    on_gap: OnGap = OnGap.HOLD
    first: int | None = 0
    hold_ms: int = 100
    held_rows_max: int = 10
    forget_ms: int = 10_000
    state: State | None = None
    wake_at_ms: int | None = None
    copies: "itertools.count[int]" = field(default_factory=itertools.count)

    def judge(
        self, numbers: Iterable[int | None], now_ms: int = 0, *, epoch: int = 0, is_last: bool = False, key: int = 2
    ) -> list[Shown]:
        judge = SequenceJudge(
            {}, ["pid"], "era", "number", self.first, self.on_gap, self.hold_ms, self.held_rows_max, self.forget_ms
        )
        rows = self.rows(list(numbers), epoch, key)
        verdict = judge.judge(self.state, rows, Moment(now_ms, None, is_last))
        self.state, self.wake_at_ms = verdict.state, verdict.wake_at_ms
        if verdict.rows is None:
            return []
        assert verdict.rows.column_names == ["pid", "era", "number", "copy", "outcome", "expected"]
        return [(row["number"], row["outcome"], row["expected"]) for row in verdict.rows.to_pylist()]

    def rows(self, numbers: list[int | None], epoch: int, key: int = 2) -> pa.Table | None:
        if not numbers:
            return None
        return pa.table(
            {
                "pid": pa.array([7] * len(numbers)),
                "era": pa.array([epoch] * len(numbers)),
                "number": pa.array(numbers, pa.int64()),
                "copy": pa.array([next(self.copies) for _ in numbers]),
                "_semel_key_high": pa.array([1] * len(numbers)),
                "_semel_key_low": pa.array([key] * len(numbers)),
            }
        )


def taken(*numbers: int) -> list[Shown]:
    return [(number, "accepted", None) for number in numbers]


def test_rows_behind_a_gap_come_out_in_their_order_once_it_is_filled() -> None:
    bucket = Bucket()
    assert bucket.judge([0, 3, 2]) == taken(0)
    assert bucket.judge([5], 10) == []
    assert bucket.wake_at_ms == 100
    assert bucket.judge([1], 20) == taken(1, 2, 3)
    assert bucket.wake_at_ms == 110
    assert bucket.judge([4], 30) == taken(4, 5)
    assert (bucket.wake_at_ms, bucket.state and bucket.state.held) == (None, None)


def test_what_has_waited_in_vain_comes_out_as_a_gap_though_nothing_else_came() -> None:
    bucket = Bucket()
    assert bucket.judge([0, 2]) == taken(0)
    assert bucket.judge([3], 50) == []
    assert bucket.judge([], 99) == []
    assert bucket.judge([], 100) == [(2, "gap", 1)]
    assert bucket.judge([], 150) == [(3, "gap", 1)]
    assert bucket.judge([1], 200) == taken(1)


def test_what_is_missing_may_still_come_when_the_wait_is_just_over() -> None:
    bucket = Bucket()
    bucket.judge([0, 2])
    assert bucket.judge([1], 100) == taken(1, 2)


def test_of_too_many_rows_behind_a_gap_the_farthest_are_not_held() -> None:
    bucket = Bucket(held_rows_max=3)
    assert bucket.judge([9, 4, 2, 3, 5]) == [(5, "gap", 0), (9, "gap", 0)]
    assert bucket.judge([1], 10) == [(4, "gap", 0)]
    assert bucket.judge([0], 20) == taken(0, 1, 2, 3)


def test_a_copy_of_a_held_row_is_a_duplicate_at_once() -> None:
    bucket = Bucket()
    assert bucket.judge([2, 2]) == [(2, "duplicate", None)]
    assert bucket.judge([2], 10) == [(2, "duplicate", None)]
    assert bucket.judge([0, 1], 20) == taken(0, 1, 2)


def test_held_rows_are_fenced_when_their_producer_begins_anew() -> None:
    bucket = Bucket()
    assert bucket.judge([0, 2]) == taken(0)
    assert bucket.judge([0], 10, epoch=1) == [(2, "fenced", 1), (0, "accepted", None)]
    assert bucket.judge([1], 20, epoch=0) == [(1, "fenced", 1)]


def test_in_quarantine_a_gap_comes_out_at_once_and_the_next_number_stays_the_same() -> None:
    bucket = Bucket(OnGap.QUARANTINE)
    assert bucket.judge([0, 2, 3]) == [*taken(0), (2, "gap", 1), (3, "gap", 1)]
    assert bucket.judge([4]) == [(4, "gap", 1)]
    assert bucket.judge([1, 2]) == taken(1, 2)


def test_who_asks_for_it_gets_one_sentence_with_producer_epoch_and_both_numbers() -> None:
    bucket = Bucket(OnGap.FAIL)
    bucket.judge([0, 1])
    with pytest.raises(GapFound, match=r"^gap: pid=7, epoch 3: expected 0, got 4$"):
        bucket.judge([4], epoch=3)
    with pytest.raises(GapFound, match=r"^gap: pid=7, epoch 0: expected 2, got 5$"):
        bucket.judge([1, 6, 5])
    assert bucket.judge([2]) == taken(2)


def test_numbers_are_shown_as_the_producer_counts() -> None:
    bucket = Bucket(OnGap.QUARANTINE, first=1)
    assert bucket.judge([3]) == [(3, "gap", 1)]
    assert bucket.judge([1, 3]) == [*taken(1), (3, "gap", 2)]


def test_a_stream_that_is_read_from_its_middle_begins_anywhere() -> None:
    bucket = Bucket(OnGap.QUARANTINE, first=None)
    assert bucket.judge([18, 17]) == taken(17, 18)
    assert bucket.judge([16]) == [(16, "gap", 19)]


def test_a_forgotten_producer_goes_on_where_it_was() -> None:
    bucket = Bucket(OnGap.QUARANTINE, forget_ms=70)
    assert bucket.judge([0, 1]) == taken(0, 1)
    for now_ms in range(10, 90, 10):
        bucket.judge([now_ms // 10 - 1], now_ms, key=3)
    assert bucket.judge([1], 80) == [(1, "duplicate", None)]
    for now_ms in range(90, 180, 10):
        bucket.judge([now_ms // 10 - 1], now_ms, key=3)
    assert bucket.judge([3], 170) == taken(3)


def test_an_absence_of_the_query_is_no_silence_of_its_producers() -> None:
    bucket = Bucket(OnGap.QUARANTINE, forget_ms=70)
    assert bucket.judge([0, 1]) == taken(0, 1)
    for absence in range(1, 4):
        assert bucket.judge([1], absence * 1_000_000) == [(1, "duplicate", None)]


def test_what_went_by_before_an_absence_counts_and_of_the_absence_a_seventh() -> None:
    bucket = Bucket(OnGap.QUARANTINE, forget_ms=70)
    bucket.judge([0, 1])
    for number, now_ms in enumerate((10, 20, 30, 40, 50, 60, 70)):
        bucket.judge([number], now_ms, key=3)
    # 70 have gone by, and of the absence 10 count: no more than may.
    bucket.judge([7], 1_000_000, key=4)
    assert bucket.judge([1], 1_000_000) == [(1, "duplicate", None)]


def test_an_absence_of_the_query_is_no_silence_of_producers_of_whom_nothing_comes_right_after_it_either() -> None:
    bucket = Bucket(OnGap.QUARANTINE, forget_ms=70)
    bucket.judge([0, 1])
    bucket.judge([0], 1_000_000, key=3)
    bucket.judge([1], 1_000_010, key=3)
    assert bucket.judge([1], 1_000_010) == [(1, "duplicate", None)]


def test_a_clock_that_is_ahead_for_one_batch_forgets_nobody() -> None:
    bucket = Bucket(OnGap.QUARANTINE, forget_ms=70)
    bucket.judge([0, 1], 1_000)
    bucket.judge([0], 9_000_000, key=3)
    assert bucket.judge([0, 1], 1_010) == [(0, "duplicate", None), (1, "duplicate", None)]


def test_a_row_without_a_number_is_given_out_and_held_by_nothing() -> None:
    bucket = Bucket()
    assert bucket.judge([None, 1]) == [(None, "unclaimed", None)]
    assert bucket.judge([None]) == [(None, "unclaimed", None)]


def test_a_row_whose_epoch_no_producer_can_have_makes_no_claim() -> None:
    """Kafka's epochs have 16 bits. Cut to these, 65,536 would be 0, and its row a duplicate that is dropped."""
    bucket = Bucket()
    assert bucket.judge([0], epoch=32_767) == taken(0)
    for epoch in (-1, 32_768, 65_536 + 32_767):
        assert bucket.judge([0, 1], epoch=epoch) == [(0, "unclaimed", None), (1, "unclaimed", None)]
    assert bucket.judge([1], epoch=32_767) == taken(1)


def test_a_number_that_no_producer_can_have_is_not_taken_for_the_one_that_it_wraps_to() -> None:
    """Else the row would be a duplicate of number 0, or take its place."""
    for beyond in (2**31, 2**32, 2**63 - 1, -(2**31)):
        bucket = Bucket(OnGap.QUARANTINE)
        assert bucket.judge([beyond]) == [(beyond, "unclaimed", None)]
        assert bucket.judge([0, beyond]) == [*taken(0), (beyond, "unclaimed", None)]


def test_at_the_end_of_a_batch_nothing_is_held() -> None:
    assert Bucket().judge([0, 2], is_last=True) == [*taken(0), (2, "gap", 1)]


def test_held_rows_take_the_columns_of_a_query_that_was_changed() -> None:
    bucket = Bucket()
    bucket.judge([1])
    judge = SequenceJudge({}, ["pid"], "era", "number", 0, OnGap.HOLD, 100, 10, 10_000)
    rows = bucket.rows([0], 0, 2)
    assert rows is not None
    changed = rows.drop_columns(["copy"]).add_column(0, "more", pa.array(["x"]))
    verdict = judge.judge(bucket.state, changed, Moment(10, None, False))
    assert verdict.rows is not None
    assert verdict.rows.select(["more", "number", "outcome"]).to_pylist() == [
        {"more": "x", "number": 0, "outcome": "accepted"},
        {"more": None, "number": 1, "outcome": "accepted"},
    ]


@given(st.data(), st.integers(1, 30), st.integers(0, 3))
def test_whatever_the_order_and_however_often_every_number_is_accepted_once_and_in_order(
    data: st.DataObject, count: int, again: int
) -> None:
    """Nothing is missing for good, so with room and time enough nothing may be lost, doubled or out of order."""
    deliveries = data.draw(st.permutations([*range(count)] * (1 + again)))
    bucket = Bucket(held_rows_max=count, hold_ms=10_000)
    shown: list[Shown] = []
    now_ms = 0
    while deliveries:
        size = data.draw(st.integers(1, 8))
        shown += bucket.judge(deliveries[:size], now_ms)
        deliveries, now_ms = deliveries[size:], now_ms + 1
    assert [number for number, outcome, _ in shown if outcome == "accepted"] == list(range(count))
    assert [outcome for _, outcome, _ in shown if outcome != "accepted"] == ["duplicate"] * (count * again)
    assert bucket.state is not None
    assert bucket.state.held is None
