"""One partition: its promises one by one, then a machine that holds it against a list of everything ever accepted."""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from refusal import refused
from semel.log.core.batch_checks import Verdict, judge_claim
from semel.log.core.entries import TopicDeleted
from semel.log.core.partition import PRODUCER_EXPIRATION_MS, Partition
from semel.log.core.producer_ids import BLOCK_AGE_MAX_MS, ProducerIds
from semel.wire import refusals
from semel.wire.batch import APPEND_TIME_BIT, NO_PRODUCER, NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader
from semel.wire.sequences import Outcome

LAST = 2**31 - 1
STRANGER = 7
ACCEPTED, DUPLICATE, GAP, FENCED = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.GAP, Outcome.FENCED


def batch(producer_id: int, first: int, count: int = 1, epoch: int = 0, **fields: int) -> BatchHeader:
    """The header of a batch; only what the rules look at matters."""
    header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, 500, 600, producer_id, epoch, first, count)
    return header._replace(**fields)


def hand_out(ids: ProducerIds, now_ms: int = 0) -> int:
    reservation = ids.decide_reserve(now_ms)
    if reservation is not None:
        ids.apply(reservation)
        ids.open_block(reservation)
    return ids.hand_out()


def send(partition: Partition, ids: ProducerIds, header: BatchHeader, now_ms: int = 0, **options: int) -> Verdict:
    """Decide, and apply if accepted, as the log does."""
    decision = judge_claim(partition, header, ids, now_ms, **options)
    if decision.outcome is ACCEPTED:
        partition.apply_append(header._replace(base_offset=partition.next_offset), now_ms)
    return decision


def duplicate(offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Verdict:
    return Verdict(DUPLICATE, offset, timestamp_ms)


def everything(partition: Partition) -> tuple[int, int, list[tuple[int, bytes]]]:
    return partition.log_start, partition.next_offset, list(partition.producers.items())


@pytest.fixture
def ids() -> ProducerIds:
    return ProducerIds()


def test_a_batch_takes_as_many_offsets_as_it_has_records(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, 3))
    send(partition, ids, batch(NO_PRODUCER, -1, 2, -1))
    send(partition, ids, batch(producer_id, 3, 4))
    assert partition.next_offset == 9
    assert send(partition, ids, batch(producer_id, 3, 4)) == duplicate(5)


def test_deciding_changes_nothing_whatever_the_outcome(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, epoch=1))
    before = everything(partition)
    outcomes = [
        judge_claim(partition, header, ids, 9).outcome
        for header in (
            batch(producer_id, 1, epoch=1),
            batch(producer_id, 0, epoch=1),
            batch(producer_id, 5, epoch=1),
            batch(producer_id, 0, epoch=0),
        )
    ]
    assert outcomes == [ACCEPTED, DUPLICATE, GAP, FENCED]
    assert everything(partition) == before


def test_a_batch_without_a_producer_is_accepted_as_often_as_it_comes(ids: ProducerIds) -> None:
    partition = Partition()
    for _ in range(3):
        assert send(partition, ids, batch(NO_PRODUCER, -1, 2, -1)).outcome is ACCEPTED
    assert partition.next_offset == 6
    assert len(partition.producers) == 0


def test_a_gap_names_the_number_that_is_missing(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0))
    decision = send(partition, ids, batch(producer_id, 5))
    assert decision == Verdict(
        GAP, error=refusals.OUT_OF_ORDER_SEQUENCE_NUMBER, message="sequence gap (expected 1, got 5)", expected=1
    )


def test_a_zombie_hears_that_its_epoch_is_fenced(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, epoch=2))
    decision = send(partition, ids, batch(producer_id, 0, epoch=1))
    assert decision.outcome is FENCED
    assert decision.error == refusals.INVALID_PRODUCER_EPOCH
    assert decision.message == "fenced (epoch 1, current 2)"


def test_after_a_gap_every_number_but_the_next_is_a_gap_until_a_new_epoch(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0))
    for first in (2, 3, 4, 2, 50):
        assert send(partition, ids, batch(producer_id, first)).outcome is GAP
    assert partition.next_offset == 1
    assert send(partition, ids, batch(producer_id, 1)).outcome is ACCEPTED
    assert send(partition, ids, batch(producer_id, 3)).outcome is GAP
    assert send(partition, ids, batch(producer_id, 3, epoch=1)).outcome is GAP
    assert send(partition, ids, batch(producer_id, 0, epoch=1)).outcome is ACCEPTED
    assert send(partition, ids, batch(producer_id, 1, epoch=1)).outcome is ACCEPTED


def test_after_a_gap_a_new_id_starts_afresh(ids: ProducerIds) -> None:
    partition = Partition()
    stuck = hand_out(ids)
    assert send(partition, ids, batch(stuck, 4)).outcome is GAP
    assert send(partition, ids, batch(hand_out(ids), 0)).outcome is ACCEPTED
    assert send(partition, ids, batch(stuck, 5)).outcome is GAP


def test_one_producers_duplicates_and_gaps_touch_no_other(ids: ProducerIds) -> None:
    partition = Partition()
    one, other = hand_out(ids), hand_out(ids)
    send(partition, ids, batch(one, 0))
    send(partition, ids, batch(other, 0))
    for header in (batch(one, 0), batch(one, 9), batch(one, 0)):
        send(partition, ids, header)
    assert send(partition, ids, batch(other, 0)) == duplicate(1)
    assert send(partition, ids, batch(other, 1)).outcome is ACCEPTED
    assert send(partition, ids, batch(one, 1)).outcome is ACCEPTED


def test_a_producers_numbers_in_one_partition_say_nothing_about_another(ids: ProducerIds) -> None:
    one, other = Partition(), Partition()
    producer_id = hand_out(ids)
    send(one, ids, batch(producer_id, 0))
    assert send(other, ids, batch(producer_id, 1)).outcome is GAP
    assert send(other, ids, batch(producer_id, 0)).outcome is ACCEPTED


def test_the_second_batch_in_flight_is_not_taken_when_the_first_was_lost(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    assert send(partition, ids, batch(producer_id, 10)).outcome is GAP
    assert send(partition, ids, batch(producer_id, 0, 10)).outcome is ACCEPTED
    assert send(partition, ids, batch(producer_id, 10)).outcome is ACCEPTED


def test_an_id_that_this_broker_did_not_hand_out_may_start_anywhere(ids: ProducerIds) -> None:
    hand_out(ids)
    assert send(Partition(), ids, batch(STRANGER, 17)).outcome is ACCEPTED
    assert send(Partition(), ids, batch(10**15, 17)).outcome is ACCEPTED


def test_an_id_old_enough_to_have_been_forgotten_may_start_anywhere(ids: ProducerIds) -> None:
    producer_id = hand_out(ids, 0)
    header = batch(producer_id, 17)
    assert judge_claim(Partition(), header, ids, PRODUCER_EXPIRATION_MS - 1).outcome is GAP
    assert judge_claim(Partition(), header, ids, PRODUCER_EXPIRATION_MS).outcome is ACCEPTED
    assert judge_claim(Partition(), header, ids, 999, 1000).outcome is GAP
    assert judge_claim(Partition(), header, ids, 1000, 1000).outcome is ACCEPTED


def test_producers_are_forgotten_after_seven_days() -> None:
    assert PRODUCER_EXPIRATION_MS == 7 * 24 * 60 * 60 * 1000


def test_a_producer_that_idled_until_it_was_forgotten_goes_on_where_it_stopped(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, 10))
    later_ms = PRODUCER_EXPIRATION_MS + 1
    assert partition.producers.forget_silent(later_ms - PRODUCER_EXPIRATION_MS, 100) == 1
    assert send(partition, ids, batch(producer_id, 10), later_ms).outcome is ACCEPTED


def test_a_producer_that_is_still_on_record_is_judged_by_it_however_old_its_id(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, 10))
    assert send(partition, ids, batch(producer_id, 11), 9 * PRODUCER_EXPIRATION_MS).outcome is GAP


def test_an_id_from_before_a_namesake_was_deleted_may_start_anywhere_and_a_later_one_at_0(ids: ProducerIds) -> None:
    before = hand_out(ids)
    ids.apply(TopicDeleted(7, ids.block_count, 0))
    partition = Partition(lenient_blocks=ids.block_count)
    after = hand_out(ids)
    assert send(partition, ids, batch(after, 17)).outcome is GAP
    assert send(partition, ids, batch(before, 17)).outcome is ACCEPTED
    assert send(partition, ids, batch(before, 19)).outcome is GAP
    assert send(partition, ids, batch(after, 0)).outcome is ACCEPTED


@pytest.mark.parametrize("timestamp_type", [0, APPEND_TIME_BIT])
def test_a_duplicate_is_told_the_timestamp_that_the_original_was_told(ids: ProducerIds, timestamp_type: int) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    header = batch(producer_id, 0, attributes=timestamp_type, max_timestamp=4711)
    send(partition, ids, header)
    told = 4711 if timestamp_type else NO_TIMESTAMP
    assert judge_claim(partition, batch(producer_id, 0), ids, 99) == duplicate(0, told)


def test_a_duplicate_keeps_its_original_offset_though_the_log_start_has_passed_it(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0))
    partition.apply_log_start(1)
    assert send(partition, ids, batch(producer_id, 0)) == duplicate(0)


# Transactional batches


def test_a_transactional_zombie_hears_of_its_epoch_and_a_repetition_of_its_original(ids: ProducerIds) -> None:
    partition = Partition()
    producer_id = hand_out(ids)
    send(partition, ids, batch(producer_id, 0, epoch=2))
    zombie = judge_claim(partition, batch(producer_id, 0, epoch=1, attributes=TRANSACTIONAL_BIT), ids, 0)
    assert zombie.error == refusals.INVALID_PRODUCER_EPOCH
    again = judge_claim(partition, batch(producer_id, 0, epoch=2, attributes=TRANSACTIONAL_BIT), ids, 0)
    assert again == duplicate(0)


# The log start


def test_records_are_deleted_up_to_any_offset_that_can_be_read() -> None:
    partition = Partition()
    partition.next_offset = 10
    assert partition.decide_log_start(4, 8) == 4
    assert partition.decide_log_start(8, 8) == 8
    assert partition.decide_log_start(-1, 8) == 8
    assert partition.log_start == 0


@pytest.mark.parametrize("offset", [9, 10, -2, 2**62])
def test_deleting_beyond_what_can_be_read_is_refused(offset: int) -> None:
    partition = Partition()
    partition.apply_log_start(3)
    with refused(refusals.OFFSET_OUT_OF_RANGE, "not between 3 and 8"):
        partition.decide_log_start(offset, 8)


def test_the_log_start_never_moves_back() -> None:
    partition = Partition()
    partition.apply_log_start(5)
    assert partition.decide_log_start(2, 8) == 5
    partition.apply_log_start(2)
    assert partition.log_start == 5


# Against a list of everything


class Sent(NamedTuple):
    """A batch that was accepted. `first` and `last` are as on the wire."""

    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int
    at_ms: int


class AgainstAList(RuleBasedStateMachine):
    """The model is a list of every batch accepted since the topic was made, minus the forgotten producers' ones.

    It has no window and packs nothing: whatever it says about a batch it finds by going through the list.
    """

    EXPIRATION_MS = 4 * BLOCK_AGE_MAX_MS

    @initialize()
    def begin(self) -> None:
        self.now_ms = 1_000_000
        self.ids = ProducerIds()
        self.partition = Partition()
        self.accepted: list[Sent] = []
        self.resendable: list[tuple[int, int, int, int]] = []
        self.handed_out: dict[int, int] = {}
        self.from_before_the_deletion: set[int] = set()
        self.log_end = 0

    # The model

    def started_over(self, producer_id: int) -> set[bool]:
        """Whether an id without history must start at 0: one answer, or both where its age is not known so well."""
        if producer_id not in self.handed_out or producer_id in self.from_before_the_deletion:
            return {False}
        age_ms = self.now_ms - self.handed_out[producer_id]
        if age_ms >= self.EXPIRATION_MS:
            return {False}
        return {True} if age_ms <= self.EXPIRATION_MS - BLOCK_AGE_MAX_MS else {True, False}

    def verdicts(self, producer_id: int, epoch: int, first: int, last: int) -> list[tuple[Outcome, int]]:
        """What may become of a batch, with the offset of its original or the number expected."""
        known = [sent for sent in self.accepted if sent.producer_id == producer_id]
        if not known:
            starts = self.started_over(producer_id)
            return [(GAP, 0) if must_be_0 and first != 0 else (ACCEPTED, 0) for must_be_0 in starts]
        latest_epoch = max(sent.epoch for sent in known)
        if epoch < latest_epoch:
            return [(FENCED, 0)]
        if epoch > latest_epoch:
            return [(ACCEPTED, 0) if first == 0 else (GAP, 0)]
        of_epoch = [sent for sent in known if sent.epoch == epoch]
        for sent in of_epoch[:-6:-1]:
            if (sent.first, sent.last) == (first, last):
                return [(DUPLICATE, sent.offset)]
        expected = 0 if of_epoch[-1].last == LAST else of_epoch[-1].last + 1
        return [(ACCEPTED, 0) if first == expected else (GAP, expected)]

    def send(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        last = first + count - 1
        last = last if last <= LAST else last - LAST - 1
        header = batch(producer_id, first, count, epoch)
        decision = judge_claim(self.partition, header, self.ids, self.now_ms, self.EXPIRATION_MS)
        detail = 0
        if decision.outcome is DUPLICATE:
            detail = decision.base_offset
        elif decision.outcome is GAP:
            assert decision.message is not None
            detail = int(decision.message.split("expected ")[1].split(",")[0])
        assert (decision.outcome, detail) in self.verdicts(producer_id, epoch, first, last)
        if decision.outcome is ACCEPTED:
            self.partition.apply_append(header._replace(base_offset=self.log_end), self.now_ms)
            self.accepted.append(Sent(producer_id, epoch, first, last, self.log_end, self.now_ms))
            self.resendable.append((producer_id, epoch, first, count))
            self.log_end += count
        assert self.partition.next_offset == self.log_end

    def latest(self, data: st.DataObject) -> Sent:
        """The last batch that one of the producers sent."""
        latest = {sent.producer_id: sent for sent in self.accepted}
        return latest[data.draw(st.sampled_from(sorted(latest)), "producer")]

    # The senders

    @rule(first=st.sampled_from([0, 0, 0, 1]), count=st.integers(1, 3))
    def a_fresh_producer_sends(self, first: int, count: int) -> None:
        producer_id = hand_out(self.ids, self.now_ms)
        assert producer_id not in self.handed_out
        self.handed_out[producer_id] = self.now_ms
        self.send(producer_id, 0, first, count)

    @rule(first=st.sampled_from([0, 1, LAST - 3, LAST - 1, LAST]), count=st.integers(1, 6), epoch=st.integers(0, 2))
    def a_stranger_sends(self, first: int, count: int, epoch: int) -> None:
        self.send(STRANGER, epoch, first, count)

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data(), first=st.sampled_from([0, 1, LAST - 1]), epoch=st.integers(0, 1))
    def an_old_acquaintance_sends(self, data: st.DataObject, first: int, epoch: int) -> None:
        self.send(data.draw(st.sampled_from(sorted(self.handed_out))), epoch, first, 3)

    @precondition(lambda self: self.accepted)
    @rule(
        data=st.data(), counts=st.lists(st.one_of(st.integers(1, 4), st.integers(2**29, LAST)), min_size=1, max_size=7)
    )
    def the_next_batches(self, data: st.DataObject, counts: list[int]) -> None:
        latest = self.latest(data)
        first = latest.last
        for count in counts:
            first = (first + 1) % 2**31
            self.send(latest.producer_id, latest.epoch, first, count)
            first = (first + count - 1) % 2**31

    @precondition(lambda self: self.resendable)
    @rule(data=st.data(), back=st.integers(1, 8))
    def a_batch_of_before_again(self, data: st.DataObject, back: int) -> None:
        self.send(*self.resendable[-min(back, len(self.resendable))])
        self.send(*data.draw(st.sampled_from(self.resendable), "batch"))

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def the_numbers_of_an_earlier_epoch_in_this_one(self, data: st.DataObject) -> None:
        latest = self.latest(data)
        for producer_id, _, first, count in self.resendable[-8:]:
            if producer_id == latest.producer_id:
                self.send(producer_id, latest.epoch, first, count)

    @precondition(lambda self: self.resendable)
    @rule(
        data=st.data(), earlier=st.integers(-2, 2), longer=st.integers(-2, 2), epochs=st.sampled_from([0, 0, 0, -1, 1])
    )
    def a_batch_that_overlaps_one_of_before(self, data: st.DataObject, earlier: int, longer: int, epochs: int) -> None:
        producer_id, epoch, first, count = data.draw(st.sampled_from(self.resendable), "batch")
        count = min(max(1, count + longer), LAST)
        self.send(producer_id, max(0, epoch + epochs), (first - earlier) % 2**31, count)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), skipped=st.one_of(st.integers(1, 5), st.integers(1, LAST)))
    def a_batch_too_far_on(self, data: st.DataObject, skipped: int) -> None:
        latest = self.latest(data)
        self.send(latest.producer_id, latest.epoch, (latest.last + 1 + skipped) % 2**31, 1)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), first=st.sampled_from([0, 0, 1, LAST]), epochs=st.integers(1, 300))
    def a_producer_starts_over_with_a_later_epoch(self, data: st.DataObject, first: int, epochs: int) -> None:
        latest = self.latest(data)
        self.send(latest.producer_id, latest.epoch + epochs, first, 2)

    @precondition(lambda self: any(sent.epoch for sent in self.accepted))
    @rule(data=st.data())
    def a_zombie_sends(self, data: st.DataObject) -> None:
        latest = data.draw(st.sampled_from([sent for sent in self.accepted if sent.epoch]))
        epoch = data.draw(st.integers(0, latest.epoch - 1), "epoch")
        first = data.draw(st.sampled_from([0, latest.first, (latest.last + 1) % 2**31]), "first")
        self.send(latest.producer_id, epoch, first, 1)

    @rule(count=st.integers(1, 3))
    def somebody_without_an_id_sends(self, count: int) -> None:
        header = batch(NO_PRODUCER, -1, count, -1)
        assert send(self.partition, self.ids, header, self.now_ms).outcome is ACCEPTED
        self.log_end += count

    # The world

    @rule(passed_ms=st.sampled_from([1, BLOCK_AGE_MAX_MS // 2, BLOCK_AGE_MAX_MS, 3 * BLOCK_AGE_MAX_MS, EXPIRATION_MS]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def the_silent_are_forgotten(self) -> None:
        before_ms = self.now_ms - self.EXPIRATION_MS
        heard = {sent.producer_id for sent in self.accepted if sent.at_ms >= before_ms}
        silent = {sent.producer_id for sent in self.accepted} - heard
        assert self.partition.producers.forget_silent(before_ms, 100) == len(silent)
        self.ids.forget_old(self.now_ms, self.EXPIRATION_MS)
        self.accepted = [sent for sent in self.accepted if sent.producer_id in heard]

    @rule()
    def the_topic_is_deleted_and_made_again(self) -> None:
        self.from_before_the_deletion = set(self.handed_out)
        self.ids.apply(TopicDeleted(7, self.ids.block_count, self.now_ms))
        self.partition = Partition(lenient_blocks=self.ids.block_count)
        self.accepted = []
        self.log_end = 0

    @rule()
    def the_log_is_restarted(self) -> None:
        again = Partition(self.partition.lenient_blocks)
        again.next_offset = self.partition.next_offset
        again.producers.restore(self.partition.producers.snapshot())
        self.partition = again
        kept, self.ids = self.ids.snapshot(), ProducerIds()
        self.ids.restore(kept)


AgainstAList.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
test_whatever_is_sent_a_list_of_everything_says_the_same = AgainstAList.TestCase
