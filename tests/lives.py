"""A broker's log on a store, without a socket: one life of it, from an empty disk or a cache to its end.

The store watches over every call: what is named is there, and what is needed stays. So every test that goes through
here tries these promises, too.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from log_contents import Content, content_of
from semel.log.core.entries import LogStartMoved
from semel.log.core.topics import Topic
from semel.log.replica.cache import Cache
from semel.log.replica.checkpoints import StoreCheckpoints
from semel.log.replica.contents import Contents
from semel.log.replica.floor import FLOOR_KEY, Floor, decode_floor
from semel.log.replica.journal import SlotJournal
from semel.log.replica.membership import cluster_of
from semel.log.replica.reader import SlotReader
from semel.log.replica.restore import restore
from semel.log.replica.slot import digest_of, slot_of
from semel.log.replica.writer import SlotWriter, answered
from semel.log.storage import checkpoint
from semel.log.storage.files import Files, MemoryFiles
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.partition_log import PartitionLog
from semel.testing.stores import CallName, FaultyStore, MemoryStore
from semel.testing.virtual_loop import VirtualLoop
from semel.wire.batch import read_header
from semel.wire.records import Record, encode_batch
from semel.wire.steps import finish

Result = TypeVar("Result")
NOW_MS = 1_000_000


class WatchedStore(FaultyStore):
    """Fails when the floor names what is not there, or something goes that is still needed. It can be stopped."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.calls: list[tuple[CallName, str]] = []
        # Calls from this one on do not happen, or happen and are never answered.
        self.stops_at: int | None = None
        self.answers_last = False

    async def _send(self, call: CallName, key: str, land: Callable[[], Result]) -> Result:
        number = len(self.calls)
        self.calls.append((call, key))
        stopped = self.stops_at is not None and number >= self.stops_at
        if stopped and not (self.answers_last and number == self.stops_at):
            await asyncio.Event().wait()

        def watched() -> Result:
            if call == "delete":
                self._check_delete(key)
            result = land()
            if call == "replace" and key == FLOOR_KEY:
                self.check()
            return result

        result = await super()._send(call, key, watched)
        if stopped:
            await asyncio.Event().wait()
        return result

    @property
    def floor(self) -> Floor:
        return decode_floor(self.objects.get(FLOOR_KEY).body)

    def keys(self, folder: str) -> set[str]:
        return {listed.key for listed in self.objects.list(folder)}

    def needed(self) -> set[str]:
        """The objects that the checkpoint needs which the floor names."""
        if not self.floor.pieces:
            return set()
        text = b"".join(self.objects.get(piece.key).body for piece in self.floor.pieces)
        state, _ = checkpoint.decode(text, "the checkpoint")
        return {*Contents.from_record(state["contents"]).objects, *(piece.key for piece in self.floor.pieces)}

    def check(self) -> None:
        """All that the checkpoint needs is there."""
        assert self.needed() <= self.keys("")

    def _check_delete(self, key: str) -> None:
        assert key not in self.needed(), f"{key} is needed, and deleted"
        slot = slot_of(key)
        if slot is not None and key in self.keys("journal"):
            assert slot < self.floor.deleted_below, f"slot {slot} is not covered, and deleted"
            assert slot != 0, "the first fence is deleted"


class Inline:
    """A thread that is none."""

    def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        outcome: BaseException | None = None
        try:
            job()
        except Exception as error:
            outcome = error
        asyncio.get_running_loop().call_soon(done, outcome)

    def stop(self) -> None:
        pass


class Life:
    """One life of a broker."""

    # Of a new store.
    cluster_id = "a cluster"

    def __init__(
        self,
        store: WatchedStore,
        files: Files | None = None,
        *,
        cache_bytes: int | None = None,
        is_cold: bool = False,
        make_room: Callable[[OSError], None] | None = None,
        **settings: Any,
    ) -> None:
        """It fetches all that the store has when it starts, unless it `is_cold`. With `make_room` it waits when its
        disk is full."""
        self.store = store
        self.files = files or MemoryFiles()
        self.cache_bytes = cache_bytes
        self.is_cold = is_cold
        self.make_room = make_room
        self.settings = LogSettings(**settings)
        self.told: list[str] = []

    async def stand_by(self) -> "Life":
        """Start from the newest checkpoint."""
        store, journal = self.store, SlotJournal(10_000_000)
        self.cluster_id = await cluster_of(store, self.cluster_id)
        self.told = []
        self.cache = Cache(store, self.files, self.cache_bytes)
        self.cache.use(Inline(), self.told.append)
        self.beginning = beginning = await restore(store, self.cache)
        if not self.is_cold:
            await self.warm()
        journal.follow(beginning.history.position)
        self.log = Log.beside(self.cache.files, journal, self.cluster_id, self.settings, beginning.content)
        self.reader = SlotReader(store, journal, self.log, beginning.history, self.make_room)
        self.writer = SlotWriter(store, journal, self.reader.history, lambda *_: None)
        known = beginning.floor, beginning.contents
        self.checkpoints = StoreCheckpoints(store, self.writer, Inline(), self.cache, known, self.told.append)
        return self

    async def warm(self) -> None:
        """Fetch all that is not here."""
        for failure in (await self.cache.bring(self.cache.files.all_lacking())).values():
            raise failure

    async def catch_up(self) -> None:
        """Read all that there is to read."""
        while await self.reader.read_on(50):
            pass

    async def start(self) -> "Life":
        """Take over as well."""
        await self.stand_by()
        return await self.take_over()

    async def take_over(self) -> "Life":
        await answered(self.reader.take_over)
        self.writer.open()
        self.log.show_all()
        return self

    @property
    def topic(self) -> Topic:
        """The topic of the test."""
        catalog = self.log.state.catalog
        if catalog.named("payments") is None:
            configs = {"segment.bytes": "1024"}
            self.log.commit(catalog.decide_create("payments", 2, configs, bytes(16), NOW_MS))
        topic = catalog.named("payments")
        assert topic is not None
        return topic

    def partition(self, index: int = 0) -> PartitionLog:
        return self.log.state.partitions.of(self.topic)[index]

    def append(self, value: bytes, index: int = 0) -> None:
        batch = encode_batch([Record(value.ljust(300), timestamp_ms=NOW_MS)])
        self.log.append(self.topic, self.partition(index), read_header(batch), batch, NOW_MS)

    def delete_records(self, offset: int, index: int = 0) -> None:
        self.log.commit(LogStartMoved(self.topic.number, index, offset))

    async def settle(self) -> None:
        """Return when all is durable."""
        done: list[BaseException] = []
        while self.log.synced < self.log.end:
            while self.writer.has_work and not self.writer.is_busy:
                self.writer.begin(lambda _, error: done.append(error) if error is not None else None)
            if done:
                raise done[0]
            await asyncio.sleep(0.01)
        self.log.settle(self.log.synced)

    async def write(self, *values: bytes, index: int = 0) -> None:
        """Append these, and return when they are durable."""
        for value in values:
            self.append(value, index)
        await self.settle()

    async def keep(self) -> None:
        """Keep a checkpoint as of now; raises what kept it from that."""
        job = finish(self.log.begin_checkpoint())
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.checkpoints.begin(job, ended.set_result)
        outcome = await ended
        if outcome is not None:
            raise outcome
        finish(self.log.finish_checkpoint(job))

    def content(self) -> Content:
        return content_of(self.log)

    def values(self, index: int = 0) -> list[bytes]:
        """The batches of a partition, as digests: short, and different where the batches are."""
        partition = self.partition(index)
        return [digest_of([data]) for _, data in partition.batches(partition.state.log_start, partition.readable)]

    def values_from(self, offset: int) -> list[bytes]:
        """The same, from this offset on."""
        partition = self.partition()
        return [digest_of([data]) for _, data in partition.batches(offset, partition.readable)]

    def end(self) -> None:
        """As by a kill."""
        self.writer.stop()
        self.checkpoints.stop()
        self.log.abandon()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    VirtualLoop().run(scenario)


def names(*numbers: int) -> list[bytes]:
    return [b"payment %d" % number for number in numbers]


async def written(store: WatchedStore, rounds: int = 6, **options: int) -> Life:
    """A broker that has kept a checkpoint of some segments."""
    life = await Life(store, **options).start()
    for number in range(rounds):
        await life.write(*names(*range(3 * number, 3 * number + 3)))
        await life.keep()
    return life


async def prepared(store: WatchedStore) -> Life:
    """A broker that has kept checkpoints, and has something for the next one to keep and to delete."""
    life = await Life(store).start()
    for numbers in ((1, 2, 3), (4, 5, 6)):
        await life.write(*names(*numbers))
        await life.write(*names(*numbers), index=1)
        await life.keep()
    await life.write(*names(7, 8))
    life.delete_records(4)
    await life.settle()
    return life


class Gate:
    """Holds one call of a store until it is opened: the first on such a key, or one behind it."""

    def __init__(self, store: MemoryStore, call: str, beginning: str, number: int = 1) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        send, left = store._send, number

        async def gated(name, key, land):  # type: ignore[no-untyped-def]
            nonlocal left
            left -= name == call and key.startswith(beginning)
            if left == 0 and not self.reached.is_set():
                self.reached.set()
                await self.opened.wait()
            return await send(name, key, land)

        store._send = gated  # type: ignore[method-assign]


def left(store: WatchedStore) -> list[int]:
    return [int(key.partition("/")[2]) for key in store.keys("journal")]
