"""Damage in an object of a store, or in the cache of one, is found without a reader, and mended from the other side."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, at
from eventually import eventually
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.log.broker.failure import BrokerFailed
from semel.log.replica.object_scrub import TRIES, ObjectScrubber
from semel.log.storage import scrub
from semel.log.storage.files import DiskFiles
from semel.log.storage.scrub import Scrub
from semel.log.store.contract import Found
from semel.testing.stores import FaultyStore, MemoryStore, StoreFault
from semel.wire.batch import CHECKED_FROM, read_header
from semel.wire.checksum import crc32c
from semel.wire.errors import ErrorCode

ROUNDS = 2


def scrubber_of(broker: Broker) -> ObjectScrubber:
    assert broker.role.scrubber is not None
    return broker.role.scrubber


async def checkpoint(broker: Broker) -> None:
    written = broker.metrics.checkpoints
    broker.pump.begin_checkpoint()
    assert await asyncio.to_thread(eventually, lambda: broker.metrics.checkpoints > written)
    assert await asyncio.to_thread(eventually, lambda: not broker.log.checkpoint_running)


async def fill(broker: Broker) -> None:
    """An object with records for each checkpoint."""
    with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
        await asyncio.to_thread(ask.create, "payments")
        for number in range(ROUNDS):
            await asyncio.to_thread(ask.produce, "payments", at(*[number] * 250))
            await checkpoint(broker)


async def fetched(broker: Broker, offset: int = 0) -> Any:
    def fetch() -> Any:
        with Asker(broker.bootstrap) as ask:
            # What is not on the disk comes with a later one.
            return eventually(
                lambda: found if (found := ask.fetch("payments", offset)).error_code or found.records else None
            )

    return await asyncio.to_thread(fetch)


def objects_in(store: MemoryStore) -> dict[str, int]:
    return {listed.key: listed.size_bytes for listed in sorted(store.objects.list("segments"))}


def flip(store: MemoryStore, key: str) -> None:
    content = bytearray(store.objects.get(key).body)
    content[100] ^= 1
    store.objects.delete(key)
    store.objects.create(key, bytes(content))


async def test_a_damaged_object_is_told_of_and_written_again_from_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with Broker(store=store) as broker:
        await fill(broker)
        before = objects_in(store)
        first, *_ = before
        flip(store, first)
        await scrubber_of(broker).look()
        assert broker.metrics.scrubbed_bytes == sum(before.values()), "each once"
        (told,) = [one for one in caplog.records if "object_damaged" in one.getMessage()]
        assert told.levelno == logging.ERROR
        assert first in told.getMessage()
        assert "if the disk of this broker has these records, the next checkpoint writes them" in told.getMessage()
        assert "semel_damaged_segments 1\n" in exposition(broker)
        await checkpoint(broker)
        assert "semel_damaged_segments 0\n" in exposition(broker)
    async with Broker(store=store) as another:
        assert (await fetched(another)).error_code == 0, "its disk was empty"


async def test_a_damaged_object_of_which_the_disk_has_nothing_stays_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its readers get an error, and nothing is written in its place. The log says that the store has no right copy."""
    store = MemoryStore()
    async with Broker(store=store) as broker:
        await fill(broker)
    first, *_ = objects_in(store)
    flip(store, first)
    async with Broker(store=store) as broker:
        await scrubber_of(broker).look()
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.produce, "payments", at(7))
        await checkpoint(broker)
        assert "semel_damaged_segments 1\n" in exposition(broker)
        assert (await fetched(broker)).error_code == ErrorCode.CORRUPT_MESSAGE
        told = next(one.getMessage() for one in caplog.records if "event=read_failed" in one.getMessage())
        assert f"{first} is damaged" in told
        assert 'remedy="the store has no right copy of these records; if the disk of another broker has' in told


async def test_what_is_damaged_on_the_disk_alone_comes_from_the_store(tmp_path: Path) -> None:
    store = MemoryStore()
    async with Broker(tmp_path, store=store) as broker:
        await fill(broker)
        whole = bytes((await fetched(broker)).records)
        (segment,) = (tmp_path / "topics").glob("*/0/*.log")
        content = bytearray(segment.read_bytes())
        content[100] ^= 1
        with segment.open("r+b") as opened:
            opened.write(content)
        assert bytes((await fetched(broker)).records) != whole
        await scrubber_of(broker).look()
        assert not scrubber_of(broker).damaged
        assert bytes((await fetched(broker)).records) == whole


async def test_a_broker_stops_if_its_disk_has_lost_what_no_checkpoint_has_and_begins_again_with_all_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    broker = Broker(tmp_path, store=store, lease_seconds=1)
    await broker.start()
    await fill(broker)
    with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
        await asyncio.to_thread(ask.produce, "payments", at(7))
    (segment,) = (tmp_path / "topics").glob("*/0/*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    with segment.open("r+b") as opened:
        opened.write(content)
    broker.pump.begin_checkpoint()
    with pytest.raises(BrokerFailed, match=f"the disk failed: {segment}: .*, but the journal in .* has them"):
        await broker.failed
    await broker.stop()
    assert not [one for one in caplog.records if one.exc_info and one.levelno > logging.DEBUG], "the line says it all"
    async with Broker(tmp_path, store=store, lease_seconds=1) as again:
        await again.activated
        last = bytes((await fetched(again, ROUNDS * 250)).records)
        assert crc32c(last[CHECKED_FROM:]) == read_header(last).checksum
        await checkpoint(again)


async def test_a_pass_goes_on_after_the_object_that_was_read_last(tmp_path: Path) -> None:
    store = MemoryStore()
    async with Broker(tmp_path, store=store) as broker:
        await fill(broker)
        first, *rest = objects_in(store).items()
        scrub.write(DiskFiles(tmp_path), Scrub(0, key=first[0]))
        await scrubber_of(broker).look()
        assert broker.metrics.scrubbed_bytes == sum(size for _, size in rest)


async def test_an_object_that_alone_cannot_be_read_is_damaged_and_the_pass_goes_on_behind_it() -> None:
    store = FaultyStore(latency_seconds=0)
    async with Broker(store=store) as broker:
        await fill(broker)
        (first, _), *rest = objects_in(store).items()
        store.arm(StoreFault("lost request", call="get", key=first))
        for _ in range(TRIES - 1):
            await scrubber_of(broker).try_on()
        assert not scrubber_of(broker).damaged, "the store may not have worked"
        await scrubber_of(broker).try_on()
        assert scrubber_of(broker).damaged == {first}
        assert broker.metrics.scrubbed_bytes == sum(size for _, size in rest)
        await checkpoint(broker)
        assert not scrubber_of(broker).damaged, "it was written again from the disk"


async def test_an_object_that_can_be_read_again_is_no_damage_any_more() -> None:
    store = FaultyStore(latency_seconds=0)
    async with Broker(store=store) as broker:
        await fill(broker)
        first, *_ = objects_in(store)
        store.arm(StoreFault("lost request", call="get", key=first))
        for _ in range(TRIES):
            await scrubber_of(broker).try_on()
        assert scrubber_of(broker).damaged == {first}
        store.calm()
        await scrubber_of(broker).look()
        assert not scrubber_of(broker).damaged


async def test_an_object_is_not_charged_with_the_failures_of_another_one() -> None:
    store = FaultyStore(latency_seconds=0)
    async with Broker(store=store) as broker:
        await fill(broker)
        for key in objects_in(store):
            store.arm(StoreFault("lost request", call="get", key=key))
            for _ in range(TRIES - 1):
                await scrubber_of(broker).try_on()
            store.calm()
        assert not scrubber_of(broker).damaged


async def test_an_object_that_a_checkpoint_gives_up_during_a_pass_is_not_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Overtaken(MemoryStore):
        """Before it gives an object, its topic is deleted, and a checkpoint written."""

        key = ""

        async def get(self, key: str) -> Found:
            if key == self.key:
                self.key = ""
                catalog, ids = broker.log.state.catalog, broker.log.state.producer_ids
                broker.log.commit(catalog.decide_delete("payments", ids.block_count, 0))
                await checkpoint(broker)
            return await super().get(key)

    store = Overtaken()
    async with Broker(store=store) as broker:
        await fill(broker)
        *_, last = objects_in(store)
        flip(store, last)
        store.key = last
        await scrubber_of(broker).look()
        assert store.key == ""
        assert "object_damaged" not in caplog.text


async def test_a_store_that_does_not_work_is_no_damage() -> None:
    store = FaultyStore(latency_seconds=0)
    async with Broker(store=store) as broker:
        await fill(broker)
        store.arm(StoreFault("lost request", call="get"))
        for _ in range(TRIES + 1):
            await scrubber_of(broker).try_on()
        store.calm()
        assert not scrubber_of(broker).damaged


async def test_a_disk_on_which_no_pass_can_be_noted_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(tmp_path, store=MemoryStore()) as broker:
        await fill(broker)
        (tmp_path / scrub.NAME).mkdir()
        await scrubber_of(broker).try_on()
        assert "event=scrub_interrupted" in caplog.text
