"""A standby that is behind reads several slots at once, as their writer has several under way; one that is not asks the
store for nothing that it would not need.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

from written_slots import written

from semel.core.slots import DEPTH, History
from semel.core.steps import Steps
from semel.replica.floor import FIRST_FLOOR, FLOOR_KEY
from semel.replica.journal import SlotJournal
from semel.replica.reader import SLOTS_PER_LOOK, SlotReader
from semel.replica.slot import encode_entry, key_of
from semel.store import Found
from semel.testing.stores import MemoryStore

TURNS = 5


class CountingStore(MemoryStore):
    """Each answer takes some turns of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()
        self.under_way = self.under_way_max = 0

    async def get(self, key: str) -> Found:
        self.asked[key] += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            for _ in range(TURNS):
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


def test_a_reader_that_is_behind_reads_as_many_slots_at_once_as_a_writer_has_under_way() -> None:
    async def run() -> None:
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

    asyncio.run(run())


def test_a_reader_that_is_not_behind_asks_for_each_slot_once_and_for_the_next_one() -> None:
    """Stores charge for each call, and a standby asks all day."""

    async def run() -> None:
        store, seen = CountingStore(), Seen()
        reader = await reader_of(store, seen)
        for slot, content in slots(10):
            await store.create(key_of(slot), content)
            before = store.asked.copy()
            assert not await reader.read_on(SLOTS_PER_LOOK)
            asked = store.asked - before
            assert asked == {key_of(slot): 1, key_of(reader.history.next_slot): 1, FLOOR_KEY: 1}
            assert store.under_way_max == 1

    asyncio.run(run())


def test_a_slot_that_came_after_it_was_asked_for_is_read_and_none_is_left_out() -> None:
    """Its writer has several under way, and the last of them may be there first."""

    async def run() -> None:
        store, seen = CountingStore(), Seen()
        reader = await reader_of(store, seen)
        written = dict(slots(12))
        late = sorted(written)[6]
        for slot, content in written.items():
            if slot != late:
                await store.create(key_of(slot), content)
        assert not await reader.read_on(SLOTS_PER_LOOK)
        assert reader.history.next_slot == late
        await store.create(key_of(late), written[late])
        assert not await reader.read_on(SLOTS_PER_LOOK)
        assert seen.payloads == [b"%d" % slot for slot in written if slot]

    asyncio.run(run())
