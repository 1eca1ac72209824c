"""What becomes of a producer's claim: the table of verdicts, then every promise about numbers, epochs and windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.producer_table import Producers
from semel.wire.sequences import (
    SEQUENCE_MASK,
    VERDICTS,
    WINDOW_BATCHES,
    Judgement,
    KnownBatch,
    Number,
    Outcome,
    Standing,
    advance,
    epoch_of,
    find_repeated,
    judge,
    last_heard_ms,
    note,
    note_marker,
    window_of,
)

LAST = 2**31 - 1
ACCEPTED, DUPLICATE, GAP, FENCED = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.GAP, Outcome.FENCED


def state_after(*batches: tuple[int, int], epoch: int = 0) -> bytes:
    """The state after batches of (first sequence, record count), whose offsets are 100, 200, ... and times 1, 2, ..."""
    state = None
    for turn, (first, count) in enumerate(batches, start=1):
        state = note(state, turn, epoch, (first + count - 1) % 2**31, count, 100 * turn, turn)
    assert state is not None
    return state


def outcome_of(state: bytes | None, first: int, count: int = 1, *, epoch: int = 0, is_new: bool = True) -> Outcome:
    return judge(state, is_new, epoch, first, count).outcome


def gap(expected: int) -> Judgement:
    return Judgement(GAP, None, expected)


# The table


@pytest.mark.parametrize("number", Number)
@pytest.mark.parametrize("standing", Standing)
def test_every_standing_and_number_has_the_verdict_that_the_rules_demand(standing: Standing, number: Number) -> None:
    if standing is Standing.ZOMBIE:
        demanded = FENCED
    elif standing is Standing.FORGOTTEN:
        demanded = ACCEPTED
    else:
        demanded = ACCEPTED if number is Number.NEXT else GAP
    assert VERDICTS[standing][number] is demanded


def test_the_table_of_verdicts_has_a_row_for_every_standing_and_a_column_for_every_number() -> None:
    assert len(VERDICTS) == len(Standing)
    assert {len(row) for row in VERDICTS} == {len(Number)}


# The first batch


def test_a_fresh_id_starts_at_0() -> None:
    assert judge(None, True, 0, 0, 3) == Judgement(ACCEPTED)


@pytest.mark.parametrize("first", [1, 5, LAST])
def test_a_fresh_id_that_does_not_start_at_0_has_left_a_gap(first: int) -> None:
    assert judge(None, True, 0, first, 1) == gap(0)


def test_a_fresh_id_starts_at_0_in_whatever_epoch_it_comes() -> None:
    assert outcome_of(None, 0, epoch=7) is ACCEPTED
    assert outcome_of(None, 1, epoch=7) is GAP


@pytest.mark.parametrize("epoch", [0, 32767])
@pytest.mark.parametrize("first", [0, 1, 17, LAST])
def test_a_forgotten_id_may_start_anywhere(first: int, epoch: int) -> None:
    assert outcome_of(None, first, epoch=epoch, is_new=False) is ACCEPTED


# The next batch


def test_the_next_number_is_accepted_however_many_records_came_before() -> None:
    assert outcome_of(state_after((0, 1)), 1, 500) is ACCEPTED
    assert outcome_of(state_after((0, 500)), 500) is ACCEPTED
    assert outcome_of(state_after((0, 3), (3, 4)), 7) is ACCEPTED


@pytest.mark.parametrize("first", [2, 9, 11, LAST, 2**30])
def test_any_number_but_the_next_is_a_gap_that_names_the_next(first: int) -> None:
    assert judge(state_after((0, 10)), True, 0, first, 1) == gap(10)


def test_starting_over_at_0_in_the_same_epoch_is_a_gap() -> None:
    assert judge(state_after((5, 10)), True, 0, 0, 1) == gap(15)


def test_a_negative_number_is_never_the_next() -> None:
    assert judge(state_after((LAST, 1)), True, 0, -(2**31), 1) == gap(0)
    assert judge(state_after((LAST - 1, 1)), True, 0, -1, 1) == gap(LAST)


# Around the wrap


def test_behind_the_last_number_comes_0() -> None:
    assert advance(LAST, 1) == 0
    assert outcome_of(state_after((LAST, 1)), 0) is ACCEPTED


def test_the_last_number_is_used_before_the_wrap() -> None:
    state = state_after((LAST - 1, 1))
    assert judge(state, True, 0, LAST, 1) == Judgement(ACCEPTED)
    assert judge(state, True, 0, 0, 1) == gap(LAST)


def test_behind_the_wrap_1_is_a_gap() -> None:
    assert judge(state_after((LAST, 1)), True, 0, 1, 1) == gap(0)


def test_a_batch_may_span_the_wrap_and_the_next_goes_on_behind_it() -> None:
    state = state_after((LAST - 2, 5))
    assert window_of(state)[-1].last_sequence == 1
    assert outcome_of(state, 2) is ACCEPTED
    for first in (0, 1, 3, LAST):
        assert judge(state, True, 0, first, 1) == gap(2)


def test_a_batch_that_ends_on_the_last_number_is_followed_by_0() -> None:
    assert outcome_of(state_after((LAST - 9, 10)), 0) is ACCEPTED


def test_a_batch_that_spans_the_wrap_is_recognised_when_it_comes_again() -> None:
    state = state_after((LAST - 2, 5), (2, 1))
    assert judge(state, True, 0, LAST - 2, 5) == Judgement(DUPLICATE, KnownBatch(1, 5, 100, 1))
    assert window_of(state)[0].first_sequence == LAST - 2


@given(st.integers(0, LAST), st.integers(0, LAST))
def test_numbers_are_added_as_whole_numbers_are_and_wrapped_once(sequence: int, count: int) -> None:
    whole = sequence + count
    assert advance(sequence, count) == (whole if whole <= LAST else whole - LAST - 1)


@given(st.integers(0, LAST), st.integers(1, LAST))
def test_a_known_batch_knows_where_it_began(first: int, count: int) -> None:
    assert window_of(state_after((first, count)))[0].first_sequence == first


# Repetitions


@pytest.mark.parametrize("turn", [1, 2, 3, 4, 5])
def test_a_retry_of_any_of_the_last_five_batches_gets_its_original_offset_and_timestamp(turn: int) -> None:
    state = state_after((0, 1), *[(1 + 2 * turn, 2) for turn in range(5)])
    original = KnownBatch(2 * turn, 2, 100 * (turn + 1), turn + 1)
    assert judge(state, True, 0, 2 * turn - 1, 2) == Judgement(DUPLICATE, original)


def test_a_retry_of_the_fifth_last_batch_is_a_duplicate_and_of_the_sixth_last_a_gap() -> None:
    state = state_after(*[(turn, 1) for turn in range(6)])
    assert judge(state, True, 0, 1, 1) == Judgement(DUPLICATE, KnownBatch(1, 1, 200, 2))
    assert judge(state, True, 0, 0, 1) == gap(6)


def test_with_fewer_than_five_batches_the_first_is_still_recognised() -> None:
    for count in range(1, WINDOW_BATCHES + 1):
        assert outcome_of(state_after(*[(turn, 1) for turn in range(count)]), 0) is DUPLICATE


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(10, 9, id="the same first number, an earlier end"),
        pytest.param(10, 11, id="the same first number, a later end"),
        pytest.param(9, 11, id="the same last number, an earlier beginning"),
        pytest.param(11, 9, id="the same last number, a later beginning"),
        pytest.param(12, 3, id="inside"),
        pytest.param(8, 20, id="around"),
        pytest.param(19, 5, id="over the end"),
        pytest.param(5, 10, id="from the batch before"),
        pytest.param(0, 20, id="both batches as one"),
    ],
)
def test_a_batch_that_overlaps_an_old_one_is_no_repetition_of_it(first: int, count: int) -> None:
    assert judge(state_after((0, 10), (10, 10)), True, 0, first, count) == gap(20)


def test_the_same_last_number_with_another_count_is_told_apart_across_the_wrap() -> None:
    state = state_after((LAST - 2, 5))
    assert outcome_of(state, LAST - 2, 5) is DUPLICATE
    assert outcome_of(state, LAST - 1, 4) is GAP
    assert outcome_of(state, LAST - 3, 6) is GAP


def test_a_batch_is_not_found_between_two_batches_of_the_window() -> None:
    # What lies across the border of two batches, or inside one, must not pass for a batch.
    state = note(None, 0, 0, 0, 1, 5 | 1 << 32, 9 | 3 << 32)
    assert find_repeated(state, 5, 1) is None
    assert find_repeated(state, 7, 3) is None
    assert find_repeated(state, 0, 1) == KnownBatch(0, 1, 5 | 1 << 32, 9 | 3 << 32)


def test_should_two_batches_have_claimed_the_same_numbers_the_later_one_answers() -> None:
    state = state_after((0, LAST), (LAST, 1), (0, LAST))
    assert judge(state, True, 0, 0, LAST) == Judgement(DUPLICATE, KnownBatch(LAST - 1, LAST, 300, 3))


def test_a_retry_is_a_duplicate_whether_or_not_its_id_could_have_been_forgotten() -> None:
    state = state_after((0, 1))
    assert outcome_of(state, 0, is_new=False) is DUPLICATE
    assert outcome_of(state, 5, is_new=False) is GAP


# Epochs


def test_a_later_epoch_starts_at_0_and_nowhere_else() -> None:
    state = state_after((0, 10), epoch=3)
    assert outcome_of(state, 0, epoch=4) is ACCEPTED
    assert outcome_of(state, 0, epoch=9) is ACCEPTED
    assert judge(state, False, 4, 10, 1) == gap(0)
    assert judge(state, False, 4, 1, 1) == gap(0)


@pytest.mark.parametrize("first", [0, 9, 10, 11])
def test_an_earlier_epoch_is_fenced_whatever_number_it_claims(first: int) -> None:
    assert judge(state_after((0, 10), epoch=3), True, 2, first, 1) == Judgement(FENCED, None, 3)


def test_a_batch_of_an_earlier_epoch_is_no_duplicate_even_of_itself() -> None:
    state = note(state_after((0, 10), epoch=3), 9, 4, 0, 1, 500, 9)
    assert outcome_of(state, 0, 10, epoch=3) is FENCED
    assert judge(state, True, 4, 0, 10) == gap(1)


def test_a_batch_of_the_same_numbers_in_a_later_epoch_is_new() -> None:
    assert outcome_of(state_after((0, 10), epoch=3), 0, 10, epoch=4) is ACCEPTED


def test_a_later_epoch_begins_with_an_empty_window() -> None:
    state = note(state_after((0, 1), (1, 1), epoch=3), 9, 4, 2, 3, 500, 9)
    assert epoch_of(state) == 4
    assert window_of(state) == [KnownBatch(2, 3, 500, 9)]


def test_a_marker_of_an_earlier_epoch_lets_no_zombie_back_in() -> None:
    before = state_after((0, 1), (1, 1), epoch=4)
    state = note_marker(before, 9, 3)
    assert (epoch_of(state), window_of(state), last_heard_ms(state)) == (4, window_of(before), 9)


@pytest.mark.parametrize("epoch", [0, 1, 255, 256, 32766, 32767])
def test_every_epoch_is_kept_and_compared_as_a_number(epoch: int) -> None:
    state = state_after((0, 1), epoch=epoch)
    assert epoch_of(state) == epoch
    assert outcome_of(state, 0, epoch=epoch) is DUPLICATE
    assert outcome_of(state, 0, epoch=epoch + 1) is ACCEPTED
    if epoch:
        assert outcome_of(state, 0, epoch=epoch - 1) is FENCED


# The packed state


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.lists(
        st.builds(
            KnownBatch,
            st.integers(0, LAST),
            st.integers(1, LAST),
            st.integers(0, 2**63 - 1),
            st.integers(-1, 2**63 - 1),
        ),
        min_size=1,
        max_size=9,
    ),
)
def test_the_last_five_batches_are_kept_as_they_were_in_their_order(
    now_ms: int, epoch: int, batches: list[KnownBatch]
) -> None:
    state = None
    for batch in batches:
        state = note(state, now_ms, epoch, *batch)
    assert state is not None
    assert window_of(state) == batches[-5:]
    assert epoch_of(state) == epoch
    assert last_heard_ms(state) == now_ms


def test_a_full_window_takes_no_more_room_however_many_batches_come() -> None:
    sizes = [len(state_after(*[(turn, 1) for turn in range(count)])) for count in range(1, 12)]
    assert sizes == [34, 58, 82, 106, 130] + [130] * 6


def test_the_numbers_of_a_window_are_as_many_as_a_client_has_in_flight() -> None:
    assert WINDOW_BATCHES == 5
    assert SEQUENCE_MASK == LAST


# All producers of a partition


def test_one_producers_batches_touch_no_other() -> None:
    producers = Producers()
    producers.note(1, 10, 0, 0, 1, 0, -1)
    before = producers.get(1)
    producers.note(2, 20, 5, 9, 10, 1, -1)
    assert producers.get(1) is before
    assert producers.get(3) is None
    assert len(producers) == 2


def test_producers_silent_for_too_long_are_forgotten_and_no_others() -> None:
    producers = Producers()
    for producer_id in (1, 2, 3, 4):
        producers.note(producer_id, 10 * producer_id, 0, 0, 1, 0, -1)
    assert producers.forget_silent(30, 100) == 2
    assert [producer_id for producer_id, _ in producers.items()] == [3, 4]
    assert producers.forget_silent(30, 100) == 0
    assert producers.forget_silent(1000, 100) == 2
    assert len(producers) == 0


def test_who_was_heard_under_a_clock_far_ahead_does_not_keep_others_from_being_forgotten() -> None:
    producers = Producers()
    for producer_id, heard_ms in ((1, 1_000_000), (2, 10), (3, 1_000_000), (4, 20), (5, 30)):
        producers.note(producer_id, heard_ms, 0, 0, 1, 0, -1)
    assert producers.forget_silent(30, 100) == 2
    assert [producer_id for producer_id, _ in producers.items()] == [1, 3, 5]


def test_a_producer_that_was_heard_again_is_not_forgotten_though_it_came_first() -> None:
    producers = Producers()
    producers.note(1, 10, 0, 0, 1, 0, -1)
    producers.note(2, 20, 0, 0, 1, 1, -1)
    producers.note(1, 30, 0, 1, 1, 2, -1)
    assert producers.forget_silent(25, 100) == 1
    assert producers.get(2) is None
    assert producers.get(1) is not None


def test_a_producer_is_remembered_from_the_end_of_its_last_transaction() -> None:
    for epoch in (0, 1):
        producers = Producers()
        producers.note(1, 10, 0, 0, 1, 0, -1)
        producers.note(2, 20, 0, 0, 1, 1, -1)
        producers.note_marker(1, 30, epoch)
        assert producers.forget_silent(30, 100) == 1
        assert producers.get(1) is not None
        assert producers.forget_silent(31, 100) == 1


def test_a_snapshot_does_not_change_with_what_follows() -> None:
    producers = Producers()
    producers.note(1, 10, 0, 0, 1, 0, -1)
    snapshot = producers.snapshot()
    before = dict(snapshot.recent)
    producers.note(1, 20, 0, 1, 1, 1, -1)
    producers.note(2, 20, 0, 0, 1, 2, -1)
    assert snapshot.recent == before


def test_all_five_batches_and_the_order_of_silence_survive_a_restart() -> None:
    producers = Producers()
    for turn in range(7):
        producers.note(1, turn, 0, turn, 1, turn, -1)
    producers.note(2, 50, 0, 0, 1, 7, -1)
    producers.note(1, 60, 0, 7, 1, 8, -1)
    again = Producers()
    again.restore(producers.snapshot())
    assert list(again.items()) == list(producers.items())
    state = again.get(1)
    assert state is not None
    assert [outcome_of(state, first) for first in range(9)] == [GAP] * 3 + [DUPLICATE] * 5 + [ACCEPTED]
    assert again.forget_silent(55, 100) == 1
    assert again.get(1) is not None
