"""Records that lost their batches: each is a claim of its own, and one run knows all that was accepted in an epoch."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.wire.sequences import (
    RUN_RECORDS_MAX,
    SEQUENCE_MASK,
    Judgement,
    KnownBatch,
    Outcome,
    epoch_of,
    judge_run,
    last_heard_ms,
    note_run,
    window_of,
)

LAST = SEQUENCE_MASK
ACCEPTED, DUPLICATE, GAP, FENCED = Outcome
Verdict = tuple[Outcome, int]


def state_of(first: int, count: int, epoch: int = 0) -> bytes:
    return note_run(None, 1, epoch, (first + count - 1) & SEQUENCE_MASK, count)


class Naive:
    """The same promise as a set of numbers: what has been accepted in the current epoch, and what is next."""

    def __init__(self, is_new: bool) -> None:
        self.is_new = is_new
        self.epoch: int | None = None
        self.accepted: set[int] = set()
        self.expected = 0

    def judge(self, epoch: int, number: int) -> Verdict:
        if self.epoch is not None and epoch < self.epoch:
            return FENCED, self.epoch
        if self.epoch is None or epoch > self.epoch:
            begins = number == 0 or (self.epoch is None and not self.is_new)
            if not begins:
                return GAP, 0
            self.epoch, self.accepted = epoch, set()
        elif number in self.accepted:
            return DUPLICATE, self.expected
        elif number != self.expected:
            return GAP, self.expected
        self.accepted.add(number)
        self.expected = (number + 1) & SEQUENCE_MASK
        return ACCEPTED, 0


def judged(is_new: bool, runs: Iterable[tuple[int, int, int]]) -> list[Verdict]:
    """What becomes of each record of runs of (epoch, first sequence, record count), each run judged as a whole."""
    state: bytes | None = None
    verdicts: list[Verdict] = []
    for turn, (epoch, first, count) in enumerate(runs):
        while count:
            alike, judgement = judge_run(state, is_new, epoch, first, count)
            assert 1 <= alike <= count
            accepted = judgement.outcome is ACCEPTED
            verdicts += [(judgement.outcome, 0 if accepted else judgement.expected)] * alike
            first, count = (first + alike) & SEQUENCE_MASK, count - alike
            if accepted:
                state = note_run(state, turn, epoch, (first - 1) & SEQUENCE_MASK, alike)
    return verdicts


# Numbers around 0, where the wrap is and where everything begins, and a few that lie half way round.
firsts = st.integers(-12, 25) | st.sampled_from([RUN_RECORDS_MAX - 3, RUN_RECORDS_MAX])
runs = st.lists(
    st.tuples(st.integers(0, 2), firsts.map(lambda number: number & SEQUENCE_MASK), st.integers(1, 12)), max_size=25
)


@given(st.booleans(), runs)
def test_a_run_judged_as_a_whole_is_its_records_judged_one_by_one(
    is_new: bool, runs: list[tuple[int, int, int]]
) -> None:
    naive = Naive(is_new)
    singly = [(epoch, (first + turn) & SEQUENCE_MASK, 1) for epoch, first, count in runs for turn in range(count)]
    assert judged(is_new, runs) == judged(is_new, singly)
    assert judged(is_new, runs) == [naive.judge(epoch, number) for epoch, number, _ in singly]


def test_every_number_accepted_in_the_epoch_is_a_duplicate_however_long_ago() -> None:
    state = state_of(0, 100_000)
    for number in (0, 1, 50_000, 99_999):
        assert judge_run(state, True, 0, number, 1) == (1, Judgement(DUPLICATE, None, 100_000))


def test_a_redelivery_that_reaches_beyond_what_is_known_is_cut_where_the_new_begins() -> None:
    assert judge_run(state_of(0, 10), True, 0, 7, 10) == (3, Judgement(DUPLICATE, None, 10))
    assert judge_run(state_of(0, 10), True, 0, 10, 7) == (7, Judgement(ACCEPTED, None, 10))


def test_what_was_never_accepted_is_never_called_a_duplicate() -> None:
    """A producer taken up in its middle: whether its earlier numbers were there once, nobody knows any more."""
    state = state_of(500, 10)
    assert judge_run(state, False, 0, 498, 20) == (2, Judgement(GAP, None, 510))
    assert judge_run(state, False, 0, LAST, 1) == (1, Judgement(GAP, None, 510))


def test_a_run_reaches_over_the_wrap() -> None:
    state = state_of(LAST - 4, 10)
    assert judge_run(state, True, 0, LAST - 5, 20) == (1, Judgement(GAP, None, 5))
    assert judge_run(state, True, 0, LAST - 4, 20) == (10, Judgement(DUPLICATE, None, 5))
    assert judge_run(state, True, 0, 5, 20) == (20, Judgement(ACCEPTED, None, 5))


def test_after_half_of_all_numbers_the_oldest_leave_the_run_and_the_next_is_still_next() -> None:
    state = note_run(state_of(0, RUN_RECORDS_MAX), 2, 0, RUN_RECORDS_MAX + 9, 10)
    assert window_of(state) == [KnownBatch(RUN_RECORDS_MAX + 9, RUN_RECORDS_MAX, 0, -1)]
    assert judge_run(state, True, 0, 0, 11) == (10, Judgement(GAP, None, RUN_RECORDS_MAX + 10))
    assert judge_run(state, True, 0, 10, 1) == (1, Judgement(DUPLICATE, None, RUN_RECORDS_MAX + 10))
    assert judge_run(state, True, 0, RUN_RECORDS_MAX + 10, 1)[1].outcome is ACCEPTED


def test_a_run_that_comes_to_0_in_a_later_epoch_is_accepted_from_there_on() -> None:
    state = state_of(0, 10, epoch=3)
    assert judge_run(state, True, 4, LAST - 1, 5) == (2, Judgement(GAP, None, 0))
    assert judge_run(state, True, 4, 0, 3) == (3, Judgement(ACCEPTED, None, 0))
    assert judge_run(state, True, 2, 10, 5) == (5, Judgement(FENCED, None, 3))


@pytest.mark.parametrize("count", [1, 2, 1000, 10**6])
def test_the_state_of_a_run_is_as_small_as_that_of_one_batch_and_says_when_it_was_heard(count: int) -> None:
    state = note_run(state_of(0, count, epoch=7), 99, 7, 2 * count - 1, count)
    assert len(state) == 34
    assert (last_heard_ms(state), epoch_of(state)) == (99, 7)
