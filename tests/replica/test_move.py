"""A log is moved from a directory into a store and back: all of it, or nothing is given up at the old place."""

import argparse
import asyncio
from pathlib import Path

import pytest

from asking import Asker
from log_contents import Content, content_of
from semel.broker.broker import Broker
from semel.cli import move
from semel.cli.errors import Failure
from semel.core.slots import BrokenHistory
from semel.replica.move import move_from_store, move_to_store
from semel.storage.files import DiskFiles, MemoryFiles
from semel.storage.journal import Damaged
from semel.storage.log import Log
from semel.store import StoreRefused
from semel.testing.stores import MemoryStore
from semel.wire.records import Record

PAYMENT = [Record(bytes(300), timestamp_ms=1)]


def nobody(address: str) -> None:
    raise AssertionError(f"{address} is active")


async def kept(files: MemoryFiles | DiskFiles) -> Content:
    """A log in this directory: records, and what a producer has sent."""
    async with Broker(files=files) as broker:
        await asyncio.to_thread(pay, broker.bootstrap)
    return held(files)


def pay(bootstrap: str) -> None:
    with Asker(bootstrap) as asker:
        asker.create("payments", 2, segment_bytes="1024")
        for sequence in range(6):
            asker.produce("payments", PAYMENT, producer_id=0, producer_epoch=0, base_sequence=sequence)


def is_a_duplicate(bootstrap: str) -> bool:
    """Whether the last payment is recognised."""
    with Asker(bootstrap) as asker:
        return asker.produce("payments", PAYMENT, producer_id=0, producer_epoch=0, base_sequence=5) == 5


def held(files: MemoryFiles | DiskFiles) -> Content:
    log = Log.open(files, new_cluster_id="")
    try:
        return content_of(log)
    finally:
        log.close()


def test_a_log_goes_into_a_store_and_back_and_brokers_go_on_in_both() -> None:
    async def scenario() -> None:
        files, store = MemoryFiles(), MemoryStore()
        before = await kept(files)
        moved = await move_to_store(files, store)
        assert (moved.topics, moved.partitions) == (1, 2)
        async with Broker(store=store, files=files) as broker:
            assert content_of(broker.log) == before
            assert await asyncio.to_thread(is_a_duplicate, broker.bootstrap)
        back = MemoryFiles()
        assert (await move_from_store(store, back, nobody))[:2] == (1, 2)
        assert held(back) == before
        async with Broker(files=back) as broker:
            assert await asyncio.to_thread(is_a_duplicate, broker.bootstrap)

    asyncio.run(scenario())


def test_the_directory_of_a_log_that_was_moved_is_its_cache_and_can_begin_no_other() -> None:
    """Two brokers would go on from one log, each by itself."""

    async def scenario() -> None:
        files, store = MemoryFiles(), MemoryStore()
        await kept(files)
        await move_to_store(files, store)
        with pytest.raises(Damaged, match="holds the cache of a log in a store"):
            Log.open(files, new_cluster_id="")

        class Counting(MemoryStore):
            fetched = 0

            async def get(self, key: str):  # type: ignore[no-untyped-def]
                self.fetched += key.startswith("segments/")
                return await super().get(key)

        counting = Counting()
        for listed in store.objects.list(""):
            counting.objects.create(listed.key, store.objects.get(listed.key).body)
        async with Broker(store=counting, files=files):
            assert counting.fetched == 0

    asyncio.run(scenario())


def test_a_move_that_is_refused_anywhere_leaves_the_log_where_it_is() -> None:
    class Refusing(MemoryStore):
        def __init__(self, allowed: int) -> None:
            super().__init__()
            self.allowed = allowed

        async def _send(self, call, key, land):  # type: ignore[no-untyped-def]
            self.allowed -= 1
            if self.allowed < 0:
                raise StoreRefused("the disk is full")
            return await super()._send(call, key, land)

    async def scenario() -> None:
        files = MemoryFiles()
        before = await kept(files)
        store = Refusing(0)
        refused = 0
        while True:
            store.allowed = refused
            try:
                await move_to_store(files, store)
                break
            except StoreRefused:
                assert held(files) == before
                refused += 1
        assert refused > 5
        store.allowed = 10_000
        async with Broker(store=store) as broker:
            assert content_of(broker.log) == before

    asyncio.run(scenario())


def test_a_store_that_has_changed_a_byte_of_a_moved_log_does_not_get_it() -> None:
    class Changing(MemoryStore):
        async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
            changed = bytearray(body)
            changed[len(changed) // 2] ^= key.startswith("segments/")
            return await super().create(key, changed)

    async def scenario() -> None:
        files, store = MemoryFiles(), Changing()
        before = await kept(files)
        with pytest.raises(BrokenHistory, match="is damaged"):
            await move_to_store(files, store)
        assert held(files) == before

    asyncio.run(scenario())


def test_what_cannot_be_moved_is_named() -> None:
    async def scenario() -> None:
        files, store = MemoryFiles(), MemoryStore()
        with pytest.raises(Damaged, match="no broker has kept a log there"):
            await move_to_store(files, store)
        with pytest.raises(BrokenHistory, match="no broker has kept a log there"):
            await move_from_store(store, MemoryFiles(), nobody)
        await kept(files)
        async with Broker(store=store):
            pass
        with pytest.raises(BrokenHistory, match="holds a log already"):
            await move_to_store(files, store)
        with pytest.raises(Damaged, match="holds a log of its own"):
            await move_from_store(store, files, nobody)

    asyncio.run(scenario())


def semel_move(source: object, target: object) -> int:
    """The command, in this process."""
    parser = argparse.ArgumentParser()
    move.configure(parser)
    return move.run(parser.parse_args(["--from", str(source), "--to", str(target)]))


def test_semel_move_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, store, back = tmp_path / "data", f"file://{tmp_path}/store", tmp_path / "back"
    before = asyncio.run(kept(DiskFiles(data)))
    assert semel_move(data, store) == 0
    assert capsys.readouterr().out.startswith("moved 1 topic, 2 partitions, 0.0 MB; every byte was compared")
    with pytest.raises(Failure, match="no broker has kept a log there"):
        semel_move(data, store)
    with pytest.raises(Failure, match="no broker has kept a log there"):
        semel_move(tmp_path / "nothing", store)
    assert semel_move(store, back) == 0
    assert held(DiskFiles(back)) == before
    with pytest.raises(Failure, match="name a directory and a store"):
        semel_move(data, back)
    busy = DiskFiles(back)
    busy.lock()
    with pytest.raises(Failure, match="is in use by a broker"):
        semel_move(back, f"file://{tmp_path}/another")
    busy.close()
