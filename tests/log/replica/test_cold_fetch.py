"""Clients of a broker whose records are only in the store: they get them, nobody else waits meanwhile, and what the
store does not have is an error after which a client tries again or looks for the leader.
"""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from asking import Asker, asking, at
from eventually import eventually
from semel.log.broker.apis import fetch
from semel.log.broker.broker import Broker
from semel.log.replica.cache import Cache
from semel.log.storage.files import MemoryFile, MemoryFiles
from semel.log.storage.log_settings import LogSettings
from semel.testing.stores import MemoryStore
from semel.wire.batch import HEADER_BYTES
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, decode_batches
from semel.wire.versions import INCREMENTAL_ALTER_CONFIGS, LIST_OFFSETS

RECORDS = 40


class HeldStore(MemoryStore):
    """Answers reads of ranges only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.asked = asyncio.Event()

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        self.asked.set()
        await self.is_open.wait()
        return await super().get_range(key, start, size)


def fill(asker: Asker) -> None:
    asker.create("old", segment_bytes="1024")
    for number in range(RECORDS):
        asker.produce("old", [Record(b"value", key=b"%d" % number, timestamp_ms=1000 + number)])


@asynccontextmanager
async def cold(store: MemoryStore, **options: Any) -> AsyncIterator[Broker]:
    """A broker on an empty disk, with records that only the store has."""
    async with Broker(store=store, settings=LogSettings(checkpoint_bytes=1)) as first:
        await asking(first, fill)
        loop = asyncio.get_running_loop()

        def all_is_in_a_checkpoint() -> bool:
            if first.log._checkpoint_position == first.log.end:
                return True
            # By itself the broker would look at this only in its next housekeeping.
            loop.call_soon_threadsafe(first.pump.begin_checkpoint)
            return False

        assert await asyncio.to_thread(eventually, all_is_in_a_checkpoint)
    async with Broker(store=store, files=MemoryFiles(), **options) as broker:
        await broker.activated
        cache = broker.role.cache
        assert cache is not None
        assert cache.files.cached_bytes == 0
        yield broker


def offsets_of(asker: Asker, **options: Any) -> list[int]:
    """All that a consumer gets, fetch by fetch."""
    offsets: list[int] = []
    while len(offsets) < RECORDS:
        answer = asker.fetch("old", len(offsets), **options)
        assert answer.error_code == 0
        offsets += [batch.base_offset for batch in decode_batches(answer.records or b"")]
    return offsets


async def test_a_consumer_gets_records_that_only_the_store_has() -> None:
    async with cold(MemoryStore(), cache_bytes=1500) as broker:
        cache = broker.role.cache
        assert isinstance(cache, Cache)
        assert await asking(broker, offsets_of) == list(range(RECORDS))
        fetches = cache.fetches
        assert await asking(broker, offsets_of) == list(range(RECORDS))
        assert cache.fetches > fetches > 1, "the second time they had to come again"
        assert cache.files.cached_bytes <= 1500


async def test_a_write_that_finds_no_space_takes_some_of_the_cache() -> None:
    """Otherwise producers would be refused on a disk that is full of what the store has."""
    async with cold(MemoryStore(), cache_bytes=1_000_000) as broker:
        assert await asking(broker, offsets_of) == list(range(RECORDS))
        cache = broker.role.cache
        assert isinstance(cache, Cache)
        before = cache.files.cached_bytes
        assert not cache.freed_bytes
        broker.pump.write_refused(OSError(errno.EIO, "no lack of space"))
        assert not cache.freed_bytes
        broker.pump.write_refused(OSError(errno.ENOSPC, "full"))
        assert before / 20 < cache.freed_bytes < before / 2
        assert await asking(broker, offsets_of) == list(range(RECORDS))


async def test_nobody_else_waits_for_the_store() -> None:
    """Neither a producer nor a consumer of what is new, while the store does not answer."""
    store = HeldStore()
    async with cold(store) as broker:
        store.is_open.clear()
        old = asyncio.ensure_future(asking(broker, offsets_of))
        await store.asked.wait()
        since = asyncio.ensure_future(asking(broker, lambda asker: offset_at(asker, 1010)))

        def work(asker: Asker) -> int:
            asker.create("new")
            offset = asker.produce("new", at(5000))
            return len(list(decode_batches(asker.fetch("new", offset).records)))

        assert await asking(broker, work) == 1
        assert not old.done()
        assert not since.done()
        store.is_open.set()
        assert (await old)[:RECORDS] == list(range(RECORDS))
        assert await since == 10


def offset_at(asker: Asker, timestamp_ms: int) -> int:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}]
    answer = asker(
        LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "old", "partitions": partitions}],
    )
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return int(found.offset)


async def test_a_timestamp_is_found_among_records_that_only_the_store_has() -> None:
    async with cold(MemoryStore(), cache_bytes=3000) as broker:
        for number in (0, 17, 39):
            assert await asking(broker, lambda asker, number=number: offset_at(asker, 1000 + number)) == number
        assert await asking(broker, lambda asker: offset_at(asker, -3)) == 39


@pytest.mark.parametrize(
    ("what", "error"),
    [("damaged", ErrorCode.CORRUPT_MESSAGE), ("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
async def test_what_the_store_does_not_have_any_more_is_an_error_after_which_a_consumer_goes_on(
    what: str, error: ErrorCode
) -> None:
    """With OFFSET_OUT_OF_RANGE it would begin again at another place, and have lost or doubled everything between."""

    class Changing(MemoryStore):
        is_changed = False

        async def get_range(self, key: str, start: int, size: int) -> bytes:
            if self.is_changed and what == "gone":
                return (await super().get_range(f"{key}-gone", start, size))[:0]
            body = await super().get_range(key, start, size)
            return bytes(len(body)) if self.is_changed else body

    store = Changing()
    async with cold(store) as broker:
        store.is_changed = True
        answer = await asking(broker, lambda asker: asker.fetch("old"))
        assert answer.error_code == error
        assert broker.metrics.failed_reads > 0
        store.is_changed = False
        assert await asking(broker, offsets_of) == list(range(RECORDS))


def make_compacted(asker: Asker) -> None:
    policy = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
    ratio = {"name": "min.cleanable.dirty.ratio", "config_operation": 0, "value": "0"}
    resource = {"resource_type": 2, "resource_name": "old", "configs": [policy, ratio]}
    (changed,) = asker(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
    assert changed.error_code == 0


@pytest.mark.parametrize("place", [HEADER_BYTES + 3, 7])
async def test_a_pass_copies_no_damage_of_the_disk_but_what_the_store_has(place: int) -> None:
    """In a record, and in an offset, which no checksum covers: the copy would count as right, and go to the store."""
    async with cold(MemoryStore()) as broker:
        await asking(broker, offsets_of)
        (partition,) = broker.log.state.partitions.used()
        first = broker.role.cache.files.disk.open(partition.segments[0].path)
        assert isinstance(first, MemoryFile)
        before = bytes(first.data[: partition.segments[0].size])
        first.data[place] ^= 1
        await asking(broker, make_compacted)
        await broker.compactor.compact()
        assert not broker.metrics.compactions
        await broker.compactor.compact()
        assert broker.metrics.compactions > 0
        assert bytes(first.data[: len(before)]) == before
        assert [header.base_offset for header, _ in partition.batches(0, partition.readable)] == list(range(RECORDS))


async def test_a_pass_that_does_not_get_its_records_from_the_store_is_made_later() -> None:
    """Usually another broker has taken over and deleted them, and this one stood still and does not know it yet. That
    is no damage, of which its operator would be told.
    """

    class Losing(MemoryStore):
        has_lost_all = False

        async def get_range(self, key: str, start: int, size: int) -> bytes:
            return await super().get_range(f"{key}-gone" if self.has_lost_all else key, start, size)

    store = Losing()
    async with cold(store) as broker:
        await asking(broker, make_compacted)
        store.has_lost_all = True
        await broker.compactor.compact()
        assert broker.metrics.failed_reads > 0
        assert not broker.metrics.compactions
        store.has_lost_all = False
        await broker.compactor.compact()
        assert broker.metrics.compactions > 0


async def test_a_fetch_that_would_wait_too_long_for_the_store_is_answered_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer goes on with its heartbeats, and asks again."""
    monkeypatch.setattr(fetch, "DISK_WAIT_MS", 20)
    store = HeldStore()
    async with cold(store) as broker:
        store.is_open.clear()
        warm, waits = broker.warmer.warm, count(1)

        def warm_once(*cold_records: Any) -> None:
            # Whoever waited on would never be answered: so it is answered with too much.
            if next(waits) > 1:
                store.is_open.set()
            warm(*cold_records)

        monkeypatch.setattr(broker.warmer, "warm", warm_once)
        answer = await asking(broker, lambda asker: asker.fetch("old"))
        assert (answer.error_code, answer.records or b"", answer.high_watermark) == (0, b"", RECORDS)
        store.is_open.set()
        assert await asking(broker, offsets_of) == list(range(RECORDS))


async def test_a_fetch_of_many_partitions_has_few_parts_come_at_once() -> None:
    """Each part may be far larger than what is sent of it."""

    class Counting(MemoryStore):
        under_way = 0
        most = 0

        async def get_range(self, key: str, start: int, size: int) -> bytes:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                return await super().get_range(key, start, size)
            finally:
                self.under_way -= 1

    store = Counting()
    async with cold(store) as broker:
        assert await asking(broker, offsets_of) == list(range(RECORDS))
        assert 1 <= store.most <= 4
