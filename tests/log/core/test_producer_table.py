"""All producers of a partition, at rest or not: whatever is heard, put to rest and forgotten, each is on record once,
with the state that `wire.sequences` defines for it.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from semel.log.core.producer_table import Producers, Snapshot, TableBounds, heard_of, pack, page_of, unpack
from semel.log.storage.producer_pages import buffers_of, pages_from
from semel.wire.sequences import SEQUENCE_MASK, advance, last_heard_ms, note, note_marker

SMALL = TableBounds(page=4, recent_min=2, recent_max=5, moved_at_once=3)
# Each count and distance as far as a message can claim it, and a time that a clock might show.
COUNTS = st.one_of(st.integers(1, 300), st.integers(1, SEQUENCE_MASK))
DISTANCES = st.one_of(st.integers(0, 300), st.integers(0, 1 << 40))
TIMES_MS = st.one_of(st.just(-1), st.integers(0, 1 << 44))


@st.composite
def states(draw: st.DrawFn) -> bytes:
    """A state after some batches that the rules have accepted, and perhaps a marker."""
    sequence, offset, epoch = draw(st.integers(0, SEQUENCE_MASK)), draw(st.integers(0, 1 << 50)), draw(EPOCHS)
    state = note_marker(None, draw(st.integers(0, 1 << 44)), epoch) if draw(st.booleans()) else None
    for count, distance, answered_ms in draw(st.lists(st.tuples(COUNTS, DISTANCES, TIMES_MS), max_size=7)):
        offset += distance
        sequence = advance(sequence, count)
        state = note(state, draw(st.integers(0, 1 << 44)), epoch, sequence, count, offset, answered_ms)
        offset += count
    return note_marker(state, 7, epoch) if state is None or draw(st.booleans()) else state


EPOCHS = st.integers(0, 32_767)


# One state


@given(state=states())
def test_a_packed_state_is_the_same_state_again(state: bytes) -> None:
    packed = pack(state)
    assert unpack(packed) == state
    assert heard_of(packed) == last_heard_ms(state)
    # Its size is one byte in a page.
    assert len(packed) < 256


@pytest.mark.parametrize(
    "batches",
    [
        [(9, 10, 0, -1), (30, 10, 10, -1)],
        [(9, 10, 100, -1), (19, 10, 50, -1)],
        [(9, 10, 0, 5_000)],
        [(9, 10, 0, -1), (19, 10, 10, 70)],
        [(9, 10, 0, 1)],
    ],
)
def test_a_state_that_fits_into_no_form_is_kept_as_it_is(batches: list[tuple[int, int, int, int]]) -> None:
    """Numbers with a gap, offsets that go back, a timestamp later than the clock, some timestamps and some not, and one
    that is longer ago than four bytes can say. The rules let none of the first two happen.
    """
    state = None
    for sequence, count, offset, answered_ms in batches:
        heard_ms = 1 << 40 if answered_ms == 1 else 100
        state = note(state, heard_ms, 0, sequence, count, offset, answered_ms)
    assert state is not None
    assert unpack(pack(state)) == state


def test_a_full_window_takes_less_than_50_bytes_where_messages_are_many_and_small() -> None:
    state = None
    for number in range(9):
        state = note(state, 1_750_000_000_000, 0, number, 1, 10_000_000_000 + 60_000 * number, -1)
    assert state is not None
    assert len(state) == 130
    assert len(pack(state)) <= 40


# One page


@given(ids=st.sets(st.integers(0, 1 << 62), min_size=1, max_size=6), other=st.integers(0, 1 << 62))
def test_a_page_gains_and_loses_one_producer_and_no_other(ids: set[int], other: int) -> None:
    packed = {one: pack(note(None, 10 + one % 7, 0, 0, 1 + one % 5, 0, -1)) for one in {*ids, other}}
    page = page_of((one, packed[one]) for one in sorted(ids))
    if other not in ids:
        page = page.with_one(page.slot_of(other), other, packed[other])
    assert dict(page.items()) == packed
    slot = page.slot_of(other)
    assert page.has_at(slot, other)
    assert page.packed_at(slot) == packed[other]
    assert not page.has_at(slot, other + 1)
    del packed[other]
    assert dict(page.without(slot).items()) == packed


def test_pages_are_the_same_after_a_checkpoint() -> None:
    pages = [
        page_of((one, pack(note(None, one, 0, 0, 1, 0, -1))) for one in range(begin, begin + 5)) for begin in (0, 9)
    ]
    again = list(pages_from(memoryview(b"".join(buffer for page in pages for buffer in buffers_of(page)))))
    assert [list(page.items()) for page in again] == [list(page.items()) for page in pages]
    assert [page.oldest_ms for page in again] == [0, 9]


# The table


class TableMachine(RuleBasedStateMachine):
    """The table with very small pages beside a dict of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Producers(SMALL)
        self.model: dict[int, bytes] = {}
        self.offset = 0
        self.before: tuple[Snapshot, dict[int, bytes]] | None = None

    @rule(producer_id=st.integers(0, 40), now_ms=st.integers(0, 100), count=st.integers(1, 300))
    def heard(self, producer_id: int, now_ms: int, count: int) -> None:
        sequence = advance(-1, count)
        state = self.model.get(producer_id)
        if state is not None and len(state) > 10:
            sequence = advance(int.from_bytes(state[-24:-20], "little"), count)
        self.table.note(producer_id, now_ms, 0, sequence, count, self.offset, -1)
        self.model[producer_id] = note(state, now_ms, 0, sequence, count, self.offset, -1)
        self.offset += count

    @rule(first=st.integers(0, 40), how_many=st.integers(1, 15), now_ms=st.integers(0, 100))
    def many_are_heard(self, first: int, how_many: int, now_ms: int) -> None:
        for producer_id in range(first, first + how_many):
            self.heard(producer_id, now_ms, 1)

    @rule(producer_id=st.integers(0, 40), now_ms=st.integers(0, 100))
    def marked(self, producer_id: int, now_ms: int) -> None:
        self.table.note_marker(producer_id, now_ms, 0)
        self.model[producer_id] = note_marker(self.model.get(producer_id), now_ms, 0)

    @rule(before_ms=st.integers(0, 110), at_most=st.integers(1, 9), kept=st.sets(st.integers(0, 40), max_size=4))
    def forget(self, before_ms: int, at_most: int, kept: set[int]) -> None:
        silent = {one for one, state in self.model.items() if last_heard_ms(state) < before_ms and one not in kept}
        count = at_most
        while count == at_most:
            before = len(self.table)
            count = self.table.forget_silent(before_ms, at_most, kept)
            assert count == before - len(self.table)
        left = {one for one, _ in self.table.items()}
        # Behind somebody who was heard when the clock was ahead, the table may find some of them only later.
        recent = self.table.snapshot().recent
        assert {one for one in silent & left if one not in recent} == set()
        assert left >= self.model.keys() - silent
        if not self.model or max(map(last_heard_ms, self.model.values())) <= before_ms:
            assert not silent & left
        self.model = {one: state for one, state in self.model.items() if one in left}

    @rule()
    def take_a_snapshot(self) -> None:
        self.before = self.table.snapshot(), dict(self.model)

    @rule(bounds=st.sampled_from([SMALL, TableBounds(3, 1, 1, 1), TableBounds()]))
    def start_again(self, bounds: TableBounds) -> None:
        again = Producers(bounds)
        again.restore(self.table.snapshot())
        self.table = again

    @invariant()
    def everything_is_on_record_once(self) -> None:
        assert len(self.table) == len(self.model)
        assert sorted(self.table.items()) == sorted(self.model.items())
        assert sorted(self.table.latest()) == sorted(self.model.items())
        assert all(self.table.get(one) == state for one, state in self.model.items())
        assert self.table.get(99) is None

    @invariant()
    def the_pages_are_in_order(self) -> None:
        recent, pages = self.table.snapshot()
        assert self.table._first_ids == [page.first_id for page in pages]
        assert all(0 < len(page) <= 128 for page in pages)
        ids = [one for page in pages for one, _ in page.items()]
        assert all(before < after for before, after in pairwise(ids))
        assert all(page.oldest_ms <= heard_of(packed) for page in pages for _, packed in page.items())
        assert len(recent) <= self.table._recent_max

    @invariant()
    def a_snapshot_stays(self) -> None:
        if self.before is not None:
            snapshot, model = self.before
            everything = dict(snapshot.recent)
            everything |= {one: unpack(packed) for page in snapshot.pages for one, packed in page.items()}
            assert everything == model


TestTable = TableMachine.TestCase


def filled(count: int, bounds: TableBounds = SMALL) -> Producers:
    producers = Producers(bounds)
    for number in range(count):
        producers.note(number, number, 0, 0, 1, number, -1)
    return producers


def test_pages_of_producers_that_came_one_after_the_other_are_full() -> None:
    pages = filled(100).snapshot().pages
    assert {len(page) for page in pages[:-1]} == {SMALL.page}


def test_producers_that_come_with_falling_ids_share_pages() -> None:
    """Behind a page that is full, each would otherwise have a page of its own."""
    producers = filled(100)
    full = producers.snapshot().pages[-2]
    highest = full.id_at(len(full) - 1)
    producers.forget_silent(1000, 1000, kept=range(highest + 1))
    before = len(producers.pages)
    assert producers.pages[-1] is full
    for producer_id in range(200, highest, -1):
        producers.note(producer_id, 1000, 0, 0, 1, 1000, -1)
    at_rest = sum(map(len, producers.pages[before:]))
    assert at_rest > 50
    assert {len(page) for page in producers.pages[before:]} >= {SMALL.page}
    assert len(producers.pages) - before <= at_rest // SMALL.page + 1


def test_pages_that_nearly_all_have_left_are_joined() -> None:
    bounds = TableBounds(page=16, recent_min=4, recent_max=8, moved_at_once=4)
    producers = filled(200, bounds)
    before = len(producers.snapshot().pages)
    assert producers.forget_silent(1000, 1000, kept=range(0, 200, 16)) == 187
    assert len(producers.snapshot().pages) < before / 2
    assert [one for one, _ in sorted(producers.items())] == list(range(0, 200, 16))


def test_the_most_recently_heard_come_first() -> None:
    producers = filled(100)
    ids = [one for one, _ in producers.latest()]
    assert ids == list(range(99, -1, -1))


def test_a_search_that_forgets_nobody_leaves_the_pages() -> None:
    """A checkpoint writes pages that are new."""
    producers = filled(100)
    before = producers.pages.copy()
    assert producers.forget_silent(1000, 1000, kept=range(100)) == 0
    assert all(page is old for page, old in zip(producers.pages, before, strict=True))


def test_a_search_that_has_found_enough_goes_on_where_it_stopped() -> None:
    """Otherwise each call would look at all pages again."""

    class Kept:
        looked = 0

        def __contains__(self, producer_id: object) -> bool:
            self.looked += 1
            return isinstance(producer_id, int) and producer_id % 2 == 0

    producers, kept = filled(400), Kept()
    while producers.forget_silent(1000, 2, kept) == 2:
        pass
    assert len(producers) == 200
    assert kept.looked < 4 * 400
