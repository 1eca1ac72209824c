"""A backup is the log as it was at one moment, with all that was acknowledged before it began, whatever the broker does
meanwhile and wherever the copy is interrupted; the next one copies what is new.
"""

import asyncio
from pathlib import Path

import pytest

from asking import Asker
from lives import Gate, Life, WatchedStore, names, prepared, run
from log_contents import Content
from semel.log.broker.broker import Broker
from semel.log.core.slots import BrokenHistory
from semel.log.replica.backup import BackedUp, back_up
from semel.log.replica.contents import SEGMENTS
from semel.log.replica.slot import key_of, slot_of
from semel.log.store import FORMAT_KEY, Store, Unsure
from semel.log.stores import open_store
from semel.testing.stores import MemoryStore, StoreFault
from semel.wire.records import Record
from semel_command import semel_failure, semel_lines

pytestmark = pytest.mark.virtual_time

NOW_MS = 1_700_000_000_000
PAYMENT = [Record(bytes(300), timestamp_ms=1)]


class BackupStore(WatchedStore):
    """No broker writes here, so nothing need stay that would keep a late one out."""

    def _check_delete(self, key: str) -> None:
        assert key not in self.needed()
        slot = slot_of(key)
        assert slot is None or slot < self.floor.deleted_below


async def copied(source: Store, target: Store) -> BackedUp:
    return await back_up(source, target, NOW_MS, lambda _: None)


def twin(store: MemoryStore) -> WatchedStore:
    """Another store with the same objects."""
    other = WatchedStore()
    for listed in store.objects.list(""):
        other.objects.create(listed.key, store.objects.get(listed.key).body)
    return other


async def restored(backup: MemoryStore) -> Content:
    """What a broker has that starts on a copy of the backup."""
    store = WatchedStore()
    await copied(backup, store)
    return (await Life(store).start()).content()


async def test_a_broker_on_a_backup_has_the_log_of_its_moment_and_the_next_backup_takes_what_is_new() -> None:
    source, target = WatchedStore(), BackupStore()
    life = await prepared(source)
    first = await copied(source, target)
    assert (first.lost, first.copied_bytes) == ([], first.size_bytes)
    then = life.content()
    assert await restored(target) == then
    await life.write(*names(9))
    again = await copied(source, target)
    assert 0 < again.copied_bytes < first.copied_bytes
    assert await restored(target) == life.content() != then
    assert (await copied(source, target)).copied_bytes == 0


async def test_a_backup_does_not_grow_with_what_is_gone_from_the_log() -> None:
    source, target = WatchedStore(), BackupStore()
    life = await Life(source).start()
    for number in range(6):
        await life.write(*names(*range(10)), index=number % 2)
        life.delete_records(life.partition(number % 2).state.next_offset, number % 2)
        await life.settle()
        await life.keep()
        await copied(source, target)
    assert target.keys(SEGMENTS) | target.keys("checkpoints") == source.needed()
    assert target.keys("journal") == {key for key in source.keys("journal") if key >= key_of(source.floor.slot)}


def test_a_copy_that_ends_between_any_two_calls_leaves_the_log_of_an_earlier_moment_and_goes_on_later() -> None:
    """The first backup into an empty store, and one that follows another. Whether the last call happened or not."""

    async def scenario(number: int, *, is_first: bool, answers_last: bool) -> bool:
        source, target = WatchedStore(), BackupStore()
        life = await prepared(source)
        oldest = len(life.values())
        if not is_first:
            await copied(source, target)
        await life.keep()
        await life.write(*names(9, 10))
        await life.keep()
        await life.write(*names(11))
        target.stops_at, target.answers_last = len(target.calls) + number, answers_last
        copying = asyncio.ensure_future(copied(source, target))
        while len(target.calls) <= target.stops_at and not copying.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        was_whole = copying.done()
        copying.cancel()
        target.stops_at = None
        if not is_first or FORMAT_KEY in target.keys(""):
            values, of_now = (await Life(twin(target)).start()).values(), life.values()
            assert values == of_now[: len(values)]
            assert len(values) >= oldest
        await copied(source, target)
        assert await restored(target) == life.content()
        return was_whole

    for is_first in (True, False):
        for answers_last in (True, False):
            was_whole, calls = False, 0

            async def one(number: int, first: bool = is_first, last: bool = answers_last) -> None:
                nonlocal was_whole
                was_whole = await scenario(number, is_first=first, answers_last=last)

            while not was_whole:
                run(one(calls))
                calls += 1
            assert calls > 20


@pytest.mark.parametrize("call", ["create segments/", "create checkpoints/", "create journal/", "replace floor"])
async def test_checkpoints_that_replace_what_is_being_copied_leave_no_gap(call: str) -> None:
    """Two of them: then objects and slots are deleted that the copy had still to read."""
    source, target = WatchedStore(), BackupStore()
    life = await prepared(source)
    await life.keep()
    await copied(source, target)
    await life.write(*names(*range(20, 40)))
    await life.keep()
    await life.write(*names(*range(40, 50)))
    acknowledged = life.values()
    name, key = call.split()
    gate = Gate(target, name, key)
    copying = asyncio.ensure_future(copied(source, target))
    await gate.reached.wait()
    for value in (b"during", b"the", b"copy"):
        life.delete_records(life.partition().state.next_offset - 1)
        await life.write(value)
        await life.keep()
    gate.opened.set()
    await copying
    found = await restored(target)
    assert found == life.content(), "what was acknowledged before the last look is there as well"
    assert acknowledged[-1] not in life.values()


async def test_a_store_that_answers_late_or_not_at_all_is_asked_again() -> None:
    source, target = WatchedStore(), BackupStore(3)
    life = await prepared(source)
    for kind in ("late", "lost request", "lost answer"):
        target.arm(StoreFault(kind, chance=0.3))  # type: ignore[arg-type]
    await copied(source, target)
    await life.write(*names(9))
    await life.keep()
    await copied(source, target)
    assert target.fired["lost answer"] > 3
    assert await restored(twin(target)) == life.content()


@pytest.mark.parametrize("silent", [0, 1])
async def test_a_store_that_never_answers_is_named_after_a_while(silent: int) -> None:
    stores = WatchedStore(), BackupStore()
    await prepared(stores[0])
    stores[silent].arm(StoreFault("lost request"))
    with pytest.raises(Unsure, match="has not answered for 30 s"):
        await copied(*stores)


async def test_the_backup_of_another_log_is_never_written_over() -> None:
    source, other, target = WatchedStore(), WatchedStore(), BackupStore()
    life = await prepared(source)
    stranger = Life(other)
    stranger.cluster_id = "another cluster"
    await (await stranger.start()).write(*names(1))
    await copied(other, target)
    before = target.keys("")
    with pytest.raises(BrokenHistory, match="holds cluster another cluster, and this is cluster a cluster"):
        await copied(source, target)
    assert target.keys("") == before
    life.end()


async def test_a_log_that_went_back_or_another_way_does_not_replace_what_the_backup_has() -> None:
    source, target, young = WatchedStore(), BackupStore(), BackupStore()
    life = await prepared(source)
    await copied(source, young)
    await life.write(*names(9, 10))
    await copied(source, target)
    went_another_way = await Life(young).start()
    for _ in range(2):
        with pytest.raises(BrokenHistory, match="another log of this cluster, or a later one"):
            await copied(young, target)
        await went_another_way.write(*names(*range(60, 75)))
    assert await restored(target) == life.content()
    await life.keep()
    await copied(source, target)
    with pytest.raises(BrokenHistory, match="another log of this cluster, or a later one"):
        await copied(young, target)


async def test_a_log_that_misses_a_slot_is_not_taken_for_a_shorter_one() -> None:
    source, target = WatchedStore(), BackupStore()
    life = await prepared(source)
    await life.write(*names(9))
    await life.write(*names(10))
    source.objects.delete(key_of(life.reader.history.next_slot - 2))
    with pytest.raises(BrokenHistory, match="is gone"):
        await copied(source, target)


@pytest.mark.parametrize("is_flipped", [True, False])
async def test_what_the_log_has_lost_is_named_and_an_earlier_backup_keeps_it(is_flipped: bool) -> None:
    source, early, late = WatchedStore(), BackupStore(), BackupStore()
    life = await prepared(source)
    await life.keep()
    await copied(source, early)
    content = life.content()
    key = sorted(source.keys(SEGMENTS))[0]
    body = source.objects.get(key).body
    source.objects.delete(key)
    if is_flipped:
        source.objects.create(key, bytes(byte ^ 1 for byte in body))
    assert (await copied(source, early)).lost == []
    assert await restored(early) == content
    [line] = (await copied(source, late)).lost
    assert line.startswith(f"{key}: {'the checkpoint knows another digest' if is_flipped else 'it is gone'}")


@pytest.mark.parametrize("damage", ["cut", "emptied", "a bit"])
async def test_what_a_backup_has_lost_comes_from_the_log_again(damage: str) -> None:
    """It is named by nobody else, and would be missed when it is needed. A bit of records is for `semel dump`."""
    source, target = WatchedStore(), MemoryStore()
    life = await prepared(source)
    await copied(source, target)
    keys = [listed.key for listed in target.objects.list("")]
    lost = [key for key in keys if "/" in key and (damage != "a bit" or not key.startswith(SEGMENTS))]
    assert {key.partition("/")[0] for key in lost} >= {"checkpoints", "journal"}
    for key in lost:
        found = target.objects.get(key)
        half = len(found.body) // 2
        bit = found.body[:half] + bytes([found.body[half] ^ 1]) + found.body[half + 1 :]
        target.objects.replace(key, {"cut": found.body[:half], "emptied": b"", "a bit": bit}[damage], found.version)
    again = await copied(source, target)
    assert (again.lost, again.copied_bytes > 0) == ([], True)
    assert {key: target.objects.get(key).body for key in lost} == {key: source.objects.get(key).body for key in lost}
    assert await restored(target) == life.content()


def test_the_command_copies_the_log_of_a_running_broker_and_retries_after_a_restore_are_duplicates(
    tmp_path: Path,
) -> None:
    urls = [f"file://{tmp_path}/{name}" for name in ("log", "backup", "restored")]

    moments: list[str] = []

    async def live() -> None:
        store = open_store(urls[0])
        async with Broker(store=store) as broker:
            await asyncio.to_thread(pay, broker.bootstrap)
            lines = await asyncio.to_thread(semel_lines, "backup", "--from", urls[0], "--to", urls[1])
            assert lines[0].startswith("backed up 1 topic, 1 partition, ")
            assert lines[1].startswith("it has everything that was acknowledged before ")
            moments.append(lines[1])
        await store.close()

    def pay(bootstrap: str) -> None:
        with Asker(bootstrap) as asker:
            asker.create("payments")
            for sequence in range(6):
                asker.produce("payments", PAYMENT, producer_id=0, producer_epoch=0, base_sequence=sequence)

    def pay_again(bootstrap: str) -> int:
        with Asker(bootstrap) as asker:
            return asker.produce("payments", PAYMENT, producer_id=0, producer_epoch=0, base_sequence=5)

    async def go_on() -> None:
        store = open_store(urls[2])
        async with Broker(store=store) as broker:
            assert await asyncio.to_thread(pay_again, broker.bootstrap) == 5
        await store.close()

    asyncio.run(live())
    # A later time would promise what came after the backup.
    assert semel_lines("backup", "--from", urls[1], "--to", urls[2])[1:] == moments
    asyncio.run(go_on())
    assert "is no backup: a broker has been started on it" in semel_failure(
        "backup", "--from", urls[0], "--to", urls[2]
    )
    assert "./data is a directory. Copy it while its broker is stopped" in semel_failure(
        "backup", "--from", "./data", "--to", urls[1]
    )
    assert "no broker has kept a log there" in semel_failure(
        "backup", "--from", f"file://{tmp_path}/nothing", "--to", urls[1]
    )
