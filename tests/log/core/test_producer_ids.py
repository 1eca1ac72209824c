"""Producer ids: none is handed out twice, and the age of each is known well enough to tell new from forgotten."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.log.core.entries import ProducerIdsReserved, TopicDeleted
from semel.log.core.producer_ids import (
    BLOCK_AGE_MAX_MS,
    BLOCK_IDS,
    FIRST_PRODUCER_ID,
    NOBODY,
    RANGE_IDS,
    ProducerIds,
)
from semel.log.storage.files import MemoryFiles
from semel.log.storage.log import Log

DAY_MS = 86_400_000


ANNE, EVE = "User:anne", "User:eve"


def hand_out(ids: ProducerIds, now_ms: int, owner: str = NOBODY) -> int:
    """An id, the way the log takes one: reserve, apply, open, hand out."""
    reservation = ids.decide_reserve(now_ms, owner)
    if reservation is not None:
        ids.check(reservation)
        ids.apply(reservation)
        ids.open_block(reservation)
    return ids.hand_out(owner)


def restored(ids: ProducerIds) -> ProducerIds:
    """As the checkpoint brings them back: through JSON."""
    again = ProducerIds()
    again.restore(json.loads(json.dumps(ids.snapshot())))
    return again


def test_the_first_id_needs_a_reservation_that_says_which_and_when() -> None:
    ids = ProducerIds()
    assert ids.decide_reserve(77) == ProducerIdsReserved(FIRST_PRODUCER_ID, BLOCK_IDS, 77, NOBODY)


def test_deciding_to_reserve_changes_nothing() -> None:
    ids = ProducerIds()
    assert ids.decide_reserve(5) == ids.decide_reserve(5)
    with pytest.raises(AssertionError, match="not been reserved"):
        ids.hand_out()


def test_one_reservation_serves_a_whole_block_of_ids() -> None:
    ids = ProducerIds()
    handed_out = [hand_out(ids, 0)]
    while ids.decide_reserve(0) is None:
        handed_out.append(ids.hand_out())
    assert handed_out == list(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + BLOCK_IDS))
    assert hand_out(ids, 0) == FIRST_PRODUCER_ID + BLOCK_IDS


def test_an_id_that_was_not_reserved_is_never_handed_out() -> None:
    ids = ProducerIds()
    for _ in range(BLOCK_IDS):
        hand_out(ids, 0)
    with pytest.raises(AssertionError, match="not been reserved"):
        ids.hand_out()


def test_a_block_is_left_when_it_is_too_old_to_tell_the_age_of_its_ids() -> None:
    ids = ProducerIds()
    hand_out(ids, 0)
    assert ids.decide_reserve(BLOCK_AGE_MAX_MS - 1) is None
    assert ids.decide_reserve(BLOCK_AGE_MAX_MS) == ProducerIdsReserved(
        FIRST_PRODUCER_ID + BLOCK_IDS, BLOCK_IDS, BLOCK_AGE_MAX_MS, NOBODY
    )


def test_a_block_is_left_when_the_clock_was_set_back_far_behind_its_reservation() -> None:
    ids = ProducerIds()
    hand_out(ids, 50 * DAY_MS)
    assert ids.decide_reserve(50 * DAY_MS - BLOCK_AGE_MAX_MS + 1) is None
    assert ids.decide_reserve(50 * DAY_MS - BLOCK_AGE_MAX_MS) is not None


def test_ids_of_a_block_reserved_under_a_clock_far_ahead_may_have_been_forgotten() -> None:
    ids = ProducerIds()
    producer_id = hand_out(ids, 50 * DAY_MS)
    assert not ids.is_young(producer_id, 20 * DAY_MS, DAY_MS)


def test_a_clock_that_steps_back_a_little_makes_no_id_old() -> None:
    ids = ProducerIds()
    producer_id = hand_out(ids, DAY_MS)
    assert ids.is_young(producer_id, DAY_MS - 5000, DAY_MS)


def test_replaying_the_journal_hands_out_no_id_of_the_last_block_again() -> None:
    ids = ProducerIds()
    reservation = ids.decide_reserve(0)
    assert reservation is not None
    ids.apply(reservation)
    ids.open_block(reservation)
    handed_out = ids.hand_out()
    recovered = ProducerIds()
    recovered.apply(reservation)
    assert hand_out(recovered, 1) > handed_out


def test_a_crashed_log_hands_out_no_id_again() -> None:
    files = MemoryFiles()
    log = Log.open(files, new_cluster_id="cluster")
    handed_out = [log.new_producer_id(0), log.new_producer_id(0)]
    log.sync_now()
    log.abandon()
    log = Log.open(files, new_cluster_id="unused")
    assert log.new_producer_id(1) not in handed_out


def test_an_open_block_must_be_the_one_reserved_last() -> None:
    ids = ProducerIds()
    hand_out(ids, 0)
    with pytest.raises(AssertionError, match="last"):
        ids.open_block(ProducerIdsReserved(FIRST_PRODUCER_ID - 1, BLOCK_IDS, 0, NOBODY))


def test_a_checkpoint_hands_out_no_id_again() -> None:
    ids = ProducerIds()
    handed_out = hand_out(ids, 0)
    assert hand_out(restored(ids), 0) > handed_out


def test_an_id_is_young_until_the_expiration_has_passed_since_its_block_was_reserved() -> None:
    ids = ProducerIds()
    producer_id = hand_out(ids, 1000)
    assert ids.is_young(producer_id, 1000, DAY_MS)
    assert ids.is_young(producer_id, 1000 + DAY_MS - 1, DAY_MS)
    assert not ids.is_young(producer_id, 1000 + DAY_MS, DAY_MS)


def test_the_ids_of_two_blocks_have_two_ages() -> None:
    ids = ProducerIds()
    older = hand_out(ids, 0)
    newer = hand_out(ids, BLOCK_AGE_MAX_MS)
    assert newer == older + BLOCK_IDS
    assert not ids.is_young(older, DAY_MS, DAY_MS)
    assert not ids.is_young(newer - 1, DAY_MS, DAY_MS)
    assert ids.is_young(newer, DAY_MS, DAY_MS)


@pytest.mark.parametrize("producer_id", [0, FIRST_PRODUCER_ID - 1, FIRST_PRODUCER_ID + 1, 10**12, 2**63 - 1])
def test_an_id_that_was_never_handed_out_here_is_not_young(producer_id: int) -> None:
    ids = ProducerIds()
    hand_out(ids, 0)
    assert not ids.is_young(producer_id, 0, DAY_MS)


def test_the_age_of_an_id_survives_a_checkpoint() -> None:
    ids = ProducerIds()
    producer_id = hand_out(ids, 0)
    ids = restored(ids)
    assert ids.is_young(producer_id, DAY_MS - 1, DAY_MS)
    assert not ids.is_young(producer_id, DAY_MS, DAY_MS)


def test_what_is_known_about_old_blocks_is_dropped_and_no_answer_changes() -> None:
    ids = ProducerIds()
    older, newer = hand_out(ids, 0), hand_out(ids, BLOCK_AGE_MAX_MS)
    ids.forget_old(DAY_MS, DAY_MS)
    assert ids.snapshot()["blocks"] == [(newer, newer + BLOCK_IDS, BLOCK_AGE_MAX_MS, 2)]
    assert not ids.is_young(older, DAY_MS, DAY_MS)
    assert ids.is_young(newer, DAY_MS, DAY_MS)
    ids.forget_old(1000 * DAY_MS, DAY_MS)
    assert ids.snapshot()["blocks"] == []
    assert hand_out(ids, 1000 * DAY_MS) == newer + BLOCK_IDS


def test_an_id_does_not_become_young_again_when_a_clock_that_ran_far_ahead_is_set_back() -> None:
    """Its state was forgotten while it seemed old, so it may be anywhere in its numbers."""
    ids = ProducerIds()
    producer_id = hand_out(ids, 0)
    ids.forget_old(DAY_MS, DAY_MS)
    for found in (ids, restored(ids)):
        assert not found.is_young(producer_id, 1000, DAY_MS)
        assert hand_out(found, 1000) == producer_id + BLOCK_IDS


def test_a_block_is_kept_until_the_expiration_has_passed() -> None:
    ids = ProducerIds()
    older = hand_out(ids, 0)
    hand_out(ids, BLOCK_AGE_MAX_MS)
    ids.forget_old(DAY_MS - 1, DAY_MS)
    assert ids.is_young(older, DAY_MS - 1, DAY_MS)


EMPTY = {"ranges_taken": 1, "ranges": [], "block_count": 0, "blocks": []}


@pytest.mark.parametrize("snapshot", [{**EMPTY, "ranges": 7}, {**EMPTY, "blocks": 0}, {"reserved_until": 1000}])
def test_what_is_no_snapshot_is_refused(snapshot: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        ProducerIds().restore(snapshot)


def test_a_block_that_was_reserved_already_cannot_be_reserved_again() -> None:
    ids = ProducerIds()
    reservation = ids.decide_reserve(0)
    assert reservation is not None
    ids.check(reservation)
    ids.apply(reservation)
    with pytest.raises(ValueError, match="from 1000 on are reserved already"):
        ids.check(reservation)


# Owners


def test_an_id_belongs_to_the_principal_that_asked_for_it_after_a_restart_too() -> None:
    ids = ProducerIds()
    handed_out = {owner: hand_out(ids, 0, owner) for owner in (ANNE, NOBODY, EVE)}
    for known in (ids, restored(ids)):
        assert {owner: known.owner_of(one) for owner, one in handed_out.items()} == {one: one for one in handed_out}


def test_an_id_that_was_not_handed_out_yet_belongs_to_the_owner_of_its_range_or_to_none() -> None:
    ids = ProducerIds()
    producer_id = hand_out(ids, 0, ANNE)
    assert ids.owner_of(producer_id + BLOCK_IDS) == ANNE
    assert ids.owner_of(producer_id + RANGE_IDS) is None
    assert ids.owner_of(7) is None


def test_principals_take_turns_and_each_goes_on_in_its_own_block() -> None:
    ids = ProducerIds()
    annes, eves = hand_out(ids, 0, ANNE), hand_out(ids, 0, EVE)
    assert hand_out(ids, 0, ANNE) == annes + 1
    assert hand_out(ids, 0, EVE) == eves + 1
    assert ids.block_count == 2


def test_the_ids_of_every_open_block_have_an_age() -> None:
    ids = ProducerIds()
    annes, eves = hand_out(ids, 0, ANNE), hand_out(ids, 500, EVE)
    assert ids.is_young(annes, DAY_MS - 1, DAY_MS)
    assert not ids.is_young(annes + 1, DAY_MS - 1, DAY_MS)
    assert not ids.is_young(annes, DAY_MS, DAY_MS)
    assert ids.is_young(eves, DAY_MS, DAY_MS)


def test_a_principal_whose_range_is_used_up_gets_another_one_and_keeps_the_first() -> None:
    ids = ProducerIds()
    first = hand_out(ids, 0, ANNE)
    hand_out(ids, 0, EVE)
    ids.apply(ProducerIdsReserved(first + RANGE_IDS - BLOCK_IDS, BLOCK_IDS, 0, ANNE))
    later = hand_out(ids, 0, ANNE)
    assert later == first + 2 * RANGE_IDS
    assert (ids.owner_of(first), ids.owner_of(later)) == (ANNE, ANNE)


def test_the_last_block_of_a_range_is_given_out_too() -> None:
    ids = ProducerIds()
    first = hand_out(ids, 0, ANNE)
    ids.apply(ProducerIdsReserved(first + RANGE_IDS - 2 * BLOCK_IDS, BLOCK_IDS, 0, ANNE))
    assert hand_out(ids, 0, ANNE) == first + RANGE_IDS - BLOCK_IDS


def test_a_principal_whose_older_range_is_nobodys_any_more_goes_on_in_its_newer_one() -> None:
    ids = ProducerIds(ranges_max=2)
    first = hand_out(ids, 0, ANNE)
    ids.apply(ProducerIdsReserved(first + RANGE_IDS - BLOCK_IDS, BLOCK_IDS, 0, ANNE))
    later = hand_out(ids, 0, ANNE)
    hand_out(ids, 0, EVE)
    assert (ids.owner_of(first), ids.owner_of(later)) == (None, ANNE)
    assert hand_out(ids, 0, ANNE) == later + 1


def test_beyond_the_limit_the_range_that_was_unused_longest_is_nobodys_and_its_ids_are_never_given_again() -> None:
    ids = ProducerIds(ranges_max=3)
    hand_out(ids, 0)
    annes, eves = hand_out(ids, 0, ANNE), hand_out(ids, 0, EVE)
    hand_out(ids, BLOCK_AGE_MAX_MS, ANNE)
    hand_out(ids, BLOCK_AGE_MAX_MS, "User:bob")
    assert (ids.owner_of(annes), ids.owner_of(eves)) == (ANNE, None)
    assert ids.owner_of(FIRST_PRODUCER_ID) == NOBODY
    assert hand_out(ids, BLOCK_AGE_MAX_MS, EVE) // RANGE_IDS == 4


def test_a_block_in_the_range_of_somebody_else_cannot_be_reserved() -> None:
    ids = ProducerIds()
    annes = hand_out(ids, 0, ANNE)
    for first, count in ((annes + BLOCK_IDS, 1), (0, 1), (annes + 2 * RANGE_IDS - 1, 2)):
        with pytest.raises(ValueError, match="are"):
            ids.check(ProducerIdsReserved(first, count, 0, EVE))


def test_after_the_deletion_of_a_topic_every_owner_begins_a_new_block() -> None:
    ids = ProducerIds()
    before = {owner: hand_out(ids, 0, owner) for owner in (NOBODY, ANNE)}
    blocks = ids.block_count
    ids.apply(TopicDeleted(7, blocks, 0))
    for owner, earlier in before.items():
        later = hand_out(ids, 0, owner)
        assert later == earlier + BLOCK_IDS
        assert not ids.is_young(earlier, 0, DAY_MS, blocks)
        assert ids.is_young(later, 0, DAY_MS, blocks)


class IdsOverRestarts(RuleBasedStateMachine):
    """Hands out ids over any number of crashes, clean stops and checkpoints; remembers all of them, with their time.

    Reservations are lost with a crash only while no id of theirs was handed out, because that waits for them.
    """

    EXPIRATION_MS = 3 * BLOCK_AGE_MAX_MS

    @initialize(now_ms=st.integers(0, 2**41))
    def begin(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.ids = ProducerIds()
        self.handed_out: dict[int, int] = {}
        self.owners: dict[int, str] = {}
        self.checkpoint = json.dumps(self.ids.snapshot())
        self.journal: list[ProducerIdsReserved | TopicDeleted] = []

    @rule(
        count=st.sampled_from([1, 1, 2, BLOCK_IDS - 1, BLOCK_IDS]), owner=st.sampled_from([NOBODY, NOBODY, ANNE, EVE])
    )
    def hand_out(self, count: int, owner: str) -> None:
        for _ in range(count):
            reservation = self.ids.decide_reserve(self.now_ms, owner)
            if reservation is not None:
                self.journal.append(reservation)
                self.ids.check(reservation)
                self.ids.apply(reservation)
                self.ids.open_block(reservation)
            producer_id = self.ids.hand_out(owner)
            assert producer_id not in self.handed_out
            self.handed_out[producer_id] = self.now_ms
        self.owners[producer_id] = owner

    @rule()
    def a_topic_is_deleted(self) -> None:
        deletion = TopicDeleted(7, self.ids.block_count, self.now_ms)
        self.journal.append(deletion)
        self.ids.apply(deletion)

    @rule(
        passed_ms=st.one_of(
            st.sampled_from([1, BLOCK_AGE_MAX_MS - 1, BLOCK_AGE_MAX_MS, EXPIRATION_MS]),
            st.integers(0, 2 * EXPIRATION_MS),
        )
    )
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def forget_old(self) -> None:
        self.ids.forget_old(self.now_ms, self.EXPIRATION_MS)

    @rule()
    def take_a_checkpoint(self) -> None:
        self.checkpoint = json.dumps(self.ids.snapshot())
        self.journal = []

    @rule()
    def crash_and_recover(self) -> None:
        self.ids = ProducerIds()
        self.ids.restore(json.loads(self.checkpoint))
        for entry in self.journal:
            self.ids.apply(entry)

    @precondition(lambda self: self.ids.decide_reserve(self.now_ms) is not None)
    @rule()
    def crash_before_a_reservation_is_durable(self) -> None:
        reservation = self.ids.decide_reserve(self.now_ms)
        assert reservation is not None
        self.ids.apply(reservation)
        self.ids.open_block(reservation)
        self.crash_and_recover()

    @invariant()
    def the_owner_of_every_id_is_known(self) -> None:
        assert {one: self.ids.owner_of(one) for one in self.owners} == self.owners

    @invariant()
    def the_age_of_every_id_is_known_well_enough(self) -> None:
        # The first and the last id of each time will do: whatever lies between two of one time is as old as they.
        ends = {at: producer_id for producer_id, at in self.handed_out.items()}
        ends_reversed = {at: producer_id for producer_id, at in reversed(self.handed_out.items())}
        for at_ms, producer_id in (*ends.items(), *ends_reversed.items()):
            age_ms = self.now_ms - at_ms
            young = self.ids.is_young(producer_id, self.now_ms, self.EXPIRATION_MS)
            if age_ms >= self.EXPIRATION_MS:
                assert not young
            elif age_ms <= self.EXPIRATION_MS - BLOCK_AGE_MAX_MS:
                assert young


IdsOverRestarts.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
test_ids_are_unique_over_restarts_and_their_ages_known = IdsOverRestarts.TestCase
