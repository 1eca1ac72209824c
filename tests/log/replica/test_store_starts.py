"""A broker that starts on a store, or stands by: it goes on from the newest checkpoint and from nothing else, and finds
out what is damaged, lost, deleted, or different on its own disk.
"""

import asyncio

import pytest

from lives import Gate, Life, WatchedStore, left, names, prepared
from semel.log.core.slots import DEPTH, BrokenHistory
from semel.log.replica.reader import Overtaken
from semel.log.replica.slot import digest_of, encode_head, key_of
from semel.log.storage.journal import Damaged

pytestmark = pytest.mark.virtual_time


async def test_a_new_machine_starts_from_the_checkpoint_and_what_came_after() -> None:
    store = WatchedStore()
    first = await Life(store).start()
    await first.write(*names(*range(20)))
    await first.keep()
    await first.write(*names(20, 21))
    store.calls.clear()
    second = await Life(store).start()
    assert second.content() == first.content()
    read = [key for call, key in store.calls if call == "get" and key.startswith("journal/")]
    assert read[0] == key_of(store.floor.slot), "nothing that the checkpoint covers is read again"


async def test_a_reader_that_a_deletion_has_overtaken_says_so_and_never_takes_over() -> None:
    """A slot that was deleted looks like one that is not there yet."""
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(1))
    standby = await Life(store).stand_by()
    await standby.catch_up()
    for number in range(3):
        await active.write(*names(number))
        await active.keep()
    with pytest.raises(Overtaken, match="start again"):
        await standby.reader.take_over()
    for number in range(3):
        # A fence that is nobody's may lie there by now.
        late = await Life(store).start()
        assert late.content() == active.content(), number


async def test_a_reader_that_a_deletion_has_overtaken_does_not_take_its_own_end_for_that_of_the_journal() -> None:
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(1))
    standby = await Life(store).stand_by()
    await standby.catch_up()
    for number in range(3):
        await active.write(*names(number))
        await active.keep()
    with pytest.raises(Overtaken, match="the journal was deleted from before slot"):
        await standby.reader.read_on(50)


async def test_a_reader_that_is_overtaken_between_its_look_at_the_floor_and_its_fence_takes_over_nothing() -> None:
    """Its fence lies among deleted slots, where nobody reads it: what it acknowledged would be lost."""
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(1))
    standby = await Life(store).stand_by()
    gate = Gate(store, "create", key_of(active.reader.history.next_slot))
    taking_over = asyncio.ensure_future(standby.reader.take_over())
    await gate.reached.wait()
    for number in range(3):
        for _ in range(2 * DEPTH):
            await active.write(*names(number))
        await active.keep()
    gate.opened.set()
    with pytest.raises(Overtaken, match="the journal was deleted from before slot"):
        await taking_over
    assert (await Life(store).start()).content() == active.content()


async def test_a_reader_that_was_overtaken_and_finds_a_slot_that_is_none_can_be_started_again() -> None:
    """A writer that was fenced long ago may still put something into a deleted slot. Nothing is damaged by that."""
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(1))
    standby = await Life(store).stand_by()
    await standby.catch_up()
    missing = standby.reader.history.next_slot
    for number in range(3):
        await active.write(*names(number))
        await active.keep()
    store.objects.create(key_of(missing), b"what a writer sent that was fenced long ago")
    with pytest.raises(Overtaken, match="start again"):
        await standby.reader.read_on(50)


async def test_a_standby_frees_its_disk_of_what_the_active_broker_deletes() -> None:
    """It would fill up before it is ever needed."""
    store = WatchedStore()
    active = await Life(store).start()
    standby = await Life(store).stand_by()
    await active.write(*names(*range(20)))
    await standby.catch_up()
    directory = standby.partition().directory
    before = standby.files.names(directory)
    active.delete_records(18)
    await active.settle()
    await standby.catch_up()
    assert 1 <= len(standby.files.names(directory)) < len(before) / 2
    await standby.take_over()
    assert standby.content() == active.content()


async def test_a_fence_among_deleted_slots_is_nobodys() -> None:
    """Neither for the reader that has put it there, nor for another one that is as far behind."""
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(1))
    late = [await Life(store).stand_by() for _ in range(2)]
    for life in late:
        await life.catch_up()
    missing = late[0].reader.history.next_slot
    for number in range(3):
        await active.write(*names(number))
        await active.keep()
    # What a reader sends that has looked at the floor before.
    head = late[0].reader.history.fence(bytes(16), bytes(16))
    store.objects.create(key_of(missing), encode_head(head._replace(body_digest=digest_of([]))))
    for life in late:
        with pytest.raises(Overtaken):
            await life.reader.take_over()
    await active.write(*names(9))
    await active.keep()
    assert missing not in left(store), "the next checkpoint removes it"


async def test_a_standby_that_keeps_up_is_not_overtaken() -> None:
    """What the newest checkpoint covers stays until there is another one."""
    store = WatchedStore()
    active = await Life(store).start()
    standby = await Life(store).stand_by()
    for number in range(6):
        await active.write(*names(number))
        await active.keep()
        await standby.catch_up()
    await standby.take_over()
    assert standby.content() == active.content()
    await standby.write(*names(7))
    await standby.keep()
    assert (await Life(store).start()).content() == standby.content()


async def test_files_that_differ_from_those_of_the_broker_before_are_uploaded_again() -> None:
    """Each broker compacts by itself, so a file of the same name may have other bytes."""
    store = WatchedStore()
    first = await Life(store).start()
    standby = await Life(store).stand_by()
    await first.write(*names(1, 2, 3, 4, 5))
    await first.keep()
    await standby.catch_up()
    await standby.take_over()
    path = standby.partition().segments[0].path
    file = standby.files.open(path)
    mark = file.size()
    file.write_at([b"another end"], mark - 5)
    await standby.keep()
    third = await Life(store).start()
    copy = third.files.open(path)
    assert copy.read_at(copy.size(), 0) == file.read_at(file.size(), 0)
    untouched = standby.partition().segments[1].path
    assert {e.key for e in third.beginning.contents.files[untouched]} <= set(first.checkpoints._contents.objects)


async def test_a_broker_that_starts_again_on_its_cache_fetches_only_what_it_lacks() -> None:
    store = WatchedStore()
    first = await Life(store).start()
    await first.write(*names(1, 2, 3))
    await first.keep()
    first.end()
    store.calls.clear()
    again = await Life(store, first.files).start()
    assert not [key for call, key in store.calls if call == "get" and key.startswith("segments/")]
    assert again.content() == (await Life(store).start()).content()
    damaged = again.files.open(again.partition().segments[0].path)
    damaged.write_at([b"?"], 70)
    assert (await Life(store, again.files).start()).content() == (await Life(store).start()).content()


async def test_a_newcomer_that_newer_checkpoints_overtake_goes_on_with_them() -> None:
    store = WatchedStore()
    active = await prepared(store)
    gate = Gate(store, "get", "checkpoints/")
    newcomer = asyncio.ensure_future(Life(store).stand_by())
    await gate.reached.wait()
    for number in range(4):
        active.delete_records(5 + number)
        await active.write(*names(40 + number))
        await active.keep()
    gate.opened.set()
    late = await newcomer
    assert late.beginning.floor == store.floor
    await late.take_over()
    assert late.content() == active.content()


async def test_a_newcomer_that_is_overtaken_after_it_has_read_the_checkpoint_goes_on_with_the_newest() -> None:
    """All that its checkpoint names is still there, but not the slots behind it."""
    store = WatchedStore()
    active = await Life(store).start()
    await active.write(*names(*range(12)))
    await active.keep()
    before, named = store.floor, store.needed() & store.keys("segments")
    # It looks at the floor at first, and once more in the end.
    gate = Gate(store, "get", "floor", number=2)
    newcomer = asyncio.ensure_future(Life(store).stand_by())
    await gate.reached.wait()
    for number in range(3):
        await active.write(*names(40 + number))
        await active.keep()
    assert before.slot < store.floor.deleted_below
    assert named <= store.keys("segments")
    gate.opened.set()
    late = await newcomer
    assert late.beginning.floor == store.floor
    await late.take_over()
    assert late.content() == active.content()


async def test_what_a_cache_has_behind_the_end_of_a_file_is_cut() -> None:
    """It was never durable, or belongs to another file of that name; a checkpoint would upload it."""
    store = WatchedStore()
    first = await Life(store).start()
    await first.write(*names(1, 2, 3, 4))
    await first.keep()
    path = first.partition().segments[-1].path
    await first.write(*names(5))
    first.end()
    again = await Life(store, first.files).stand_by()
    end = max(extent.position + extent.size for extent in again.beginning.contents.files[path])
    assert again.files.open(path).size() == end


@pytest.mark.parametrize("folder", ["segments", "checkpoints"])
async def test_a_damaged_or_lost_object_is_named_and_refused(folder: str) -> None:
    store = WatchedStore()
    await prepared(store)
    key = min(store.needed() & store.keys(folder))
    body, version = store.objects.get(key)
    changed = bytearray(body)
    changed[len(body) // 2] ^= 1
    version = store.objects.replace(key, bytes(changed), version)
    with pytest.raises((BrokenHistory, Damaged), match=f"{key} is damaged"):
        await Life(store).start()
    store.objects.delete(key)
    with pytest.raises((BrokenHistory, Damaged), match=f"{key} is (not in memory|gone).* [Pp]ut it back"):
        await Life(store).start()


@pytest.mark.parametrize("key", ["floor", "format"])
async def test_a_store_that_has_lost_what_stands_in_it_from_the_beginning_is_refused(key: str) -> None:
    """To begin again would put a new log over the old one."""
    store = WatchedStore()
    await prepared(store)
    store.objects.delete(key)
    with pytest.raises(BrokenHistory, match=f"'{key}' was there and is gone"):
        await Life(store).start()
