"""Slots under way: sent once, counted in their order, and given up only to somebody who took over."""

import asyncio

import pytest

from semel.log.core.slots import DEPTH, History
from semel.log.replica.journal import SlotJournal
from semel.log.replica.membership import cluster_of
from semel.log.replica.reader import SlotReader
from semel.log.replica.slot import key_of
from semel.log.replica.writer import Fenced, SlotWriter
from semel.log.store import Unsure
from semel.testing.stores import MemoryStore
from semel.wire.steps import Steps

pytestmark = pytest.mark.virtual_time


class Listening:
    """A log that remembers what it was told."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.epochs: list[int] = []

    def replay(self, kind: int, payload: memoryview) -> None:
        self.entries.append(bytes(payload))

    def enter_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def clear(self) -> Steps[None]:
        yield from ()


class LossyStore(MemoryStore):
    """Each call is lost once on its way there, and once on its way back."""

    def __init__(self) -> None:
        super().__init__()
        self._fates: dict[str, list[str]] = {}

    async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
        fates = self._fates.setdefault(key, ["request", "answer"])
        if fates and fates.pop(0) == "request":
            raise Unsure("the request was lost")
        version = await super().create(key, body)
        if len(fates) == 0 and self._fates.get(f"{key} answered") is None:
            self._fates[f"{key} answered"] = []
            raise Unsure("the answer was lost")
        return version


class HeldStore(MemoryStore):
    """Creates wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, asyncio.Event] = {}

    async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
        if key in self.held:
            await self.held[key].wait()
        return await super().create(key, body)


class Active:
    """A broker's end of the journal, after it has taken over."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.journal = SlotJournal(1_000_000)
        self.log = Listening()
        self.reader = SlotReader(store, self.journal, self.log, History())
        self.writer = SlotWriter(store, self.journal, self.reader.history, lambda *_: None)
        self.told: list[tuple[int, BaseException | None]] = []

    async def take_over(self) -> "Active":
        await cluster_of(self.store, "a new one")
        await self.reader.take_over()
        self.writer.open()
        return self

    def send(self, payload: bytes) -> int:
        self.journal.append(1, [payload])
        return self.writer.begin(lambda *told: self.told.append(told))

    async def until_told(self, count: int) -> list[tuple[int, BaseException | None]]:
        while len(self.told) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.told


async def test_a_lost_answer_is_no_fence_and_no_second_slot() -> None:
    """The same bytes go to the same key until the store says that they are there."""
    store = LossyStore()
    active = await Active(store).take_over()
    positions = [active.send(b"paid"), active.send(b"owed")]
    assert await active.until_told(2) == [(position, None) for position in positions]
    follower = await Active(store).take_over()
    assert follower.log.entries == [b"paid", b"owed"]


async def test_a_slot_counts_when_all_before_it_are_there() -> None:
    store = HeldStore()
    active = await Active(store).take_over()
    first = key_of(active.reader.history.next_slot)
    store.held[first] = asyncio.Event()
    positions = [active.send(b"%d" % number) for number in range(DEPTH)]
    assert active.writer.is_busy, "a fifth slot waits for the first"
    await asyncio.sleep(1)
    assert active.told == []
    assert active.journal.synced == 0
    store.held[first].set()
    assert await active.until_told(DEPTH) == [(position, None) for position in positions]
    assert active.journal.synced == positions[-1]
    assert not active.writer.is_busy


async def test_all_that_a_fenced_broker_has_under_way_is_lost_together() -> None:
    """Its first slot was not there yet: the fence takes it, and nobody reads what came later behind it."""
    store = HeldStore()
    zombie = await Active(store).take_over()
    first = key_of(zombie.reader.history.next_slot)
    store.held[first] = asyncio.Event()
    for number in range(DEPTH):
        zombie.send(b"%d" % number)
    await asyncio.sleep(1)
    gate, store.held = store.held[first], {}
    follower = await Active(store).take_over()
    position = follower.send(b"kept")
    gate.set()
    ((_, error),) = await zombie.until_told(1)
    assert isinstance(error, Fenced)
    assert zombie.writer.is_busy, "it sends nothing any more"
    assert await follower.until_told(1) == [(position, None)]
    reader = await Active(store).take_over()
    assert reader.log.entries == [b"kept"]
    assert reader.log.epochs == [1, 2, 3]


async def test_of_two_that_take_over_at_once_each_has_an_epoch_of_its_own() -> None:
    store = MemoryStore()
    both = [Active(store), Active(store)]
    await cluster_of(store, "a new one")
    epochs = await asyncio.gather(*(one.reader.take_over() for one in both))
    assert sorted(epochs) == [1, 2]


async def test_a_start_on_a_store_that_does_not_answer_ends_and_says_so() -> None:
    class Silent(MemoryStore):
        async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
            raise Unsure("connection refused")

    with pytest.raises(Unsure, match="memory has not answered for 30 s"):
        await cluster_of(Silent(), "a new one")


async def test_who_stands_by_writes_nothing() -> None:
    active = Active(MemoryStore())
    active.journal.append(1, [b"paid"])
    assert active.writer.has_work
    assert active.writer.is_busy


def test_what_waits_for_the_store_is_bounded() -> None:
    """But one entry always fits, however large."""
    journal = SlotJournal(100)
    journal.append(1, [bytes(1000)])
    with pytest.raises(OSError, match="wait for the store"):
        journal.append(1, [b"one more"])
    assert journal.end == 1008
    assert [len(entry) for entry in journal.take(10)] == [1008], "an entry larger than a slot is a slot by itself"
    with pytest.raises(OSError, match="wait for the store"):
        # What is under way is in memory, too.
        journal.append(1, [b"one more"])
    journal.note_synced(1008)
    journal.append(1, [b"one more"])
