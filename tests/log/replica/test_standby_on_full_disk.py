"""A standby whose disk is full: it ends nobody, keeps nobody from taking over, and goes on when there is space."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from asking import Asker, asking
from eventually import SECONDS_MAX, eventually
from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFenced
from semel.log.replica.floor import FLOOR_KEY, decode_floor
from semel.log.replica.lease import LEASE_KEY, decode_lease
from semel.log.replica.slot import JOURNAL, slot_of
from semel.log.storage.files import Buffer, File, MemoryFile, MemoryFiles
from semel.testing.stores import MemoryStore
from semel.wire.records import Record, decode_batches
from small_disk import SmallDisk

# A standby looks ten times in this time. No test waits for the end of such a lease, and a busy machine ends none.
LEASE_SECONDS = 20.0
PAYMENT = Record(bytes(10_000))


def active_on(store: MemoryStore) -> Broker:
    """A broker that makes no checkpoint by itself, because its time stands still and its log stays small. The slots of
    its journal have several entries, if these come at the same time.
    """
    return Broker(store=store, lease_seconds=LEASE_SECONDS, commit_interval_seconds=0.2, clock=lambda: 1_000.0)


async def pay(broker: Broker, count: int) -> None:
    """So many payments, all at the same time."""
    await asyncio.gather(
        *(asking(broker, lambda asker: asker.produce("payments", [PAYMENT])) for _ in range(count)),
    )


async def payments_at(broker: Broker) -> int:
    """How many a consumer gets."""

    def count(asker: Asker) -> int:
        return sum(len(batch.records) for batch in decode_batches(asker.fetch("payments").records))

    return await asking(broker, count)


async def is_so(holds: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(eventually, holds)


async def checkpointed(broker: Broker, store: MemoryStore) -> None:
    """Return when a checkpoint covers all slots that are there at the call."""
    newest = max(slot_of(listed.key) or 0 for listed in store.objects.list(JOURNAL))
    loop = asyncio.get_running_loop()

    def covers_all() -> bool:
        if decode_floor(store.objects.get(FLOOR_KEY).body).slot > newest:
            return True
        loop.call_soon_threadsafe(broker.pump.begin_checkpoint)
        return False

    assert await is_so(covers_all)


async def test_it_goes_on_when_there_is_space() -> None:
    """It ended, and so did every standby that was started after it."""
    store, disk = MemoryStore(), SmallDisk(100_000)
    async with active_on(store) as active:
        await asking(active, lambda asker: asker.create("payments"))
        async with Broker(store=store, files=disk) as standby:
            await pay(active, 20)
            assert await is_so(lambda: standby.failed.done() or standby.metrics.storage_errors > 2)
            assert not standby.failed.done()
            disk.bytes_max *= 10
            await active.stop()
            await standby.activated
            assert await payments_at(standby) == 20


async def test_one_that_starts_on_a_full_disk_stands_by_and_says_how_far_behind_it_is() -> None:
    """Its start never ended, so nobody saw its metrics."""
    store, disk = MemoryStore(), SmallDisk(20_000)
    async with active_on(store) as active:
        await asking(active, lambda asker: asker.create("payments"))
        await pay(active, 20)
        standby = Broker(store=store, files=disk)
        await asyncio.wait_for(standby.start(), SECONDS_MAX)
        assert not standby.role.is_active
        assert await is_so(lambda: standby.role.lag_bytes > 150_000)
        disk.bytes_max *= 100
        assert await is_so(lambda: standby.role.lag_bytes == 0)
        await standby.stop()


class GatedStore:
    """The same store, as a broker sees it whose reads of the lease wait for the gate."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_waited_at = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str) -> Any:
        if key == LEASE_KEY and not self.gate.is_set():
            self.is_waited_at.set()
            await self.gate.wait()
        return await self._store.get(key)


async def test_one_that_has_claimed_the_lease_and_cannot_read_the_rest_leaves_it_to_another() -> None:
    """It kept its claim while it waited for space; and when it had space, it fenced who had taken over meanwhile."""
    store, disk = MemoryStore(), SmallDisk(1_000_000)
    gated = GatedStore(store)
    async with active_on(store) as first:
        await asking(first, lambda asker: asker.create("payments"))
        async with Broker(store=gated, files=disk, lease_seconds=LEASE_SECONDS) as full:
            gated.gate.clear()
            await gated.is_waited_at.wait()
            await pay(first, 1)
            await first.stop()
            disk.bytes_max = 0
            gated.gate.set()
            assert await is_so(lambda: full.metrics.storage_errors > 0)
            assert await is_so(lambda: decode_lease(store.objects.get(LEASE_KEY).body).is_released)
            async with active_on(store) as second:
                await asyncio.wait_for(second.activated, SECONDS_MAX)
                await pay(second, 1)
                disk.bytes_max = 1_000_000
                assert await is_so(lambda: full.log.end == second.log.end)
                await pay(second, 1)
                assert (full.role.is_active, second.role.is_active) == (False, True)
                assert not full.failed.done()
                assert not second.failed.done()


class StubbornDisk(MemoryFiles):
    """It refuses to write while it is full, be the place there or not."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> File:
        return StubbornFile(super().open(path, create=create), self)


class StubbornFile(MemoryFile):
    __slots__ = ("_disk",)

    def __init__(self, file: MemoryFile, disk: StubbornDisk) -> None:
        super().__init__(file.data)
        self._disk = disk

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_at(buffers, position)


async def test_one_that_a_checkpoint_has_overtaken_ends_to_start_from_that() -> None:
    """What it has read since the checkpoint before is only on its disk, so nothing could be freed; a start heals it."""
    store, disk = MemoryStore(), StubbornDisk()
    async with active_on(store) as active:
        await asking(active, lambda asker: asker.create("payments"))
        standby = Broker(store=store, files=disk)
        await standby.start()
        disk.is_full = True
        await pay(active, 5)
        assert await is_so(lambda: standby.metrics.storage_errors > 1)
        await checkpointed(active, store)
        with pytest.raises(BrokerFenced, match="start again"):
            await asyncio.wait_for(standby.failed, SECONDS_MAX)
        await standby.stop()
        disk.is_full = False
        async with Broker(store=store, files=disk) as again:
            disk.is_full = True
            await active.stop()
            await asyncio.wait_for(again.activated, SECONDS_MAX)


async def test_one_that_has_no_space_for_what_a_checkpoint_has_replaced_waits() -> None:
    """The active broker has compacted a topic, and the standby has to fetch the records as they were before. It
    ended."""

    def fill(asker: Asker) -> None:
        asker.create("old", **{"segment.bytes": "1048576", "cleanup.policy": "compact"})
        for _ in range(40):
            asker.produce("old", [Record(bytes(100_000), key=b"k")])

    store, disk = MemoryStore(), StubbornDisk()
    async with active_on(store) as active:
        await asking(active, fill)
        await checkpointed(active, store)
        async with Broker(store=store, files=disk) as standby:
            assert await is_so(lambda: standby.log.end == active.log.end)
            disk.is_full = True
            await active.compactor.compact()
            await asking(active, lambda asker: asker.create("another"))
            await checkpointed(active, store)
            assert await is_so(lambda: standby.failed.done() or standby.metrics.storage_errors > 1)
            assert not standby.failed.done()
            disk.is_full = False
            await active.stop()
            await asyncio.wait_for(standby.activated, SECONDS_MAX)
