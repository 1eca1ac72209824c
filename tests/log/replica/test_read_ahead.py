"""A standby that is behind reads several slots at once, as their writer has several under way; one that is not asks the
store for nothing that it would not need.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest
from written_slots import written

from semel.log.core.slots import DEPTH, BrokenHistory, History
from semel.log.replica.floor import FIRST_FLOOR, FLOOR_KEY
from semel.log.replica.journal import SlotJournal
from semel.log.replica.reader import IN_A_ROW, SLOTS_PER_LOOK, SlotReader
from semel.log.replica.slot import encode_entry, key_of
from semel.log.store import Found
from semel.testing.stores import MemoryStore
from semel.wire.steps import Steps

TURNS = 5


class CountingStore(MemoryStore):
    """Each answer takes some turns of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()
        # How many turns the answer to some keys takes.
        self.patience: dict[str, int] = {}
        self.under_way = self.under_way_max = 0

    async def get(self, key: str) -> Found:
        self.asked[key] += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            for _ in range(self.patience.get(key, TURNS)):
                await asyncio.sleep(0)
            return await super().get(key)
        finally:
            self.under_way -= 1


class Seen:
    """In place of the log: the payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def replay(self, kind: int, payload: memoryview) -> None:
        self.payloads.append(bytes(payload))

    def enter_epoch(self, epoch: int) -> None:
        pass

    def clear(self) -> Steps[None]:
        yield from ()


def slots(count: int) -> Iterator[tuple[int, bytes]]:
    """A fence, and then so many slots with one entry each, whose payload is the slot's number."""
    history = History()
    yield 0, written(history, [], fence=b"0" * 16)
    for _ in range(count):
        slot = history.next_slot
        yield slot, written(history, [encode_entry(1, [b"%d" % slot])])


async def reader_of(store: CountingStore, seen: Seen) -> SlotReader:
    await store.create(FLOOR_KEY, FIRST_FLOOR.encode())
    return SlotReader(store, SlotJournal(1024), seen, History())


async def test_a_reader_that_is_behind_reads_as_many_slots_at_once_as_a_writer_has_under_way() -> None:
    store, seen = CountingStore(), Seen()
    reader = await reader_of(store, seen)
    written = dict(slots(30))
    for slot, content in written.items():
        await store.create(key_of(slot), content)
    while await reader.read_on(SLOTS_PER_LOOK):
        pass
    assert seen.payloads == [b"%d" % slot for slot in written if slot]
    assert store.under_way_max == DEPTH
    assert {store.asked[key_of(slot)] for slot in written} == {1}


@pytest.mark.parametrize("per_look", [1, 2, IN_A_ROW - 1])
async def test_a_reader_that_is_not_behind_asks_for_each_slot_once_and_for_the_next_one(per_look: int) -> None:
    """Stores charge for each call, and a standby asks all day."""
    store, seen = CountingStore(), Seen()
    reader = await reader_of(store, seen)
    written = list(slots(4 * per_look - 1))
    while written:
        new, written = written[:per_look], written[per_look:]
        for slot, content in new:
            await store.create(key_of(slot), content)
        before = store.asked.copy()
        assert not await reader.read_on(SLOTS_PER_LOOK)
        asked = store.asked - before
        assert asked == {key_of(slot): 1 for slot in (*dict(new), reader.history.next_slot)} | {FLOOR_KEY: 1}
        assert store.under_way_max == 1


@pytest.mark.parametrize("end", ["the floor", "cancelled", "damaged"])
def test_nothing_is_under_way_when_a_reader_does_not_read_on(end: str) -> None:
    """Its store may be closed then."""

    class Log(Seen):
        def replay(self, kind: int, payload: memoryview) -> None:
            super().replay(kind, payload)
            if end == "cancelled" and len(self.payloads) == 2 * IN_A_ROW:
                reading.cancel()

    async def run() -> None:
        nonlocal reading
        store = CountingStore()
        reader = await reader_of(store, Log())
        for number, (slot, content) in enumerate(slots(40)):
            is_damaged = end == "damaged" and number == 2 * IN_A_ROW
            await store.create(key_of(slot), b"damaged" if is_damaged else content)
        reading = asyncio.ensure_future(reader.read_on(2 * IN_A_ROW if end == "the floor" else SLOTS_PER_LOOK))
        with contextlib.suppress(asyncio.CancelledError, BrokenHistory):
            await reading
        await asyncio.sleep(0)
        assert (store.under_way_max, store.under_way) == (DEPTH, 0)

    reading: asyncio.Future[bool]
    asyncio.run(run())


async def test_what_was_read_of_closed_slots_is_cancelled() -> None:
    """A broker that was fenced may have filled them; with many takeovers they would be many."""
    store, seen = CountingStore(), Seen()
    reader = await reader_of(store, seen)
    history = History()
    for number in range(3 * IN_A_ROW):
        fence = history.next_slot
        await store.create(key_of(fence), written(history, [], fence=b"%016d" % number))
        for closed in range(fence + 1, history.next_slot):
            await store.create(key_of(closed), b"of a broker that was fenced")
        store.patience[key_of(history.next_slot - 1)] = 1_000
    for _ in range(IN_A_ROW):
        await store.create(key_of(history.next_slot), written(history, [encode_entry(1, [b"x"])]))
    while await reader.read_on(SLOTS_PER_LOOK):
        pass
    assert len(seen.payloads) == IN_A_ROW
    assert store.under_way_max <= 2 * DEPTH


def test_each_slot_is_applied_in_a_turn_of_its_own_and_others_are_read_meanwhile() -> None:
    """Other clients are served in between, and the store is not idle while the log applies what has come."""
    applied: Counter[int] = Counter()
    reads: list[int] = []

    class Log(Seen):
        def replay(self, kind: int, payload: memoryview) -> None:
            super().replay(kind, payload)
            applied[turn] += 1
            reads.append(store.under_way)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def run() -> None:
        reader = await reader_of(store, Log())
        for slot, content in slots(40):
            await store.create(key_of(slot), content)
        turns = asyncio.ensure_future(count())
        while await reader.read_on(SLOTS_PER_LOOK):
            pass
        turns.cancel()
        assert set(applied.values()) == {1}
        assert all(reads[2 * IN_A_ROW :])

    turn, store = 0, CountingStore()
    asyncio.run(run())


async def test_a_slot_that_came_after_it_was_asked_for_is_read_and_none_is_left_out() -> None:
    """Its writer has several under way, and the last of them may be there first."""
    store, seen = CountingStore(), Seen()
    reader = await reader_of(store, seen)
    written = dict(slots(20))
    late = sorted(written)[IN_A_ROW + 2]
    for slot, content in written.items():
        if slot != late:
            await store.create(key_of(slot), content)
    assert not await reader.read_on(SLOTS_PER_LOOK)
    assert reader.history.next_slot == late
    await store.create(key_of(late), written[late])
    assert not await reader.read_on(SLOTS_PER_LOOK)
    assert seen.payloads == [b"%d" % slot for slot in written if slot]
