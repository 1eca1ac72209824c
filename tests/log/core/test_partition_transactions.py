"""Transactions in one partition: its promises one by one, then a machine that holds it against a list of everything."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from semel.log.core.aborted import AbortedTransactions
from semel.log.core.batch_checks import Verdict, judge_claim
from semel.log.core.partition import PRODUCER_EXPIRATION_MS, Partition
from semel.log.core.producer_ids import ProducerIds
from semel.wire import refusals
from semel.wire.batch import NO_PRODUCER, TRANSACTIONAL_BIT, BatchHeader, control_batch, read_header
from semel.wire.refusals import Refused
from semel.wire.sequences import Outcome, epoch_of, window_of

ACCEPTED, DUPLICATE, GAP, FENCED = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.GAP, Outcome.FENCED
ONE, TWO, THREE = 1, 2, 3


def batch(producer_id: int, first: int, count: int = 1, epoch: int = 0, *, transactional: bool = True) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchHeader(0, 0, 0, 2, 0, attributes, count - 1, 500, 600, producer_id, epoch, first, count)


def send(partition: Partition, header: BatchHeader, now_ms: int = 0, *, joins: bool = False) -> Verdict:
    """Decide, and apply if accepted, as the log does for a producer that has a transaction open."""
    decision = judge_claim(partition, header, ProducerIds(), now_ms, joins=joins)
    if decision.outcome is ACCEPTED:
        partition.apply_append(header._replace(base_offset=partition.next_offset), now_ms)
    return decision


def end(partition: Partition, producer_id: int, *, committed: bool, epoch: int = 0, now_ms: int = 0) -> None:
    marker = control_batch(producer_id, epoch, partition.next_offset, now_ms, committed)
    partition.apply_marker(read_header(marker), now_ms, committed)


def aborted_in(partition: Partition, begin: int, end: int) -> list[tuple[int, int]]:
    """What is listed for a stretch, where nothing was put away."""
    return partition.aborted.between(begin, end, lambda numbers: pytest.fail(f"there are no blocks {numbers}"))


def test_a_transaction_whose_marker_compaction_has_removed_is_not_named_again_when_the_log_start_moves() -> None:
    """Or a reader would leave out everything that its producer has written since."""
    aborted = AbortedTransactions()
    aborted.note(ONE, 0, 10, 11)
    aborted.note(TWO, 11, 20, 21)
    block = aborted.oldest(2)
    aborted.put_away(2)
    aborted.forget_below(15)
    aborted.forget_below(5)
    assert aborted.between(5, 30, lambda numbers: [block]) == [(TWO, 11)]


def test_what_is_stable_ends_where_the_oldest_open_transaction_begins() -> None:
    partition = Partition()
    send(partition, batch(NO_PRODUCER, -1, 2, transactional=False))
    assert partition.stable_offset == 2
    send(partition, batch(ONE, 0, 3))
    send(partition, batch(TWO, 0))
    send(partition, batch(ONE, 3))
    assert partition.stable_offset == 2
    end(partition, ONE, committed=True)
    assert partition.stable_offset == 5
    end(partition, TWO, committed=False)
    assert partition.stable_offset == partition.next_offset == 9


def test_a_marker_takes_one_offset_and_claims_no_number() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0, 2))
    end(partition, ONE, committed=True)
    assert partition.next_offset == 3
    assert send(partition, batch(ONE, 2)).outcome is ACCEPTED
    assert send(partition, batch(ONE, 0, 2)).outcome is DUPLICATE


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction_without_a_record_here_leaves_nothing_but_its_marker(committed: bool) -> None:
    partition = Partition()
    end(partition, ONE, committed=committed)
    assert (partition.next_offset, partition.stable_offset) == (1, 1)
    assert aborted_in(partition, 0, 1) == []


def test_the_list_of_the_aborted_has_those_that_began_before_in_the_order_in_which_they_were_aborted() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0))
    send(partition, batch(TWO, 0))
    send(partition, batch(THREE, 0))
    end(partition, THREE, committed=True)
    end(partition, TWO, committed=False)
    end(partition, ONE, committed=False)
    assert aborted_in(partition, 0, 6) == [(TWO, 1), (ONE, 0)]
    assert aborted_in(partition, 2, 6) == [(TWO, 1), (ONE, 0)]
    assert aborted_in(partition, 5, 6) == [(ONE, 0)]
    assert aborted_in(partition, 0, 1) == [(ONE, 0)]
    assert aborted_in(partition, 6, 6) == []


def test_a_batch_outside_of_its_producers_open_transaction_is_refused_once_its_number_is_right() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0))
    assert send(partition, batch(ONE, 5, transactional=False)).outcome is GAP
    assert send(partition, batch(ONE, 0, transactional=False)).outcome is DUPLICATE
    with pytest.raises(Refused, check=lambda refusal: refusal.error == refusals.INVALID_TXN_STATE):
        send(partition, batch(ONE, 1, transactional=False))
    assert send(partition, batch(TWO, 0, transactional=False)).outcome is ACCEPTED
    end(partition, ONE, committed=True)
    assert send(partition, batch(ONE, 1, transactional=False)).outcome is ACCEPTED


def test_after_a_marker_of_a_later_epoch_numbers_begin_at_0_and_the_earlier_epoch_is_fenced() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0))
    end(partition, ONE, committed=True, epoch=1)
    state = partition.producers.get(ONE)
    assert state is not None
    assert (epoch_of(state), window_of(state)) == (1, [])
    assert send(partition, batch(ONE, 1)).outcome is FENCED
    assert send(partition, batch(ONE, 0)).outcome is FENCED
    assert send(partition, batch(ONE, 1, epoch=1)).message == "sequence gap (expected 0, got 1)"
    assert send(partition, batch(ONE, 0, epoch=1)).outcome is ACCEPTED
    assert send(partition, batch(ONE, 1, epoch=1)).outcome is ACCEPTED


def test_a_marker_fences_even_where_its_producer_never_wrote() -> None:
    partition = Partition()
    end(partition, ONE, committed=False, epoch=4)
    assert send(partition, batch(ONE, 0, epoch=3)).outcome is FENCED
    assert send(partition, batch(ONE, 7, epoch=4), joins=True).outcome is GAP
    assert send(partition, batch(ONE, 0, epoch=4)).outcome is ACCEPTED


def test_a_marker_does_not_make_a_forgotten_producer_a_new_one() -> None:
    """In version 1 its numbers go on from one transaction to the next, and not every one writes everywhere."""
    partition = Partition()
    send(partition, batch(ONE, 0, 5))
    end(partition, ONE, committed=True)
    later_ms = PRODUCER_EXPIRATION_MS + 1
    assert partition.forget_silent(later_ms, 100) == 1
    end(partition, ONE, committed=True, now_ms=later_ms)
    assert send(partition, batch(ONE, 5)).outcome is ACCEPTED
    assert send(partition, batch(ONE, 7)).outcome is GAP


def test_a_producer_that_cannot_have_been_forgotten_begins_at_0_behind_a_marker() -> None:
    ids = ProducerIds()
    reservation = ids.decide_reserve(0)
    assert reservation is not None
    ids.apply(reservation)
    partition = Partition()
    end(partition, reservation.first, committed=True)
    assert judge_claim(partition, batch(reservation.first, 1), ids, 5).outcome is GAP
    assert judge_claim(partition, batch(reservation.first, 0), ids, 5).outcome is ACCEPTED


def test_a_batch_that_may_begin_a_transaction_by_itself_begins_at_0_whatever_was_forgotten() -> None:
    partition = Partition()
    assert send(partition, batch(ONE, 3), joins=True).outcome is GAP
    assert send(partition, batch(ONE, 3, transactional=False), joins=True).outcome is ACCEPTED
    assert send(partition, batch(TWO, 0), joins=True).outcome is ACCEPTED
    assert send(partition, batch(THREE, 3)).outcome is ACCEPTED


def test_a_producer_is_not_forgotten_while_its_transaction_is_open() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0))
    send(partition, batch(TWO, 0, transactional=False))
    later_ms = PRODUCER_EXPIRATION_MS + 1
    assert partition.forget_silent(later_ms, 100) == 1
    assert partition.producers.get(ONE) is not None
    end(partition, ONE, committed=True, now_ms=later_ms)
    assert partition.forget_silent(later_ms, 100) == 0
    assert partition.forget_silent(later_ms + 1, 100) == 1


def test_what_is_stable_never_ends_below_the_log_start() -> None:
    partition = Partition()
    send(partition, batch(ONE, 0, 4))
    send(partition, batch(TWO, 0))
    partition.apply_log_start(3)
    assert partition.stable_offset == 3
    end(partition, ONE, committed=False)
    assert aborted_in(partition, 3, 6) == [(ONE, 0)]
    partition.apply_log_start(5)
    assert aborted_in(partition, 5, 6) == [(ONE, 0)]
    partition.apply_log_start(6)
    assert aborted_in(partition, 0, 6) == []


@pytest.mark.parametrize("in_block", [7, 128, 10_000])
def test_of_very_many_aborted_transactions_all_are_listed_that_reach_into_a_stretch(in_block: int) -> None:
    long_open, held_open = 1, 2
    partition = Partition()
    aborted: list[tuple[int, int, int]] = []
    blocks: dict[int, bytes] = {}
    looked_into: list[int] = []

    def read(numbers: Sequence[int]) -> list[bytes]:
        looked_into.extend(numbers)
        return [blocks[number] for number in numbers]

    began: dict[int, int] = {}
    send(partition, batch(long_open, 0))
    for number in range(1_000):
        if number % 300 == 0:
            began[held_open] = partition.next_offset
            send(partition, batch(held_open, number // 300))
        producer_id = 10 + number
        began[producer_id] = partition.next_offset
        send(partition, batch(producer_id, 0))
        for ended in (producer_id, held_open) if number % 300 == 299 else (producer_id,):
            aborted.append((ended, began[ended], partition.next_offset))
            end(partition, ended, committed=False)
        if partition.aborted.young_count >= in_block:
            blocks[partition.aborted.next_block] = partition.aborted.oldest(in_block)
            partition.aborted.put_away(in_block)
        if number == 500:
            end(partition, long_open, committed=True)
    for begin in range(0, partition.next_offset, 41):
        for behind in range(begin + 1, partition.next_offset, 97):
            expected = [(pid, first) for pid, first, marker in aborted if marker >= begin and first < behind]
            assert partition.aborted.between(begin, behind, read) == expected
    # Where no transaction is open for long, a search looks into one block, or two at a border.
    looked_into.clear()
    for begin in range(1_600, 1_700):
        partition.aborted.between(begin, begin + 1, read)
    assert len(looked_into) <= 2 * 100


def test_what_ended_below_where_compaction_came_to_is_not_listed_though_its_block_is_still_there() -> None:
    """Its marker is gone: a reader that is told of it leaves out everything that the producer wrote later."""
    partition = Partition()
    for producer_id in (ONE, TWO):
        send(partition, batch(producer_id, 0))
        end(partition, producer_id, committed=False)
    block = partition.aborted.oldest(2)
    partition.aborted.put_away(2)
    partition.aborted.forget_below(2)
    again = AbortedTransactions.from_bytes(*partition.aborted.to_bytes())
    for aborted in (partition.aborted, again):
        assert aborted.between(0, 4, lambda numbers: [block]) == [(TWO, 2)]


# Against a list of everything


class Item(NamedTuple):
    """A batch or a marker. `commits` is None for a batch."""

    offset: int
    count: int
    producer_id: int
    transactional: bool
    commits: bool | None


PRODUCERS = st.sampled_from([11, 12, 13, 14])


class TransactionsAgainstAList(RuleBasedStateMachine):
    """The model is the list of every batch and marker; whatever it knows it finds by going through all of it."""

    @initialize()
    def begin(self) -> None:
        self.partition = Partition()
        self.items: list[Item] = []
        self.sequences: dict[int, tuple[int, int]] = {}
        self.log_start = 0
        self.blocks: dict[int, bytes] = {}

    # The model

    @property
    def log_end(self) -> int:
        return self.items[-1].offset + self.items[-1].count if self.items else 0

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """Producer, first offset, marker (None: still open) and whether it was committed, of every transaction."""
        found: list[tuple[int, int, int | None, bool]] = []
        for producer_id in {item.producer_id for item in self.items if item.transactional}:
            first: int | None = None
            for item in self.items:
                if item.producer_id != producer_id or not item.transactional:
                    continue
                if item.commits is None:
                    first = item.offset if first is None else first
                elif first is not None:
                    found.append((producer_id, first, item.offset, item.commits))
                    first = None
            if first is not None:
                found.append((producer_id, first, None, False))
        return found

    def stable_offset(self) -> int:
        return max(
            min([first for _, first, marker, _ in self.transactions() if marker is None], default=self.log_end),
            self.log_start,
        )

    def aborted(self, begin: int, end: int) -> list[tuple[int, int]]:
        ended = [
            (marker, producer_id, first)
            for producer_id, first, marker, committed in self.transactions()
            if marker is not None and not committed and marker >= begin and first < end
        ]
        return [(producer_id, first) for _, producer_id, first in sorted(ended)]

    def is_visible(self, item: Item) -> bool:
        if item.commits is not None:
            return False
        return not item.transactional or any(
            producer_id == item.producer_id and marker is not None and committed and first <= item.offset < marker
            for producer_id, first, marker, committed in self.transactions()
        )

    # The senders

    @rule(producer_id=PRODUCERS, counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), plain=st.booleans())
    def send(self, producer_id: int, counts: list[int], plain: bool) -> None:
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        for count in counts:
            header = batch(producer_id, sequence, count, epoch, transactional=not plain)
            is_open = any(known == producer_id and marker is None for known, _, marker, _ in self.transactions())
            if plain and is_open:
                with pytest.raises(Refused):
                    send(self.partition, header)
                return
            assert send(self.partition, header).outcome is ACCEPTED
            self.items.append(Item(self.log_end, count, producer_id, not plain, None))
            sequence += count
            self.sequences[producer_id] = epoch, sequence

    @rule(producer_id=PRODUCERS, committed=st.booleans(), raises=st.booleans())
    def end(self, producer_id: int, committed: bool, raises: bool) -> None:
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        if raises:
            epoch, sequence = epoch + 1, 0
        end(self.partition, producer_id, committed=committed, epoch=epoch)
        self.sequences[producer_id] = epoch, sequence
        self.items.append(Item(self.log_end, 1, producer_id, True, committed))

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        self.log_start = max(self.log_start, int(self.log_end * share))
        self.partition.apply_log_start(self.log_start)

    @rule()
    def start_again(self) -> None:
        before, again = self.partition, Partition()
        again.log_start, again.next_offset = before.log_start, before.next_offset
        again.producers.restore(before.producers.snapshot())
        again.open_transactions = dict(before.open_transactions)
        again.aborted = AbortedTransactions.from_bytes(*before.aborted.to_bytes())
        self.partition = again

    @rule(count=st.integers(1, 3))
    def put_away(self, count: int) -> None:
        """Some of what was aborted goes into a block, wherever blocks are kept."""
        aborted = self.partition.aborted
        if aborted.young_count >= count:
            self.blocks[aborted.next_block] = aborted.oldest(count)
            aborted.put_away(count)

    @rule(share=st.floats(0, 1))
    def compact(self, share: float) -> None:
        """What was aborted and ended below an offset goes, markers included: nothing of it may be listed any more, or a
        reader would leave out what the same producer wrote later."""
        # The last offset of all stays.
        below = int(min(self.stable_offset(), max(self.log_end - 1, 0)) * share)
        gone = {
            (producer_id, item.offset)
            for producer_id, first, marker, committed in self.transactions()
            if marker is not None and not committed and marker < below
            for item in self.items
            if item.producer_id == producer_id and item.transactional and first <= item.offset <= marker
        }
        self.items = [item for item in self.items if (item.producer_id, item.offset) not in gone]
        self.partition.aborted.forget_below(below)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        assert set(numbers) <= self.kept_blocks()
        return [self.blocks[number] for number in numbers]

    def kept_blocks(self) -> set[int]:
        return set(range(self.partition.aborted.first_block, self.partition.aborted.next_block))

    # The readers

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def read_committed(self, data: Any) -> None:
        stable = self.stable_offset()
        assert self.partition.stable_offset == stable
        assert self.partition.next_offset == self.log_end
        if self.log_start >= stable:
            return
        begin = data.draw(st.integers(self.log_start, stable - 1), "begin")
        given = [item for item in self.items if begin < item.offset + item.count and item.offset < stable]
        given = given[: data.draw(st.integers(1, len(given)), "batches")]
        behind = given[-1].offset + given[-1].count
        listed = self.partition.aborted.between(begin, behind, self.read)
        assert listed == self.aborted(begin, behind)
        assert self.seen(given, listed) == [item for item in given if self.is_visible(item)]

    @staticmethod
    def seen(given: list[Item], aborted: list[tuple[int, int]]) -> list[Item]:
        """What a consumer shows of the batches that it was given, by the rule that all clients follow."""
        to_come = sorted(aborted, key=lambda found: found[1])
        dropped: set[int] = set()
        shown = []
        for item in given:
            while to_come and to_come[0][1] < item.offset + item.count:
                dropped.add(to_come.pop(0)[0])
            if item.commits is not None:
                dropped.discard(item.producer_id)
            elif not (item.transactional and item.producer_id in dropped):
                shown.append(item)
        return shown


TransactionsAgainstAList.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_whatever_is_begun_and_ended_a_list_of_everything_says_the_same = TransactionsAgainstAList.TestCase
