"""Many claims asked at once against the naive way: put in order one by one, and core asked about each alone."""

from collections.abc import Sequence
from functools import cmp_to_key

import numpy
from hypothesis import given
from hypothesis import strategies as st

from semel.spark.dedup.claims import Claims, judge_claims
from semel.spark.dedup.producer_states import ProducerStates
from semel.wire.sequences import (
    RUN_RECORDS_MAX,
    SEQUENCE_MASK,
    Outcome,
    advance,
    epoch_of,
    judge_run,
    note_run,
    window_of,
)

Claim = tuple[int, int, int]
Fate = tuple[Outcome, int]


class Naive:
    """One state for each producer in a dict, and one question for each claim."""

    def __init__(self, is_new: bool) -> None:
        self.is_new = is_new
        self.states: dict[int, bytes] = {}

    def judge(self, claims: Sequence[Claim]) -> list[Fate]:
        fates: dict[int, Fate] = {}
        for producer in {claim[0] for claim in claims}:
            mine = [turn for turn, claim in enumerate(claims) if claim[0] == producer]
            for turn in self.in_order(mine, claims):
                fates[turn] = self.judge_one(*claims[turn])
        return [fates[turn] for turn in range(len(claims))]

    def in_order(self, mine: list[int], claims: Sequence[Claim]) -> list[int]:
        """By epoch, then by how far a number is from the one to come: at most half round in either direction."""
        state = self.states.get(claims[mine[0]][0])
        arrived_first = claims[mine[0]][2]

        def distance(turn: int) -> int:
            _, epoch, number = claims[turn]
            if state is None:
                seen_from = 0 if self.is_new else arrived_first
            else:
                seen_from = advance(window_of(state)[-1].last_sequence, 1) if epoch == epoch_of(state) else 0
            ahead = (number - seen_from) & SEQUENCE_MASK
            return ahead if ahead < RUN_RECORDS_MAX else ahead - SEQUENCE_MASK - 1

        def compare(one: int, other: int) -> int:
            first, second = (claims[one][1], distance(one), one), (claims[other][1], distance(other), other)
            return -1 if first < second else 1

        return sorted(mine, key=cmp_to_key(compare))

    def judge_one(self, producer: int, epoch: int, number: int) -> Fate:
        state = self.states.get(producer)
        _, judgement = judge_run(state, self.is_new, epoch, number, 1)
        if judgement.outcome is Outcome.ACCEPTED:
            self.states[producer] = note_run(state, 0, epoch, number, 1)
        has_expected = judgement.outcome in (Outcome.GAP, Outcome.FENCED)
        return judgement.outcome, judgement.expected if has_expected else -1


def as_arrays(claims: Sequence[Claim]) -> Claims:
    # Producers 1 and 2 share the first half of their key, and 3 and 4 the second half.
    high = {1: 7, 2: 7, 3: -5, 4: 9}
    low = {1: -1, 2: 4, 3: 3, 4: 3}
    columns = (
        [high[claim[0]] for claim in claims],
        [low[claim[0]] for claim in claims],
        [claim[1] for claim in claims],
        [claim[2] for claim in claims],
    )
    return Claims(*(numpy.array(column, numpy.int64) for column in columns))


@st.composite
def streams(draw: st.DrawFn) -> list[list[Claim]]:
    """Numbered events of some producers, cut into batches: delivered again and again, out of order, some left out."""
    start = draw(st.sampled_from([0, 0, SEQUENCE_MASK - 6, RUN_RECORDS_MAX - 5]))
    batches: list[list[Claim]] = []
    position = dict.fromkeys(range(1, 5), start)
    epochs = dict.fromkeys(range(1, 5), 0)
    for _ in range(draw(st.integers(1, 8))):
        batch: list[Claim] = []
        for _ in range(draw(st.integers(1, 6))):
            producer = draw(st.integers(1, 4))
            if draw(st.integers(0, 6)) == 6:
                epochs[producer], position[producer] = epochs[producer] + 1, 0
            back = draw(st.integers(-2, 8))
            first, count = position[producer] - back, draw(st.integers(1, 12))
            epoch = max(0, epochs[producer] - draw(st.sampled_from([0, 0, 0, 0, 1])))
            batch += [(producer, epoch, number & SEQUENCE_MASK) for number in range(first, first + count)]
            position[producer] = max(position[producer], first + count)
        batches.append(draw(st.permutations(batch)) if draw(st.booleans()) else batch)
    return batches


@given(streams(), st.booleans())
def test_many_claims_at_once_have_the_fates_that_core_gives_each_alone(
    batches: list[list[Claim]], is_new: bool
) -> None:
    naive = Naive(is_new)
    producers = ProducerStates.unpack(None)
    for turn, batch in enumerate(batches):
        judged = judge_claims(as_arrays(batch), producers, is_new=is_new, now_ms=turn)
        fates: list[Fate | None] = [None] * len(batch)
        pairs = zip(judged.outcome.tolist(), judged.expected.tolist(), strict=True)
        for claim, (outcome, expected) in zip(judged.order.tolist(), pairs, strict=True):
            fates[claim] = (Outcome(outcome), expected)
        assert fates == naive.judge(batch)
        # What is kept is what goes through the state store.
        producers = ProducerStates.unpack(judged.producers.pack())
        assert len(producers.table) == len(naive.states)


@given(streams())
def test_of_a_number_exactly_one_row_is_ever_accepted_and_rows_come_out_in_the_order_of_their_numbers(
    batches: list[list[Claim]],
) -> None:
    producers = ProducerStates.unpack(None)
    seen: set[Claim] = set()
    last: dict[tuple[int, int], int] = {}
    for batch in batches:
        judged = judge_claims(as_arrays(batch), producers, is_new=True, now_ms=0)
        producers = judged.producers
        for claim, outcome in zip(judged.order.tolist(), judged.outcome.tolist(), strict=True):
            if outcome == Outcome.ACCEPTED:
                producer, epoch, number = batch[claim]
                assert batch[claim] not in seen
                assert number == last.get((producer, epoch), -1) + 1
                seen.add(batch[claim])
                last[producer, epoch] = number


def test_of_two_copies_the_one_that_arrived_first_is_accepted() -> None:
    judged = judge_claims(
        as_arrays([(1, 0, 1), (1, 0, 0), (1, 0, 0), (1, 0, 1)]), ProducerStates.unpack(None), is_new=True, now_ms=0
    )
    assert judged.order.tolist() == [1, 2, 0, 3]
    assert judged.outcome.tolist() == [Outcome.ACCEPTED, Outcome.DUPLICATE] * 2
    assert judged.is_copy.tolist() == [False, True] * 2


def test_a_later_epoch_begins_at_0_though_its_number_follows_that_of_the_epoch_before() -> None:
    judged = judge_claims(
        as_arrays([(1, 0, 0), (1, 0, 1), (1, 1, 2)]), ProducerStates.unpack(None), is_new=True, now_ms=0
    )
    assert [*judged.outcome] == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.GAP]
    assert judged.expected[2] == 0


def test_no_claims_change_nothing() -> None:
    judged = judge_claims(as_arrays([]), ProducerStates.unpack(None), is_new=True, now_ms=0)
    assert len(judged.order) == 0
    assert len(judged.producers.table) == 0


def test_a_silent_producer_is_forgotten_and_may_then_go_on_anywhere() -> None:
    producers = judge_claims(as_arrays([(1, 0, 0)]), ProducerStates.unpack(None), is_new=True, now_ms=10).producers
    producers = judge_claims(as_arrays([(2, 0, 0)]), producers, is_new=True, now_ms=20).producers
    # A silence of 10 is one of 9 and the seventh that is left to doubt.
    assert not producers.without_silent(now_ms=20, forget_ms=9).has_forgotten
    later = ProducerStates.unpack(producers.without_silent(now_ms=20, forget_ms=8).pack())
    assert later.has_forgotten
    assert len(later.table) == 1
    judged = judge_claims(as_arrays([(1, 0, 1)]), later, is_new=not later.has_forgotten, now_ms=30)
    assert judged.outcome.tolist() == [Outcome.ACCEPTED]


def test_a_producer_of_whom_only_duplicates_come_is_not_silent() -> None:
    producers = judge_claims(as_arrays([(1, 0, 0)]), ProducerStates.unpack(None), is_new=True, now_ms=10).producers
    producers = judge_claims(as_arrays([(1, 0, 0)]), producers, is_new=True, now_ms=20).producers
    assert not producers.without_silent(now_ms=20, forget_ms=7).has_forgotten
