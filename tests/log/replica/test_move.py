"""A log is moved from a directory into a store and back: all of it, or nothing is given up at the old place."""

import argparse
import asyncio
import contextlib
from pathlib import Path

import pytest

from asking import Asker
from eventually import SECONDS_MAX
from log_contents import Content, content_of
from semel.log.broker.broker import Broker
from semel.log.core.slots import BrokenHistory
from semel.log.replica.lease import LEASE_KEY, decode_lease
from semel.log.replica.membership import FORMAT_KEY, cluster_of
from semel.log.replica.move import move_from_store, move_to_store
from semel.log.replica.status import status_of
from semel.log.storage import cache, checkpoint, end_notes, journal
from semel.log.storage.files import DiskFiles, MemoryFiles
from semel.log.storage.journal import Bookmark, Damaged
from semel.log.storage.log import Log
from semel.log.store import StoreRefused
from semel.testing.stores import MemoryStore
from semel.ui.cli import move
from semel.ui.cli.errors import Failure
from semel.wire.records import Record

PAYMENT = [Record(bytes(300), timestamp_ms=1)]


def nobody(address: str) -> None:
    raise AssertionError(f"{address} is active")


async def kept(files: MemoryFiles | DiskFiles) -> Content:
    """A log in this directory: records, and what a producer has sent."""
    async with Broker(files=files) as broker:
        await asyncio.to_thread(pay, broker.bootstrap)
    return held(files)


async def kept_files() -> MemoryFiles:
    """A directory with a log."""
    files = MemoryFiles()
    await kept(files)
    return files


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


async def content_on_store(broker: Broker) -> Content:
    """What a broker serves that has fetched all of it."""
    cache = broker.role.cache
    assert cache is not None
    assert not await cache.bring(cache.files.all_lacking())
    return content_of(broker.log)


async def test_a_log_goes_into_a_store_and_back_and_brokers_go_on_in_both() -> None:
    files, store = MemoryFiles(), MemoryStore()
    before = await kept(files)
    moved = await move_to_store(files, store)
    assert (moved.topics, moved.partitions) == (1, 2)
    async with Broker(store=store, files=files) as broker:
        assert await content_on_store(broker) == before
        assert await asyncio.to_thread(is_a_duplicate, broker.bootstrap)
    back = MemoryFiles()
    assert (await move_from_store(store, back, nobody))[:2] == (1, 2)
    assert held(back) == before
    async with Broker(files=back) as broker:
        assert await asyncio.to_thread(is_a_duplicate, broker.bootstrap)


async def test_a_move_out_of_a_store_leaves_neither_a_broker_nor_a_standby_behind() -> None:
    """Whoever comes to the store later need not wait for it."""
    store = MemoryStore()
    await move_to_store(await kept_files(), store)
    await move_from_store(store, MemoryFiles(), nobody)
    assert decode_lease(store.objects.get(LEASE_KEY).body).is_released
    status = await status_of(store)
    assert (status.is_active, status.standbys) == (False, [])


async def test_who_moves_the_log_of_a_broker_that_lives_is_told_at_once_and_once() -> None:
    """Before anything is copied, which may take hours: only a person can stop that broker."""
    store, files = MemoryStore(), MemoryFiles()
    told: list[tuple[str, bool]] = []
    heard = asyncio.Event()

    def note(address: str) -> None:
        told.append((address, cache.MARK in files.names("")))
        heard.set()

    async with Broker(store=store, lease_seconds=1.0) as broker:
        await asyncio.to_thread(pay, broker.bootstrap)
        moving = asyncio.create_task(move_from_store(store, files, note))
        async with asyncio.timeout(SECONDS_MAX):
            await heard.wait()
    await moving
    assert told == [(broker.bootstrap, False)]


async def test_a_broker_on_a_store_whose_move_was_interrupted_says_so() -> None:
    store = MemoryStore()
    await move_to_store(await kept_files(), store)
    # It was killed just before.
    store.objects.delete(FORMAT_KEY)
    with pytest.raises(BrokenHistory, match="a move into it has not ended: start it again"):
        await cluster_of(store, "another")


async def test_the_epochs_of_a_log_go_on_when_it_is_moved_and_its_directory_is_known_to_hold_a_log() -> None:
    """A consumer that has seen an epoch refuses a lower one; and without its checkpoint no empty log begins there."""
    files, store, back = await kept_files(), MemoryStore(), MemoryFiles()
    log = Log.open(files, new_cluster_id="")
    log.state.partitions.leader_epoch = 7
    log.close()
    await move_to_store(files, store)
    async with Broker(store=store) as broker:
        assert broker.role.epoch == 8
    await move_from_store(store, back, nobody)
    note = end_notes.read(back)
    assert note is not None
    assert note.has_log
    assert end_notes.is_same_run(note, back)
    kept_there = checkpoint.read(back)
    assert kept_there is not None
    assert note.durable == Bookmark(*kept_there[0]["journal"]).position


async def test_the_directory_of_a_log_that_was_moved_is_its_cache_and_can_begin_no_other() -> None:
    """Two brokers would go on from one log, each by itself."""
    files, store = MemoryFiles(), MemoryStore()
    await kept(files)
    await move_to_store(files, store)
    with pytest.raises(Damaged, match="holds the cache of a log in a store"):
        Log.open(files, new_cluster_id="")

    class Counting(MemoryStore):
        fetched = 0

        async def get_range(self, key: str, start: int, size: int):  # type: ignore[no-untyped-def]
            self.fetched += key.startswith("segments/")
            return await super().get_range(key, start, size)

    counting = Counting()
    for listed in store.objects.list(""):
        counting.objects.create(listed.key, store.objects.get(listed.key).body)
    async with Broker(store=counting, files=files) as broker:
        await content_on_store(broker)
        assert counting.fetched == 0


async def test_a_move_that_is_refused_anywhere_leaves_the_log_where_it_is() -> None:
    class Refusing(MemoryStore):
        def __init__(self, allowed: int) -> None:
            super().__init__()
            self.allowed = allowed

        async def _send(self, call, key, land):  # type: ignore[no-untyped-def]
            self.allowed -= 1
            if self.allowed < 0:
                raise StoreRefused("the disk is full")
            return await super()._send(call, key, land)

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
        assert await content_on_store(broker) == before


class Killed(BaseException):
    """The process ends here."""


class Dying(MemoryFiles):
    """The process ends when it is about to remove a file of which the path begins like this."""

    fatal = "nothing"

    def remove(self, path: str) -> None:
        if path.startswith(self.fatal):
            raise Killed
        super().remove(path)


def test_a_move_that_was_killed_anywhere_goes_on_when_it_is_started_again() -> None:
    """Behind each call of the store, and before each change of the directory."""

    class Killing(MemoryStore):
        calls_left = 10_000

        async def _send(self, call, key, land):  # type: ignore[no-untyped-def]
            answer = await super()._send(call, key, land)
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed
            return answer

    async def scenario(calls: int) -> bool:
        files, store = Dying(), Killing()
        before = await kept(files)
        store.calls_left, files.fatal = calls, checkpoint.NAME
        with pytest.raises(Killed):
            await move_to_store(files, store)
        is_at_the_end = store.calls_left >= 0
        store.calls_left, files.fatal = 10_000, Dying.fatal
        assert held(files) == before
        assert (await move_to_store(files, store))[:2] == (1, 2)
        async with Broker(store=store, files=files) as broker:
            assert await content_on_store(broker) == before
        return is_at_the_end

    calls = 0
    while not asyncio.run(scenario(calls)):
        calls += 1
    assert calls > 5


async def test_a_log_that_went_on_after_its_move_was_killed_is_not_given_up() -> None:
    files, store = Dying(), MemoryStore()
    await kept(files)
    files.fatal = checkpoint.NAME
    with pytest.raises(Killed):
        await move_to_store(files, store)
    files.fatal = Dying.fatal
    async with Broker(files=files) as broker:
        with Asker(broker.bootstrap) as asker:
            await asyncio.to_thread(asker.produce, "payments", PAYMENT)
    after = held(files)
    with pytest.raises(BrokenHistory, match="holds a log already"):
        await move_to_store(files, store)
    assert held(files) == after


async def test_what_a_killed_move_has_left_of_the_journal_is_not_read_when_the_log_comes_back() -> None:
    files, store = Dying(), MemoryStore()
    # Of the second life, as the one that follows on a move out of a store.
    Log.open(files, new_cluster_id="").close()
    await kept(files)
    files.fatal = f"{journal.DIRECTORY}/spare"
    with pytest.raises(Killed):
        await move_to_store(files, store)
    files.fatal = Dying.fatal
    await move_from_store(store, files, nobody)
    log = Log.open(files, new_cluster_id="")
    before = content_of(log)
    log.abandon()
    assert held(files) == before


@pytest.mark.parametrize("killed", ["nobody", "the other one before", "the other one meanwhile"])
def test_of_two_moves_into_one_store_at_once_none_gives_up_a_log_for_the_other(killed: str) -> None:
    """One waits before one of its calls, and the other one goes on to its end, or until it is about to be done."""

    class Waiting(MemoryStore):
        number, kills = 10_000, False

        def __init__(self) -> None:
            super().__init__()
            self.is_there, self.may_go_on = asyncio.Event(), asyncio.Event()

        async def _send(self, call, key, land):  # type: ignore[no-untyped-def]
            if self.kills and key == FORMAT_KEY and call == "create":
                raise Killed
            self.number -= 1
            if self.number == 0:
                self.is_there.set()
                await self.may_go_on.wait()
            return await super()._send(call, key, land)

    async def scenario(number: int) -> bool:
        logs, store = (MemoryFiles(), MemoryFiles()), Waiting()
        Log.open(logs[1], new_cluster_id="another").close()
        before = [await kept(logs[0]), held(logs[1])]

        async def move_other(*, is_killed: bool) -> None:
            store.kills = is_killed
            with contextlib.suppress(BrokenHistory, Killed):
                await move_to_store(logs[1], store)
            store.kills = False

        if killed == "the other one before":
            await move_other(is_killed=True)
        store.number = number
        first = asyncio.create_task(move_to_store(logs[0], store))
        there = asyncio.create_task(store.is_there.wait())
        await asyncio.wait((first, there), return_when="FIRST_COMPLETED")
        has_ended = first.done()
        store.number = 10_000
        await move_other(is_killed=killed == "the other one meanwhile")
        store.may_go_on.set()
        with contextlib.suppress(BrokenHistory):
            await first
        given_up = [checkpoint.NAME not in files.names("") for files in logs]
        assert held(logs[given_up.index(False)]) == before[given_up.index(False)]
        if True in given_up:
            async with Broker(store=store) as broker:
                assert await content_on_store(broker) == before[given_up.index(True)]
        else:
            assert killed == "the other one meanwhile"
        return has_ended

    number = 1
    while not asyncio.run(scenario(number)):
        number += 1
    assert number > 1


async def test_a_store_that_has_changed_a_byte_of_a_moved_log_does_not_get_it() -> None:
    class Changing(MemoryStore):
        async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
            changed = bytearray(body)
            changed[len(changed) // 2] ^= key.startswith("segments/")
            return await super().create(key, changed)

    files, store = MemoryFiles(), Changing()
    before = await kept(files)
    with pytest.raises(BrokenHistory, match="is damaged"):
        await move_to_store(files, store)
    assert held(files) == before


async def test_what_cannot_be_moved_is_named() -> None:
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
