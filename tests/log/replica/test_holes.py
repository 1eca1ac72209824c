"""A slot that was acknowledged and is gone is named before anything is written, and when it is put back all is there.

The brokers are real ones on a store in memory: they start, serve, and are killed or stopped.
"""

import asyncio
import contextlib
import re

import pytest

from asking import asking
from leased_lives import Active, killed, leave
from lives import Life, WatchedStore, names
from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFailed
from semel.log.core.slots import DEPTH, BrokenHistory, Evidence
from semel.log.replica.examination import examine_store
from semel.log.replica.holes import Hole, Overtaken, fence_behind
from semel.log.replica.lease import LEASE_KEY, decode_lease, read_lease
from semel.log.replica.note import FOLDER
from semel.log.replica.slot import decode_head, digest_of, encode_head, key_of, slot_of
from semel.testing.stores import MemoryStore


def needed_slots(store: WatchedStore) -> list[int]:
    """The slots that a start reads."""
    slots = sorted(slot for key in store.keys("journal") if (slot := slot_of(key)) is not None)
    return [slot for slot in slots if slot >= store.floor.slot]


def objects(store: MemoryStore) -> dict[str, bytes]:
    """All but the notes in which standbys say where they are."""
    keys = [listed.key for listed in store.objects.list("") if not listed.key.startswith(FOLDER)]
    return {key: store.objects.get(key).body for key in keys}


@pytest.mark.virtual_time
@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("is_old", [False, True], ids=["young", "old"])
async def test_every_slot_that_is_gone_is_named_nothing_is_written_and_put_back_all_is_there(
    is_clean: bool, is_old: bool
) -> None:
    store = WatchedStore()
    values = await killed(store, is_clean=is_clean, is_old=is_old)
    slots = needed_slots(store)
    assert len(slots) >= 6
    for slot in slots:
        body = store.objects.get(key_of(slot)).body
        store.objects.delete(key_of(slot))
        before = objects(store)
        with pytest.raises(BrokenHistory, match=f"{key_of(slot)} is gone: .* Put {key_of(slot)} back"):
            await Active(store).start()
        assert objects(store) == before
        store.objects.create(key_of(slot), body)
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
@pytest.mark.parametrize("count", [1, 3, DEPTH, DEPTH + 3])
async def test_a_row_of_slots_that_are_gone_is_noticed_however_long_it_is(count: int) -> None:
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(*range(20)))
    active.kill()
    await asyncio.sleep(3.5)
    # The lease would tell, too.
    store.objects.delete(LEASE_KEY)
    for slot in range(7, 7 + count):
        store.objects.delete(key_of(slot))
    with pytest.raises(BrokenHistory, match=f"{key_of(7)} is gone: {key_of(23)} says"):
        await Active(store).start()


@pytest.mark.virtual_time
async def test_slots_that_were_under_way_when_their_broker_died_are_no_hole() -> None:
    """It had sent four, and the first never came: none of them was acknowledged."""
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(1, 2))
    values = active.values()
    first = active.writer.next_slot
    for number in range(DEPTH):
        active.append(b"under way %d" % number)
        active.writer.begin(lambda *_: None)
    await asyncio.sleep(1.5)
    bodies = {slot: store.objects.get(key_of(slot)).body for slot in range(first, first + DEPTH)}
    active.kill()
    for slot in range(first, first + DEPTH):
        store.objects.delete(key_of(slot))
    # Nobody had been told of them.
    lease = decode_lease(store.objects.get(LEASE_KEY).body)._replace(created_below=first)
    store.objects.replace(LEASE_KEY, lease.encode(), store.objects.get(LEASE_KEY).version)
    for slot in range(first + 1, first + DEPTH):
        head_says_nothing = bodies[slot]
        store.objects.create(key_of(slot), head_says_nothing)
    await asyncio.sleep(3.5)
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
async def test_the_newest_slot_that_is_gone_is_known_from_the_lease() -> None:
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=False)
    store.objects.delete(key_of(max(needed_slots(store))))
    with pytest.raises(BrokenHistory, match="the lease says that all slots below 10 were created"):
        await Active(store).start()


@pytest.mark.virtual_time
async def test_what_the_lease_knew_is_handed_on_by_a_broker_that_died_while_it_took_over() -> None:
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=False)
    other = await Active(store).stand_by()
    await other.member().stand_by(lambda _: None)
    # It has claimed the lease, and dies before its fence.
    other.end()
    await asyncio.sleep(3.5)
    store.objects.delete(key_of(9))
    with pytest.raises(BrokenHistory, match=f"{key_of(9)} is gone"):
        await Active(store).start()


@pytest.mark.virtual_time
async def test_a_standby_tells_of_a_hole_waits_and_follows_when_the_slot_is_back() -> None:
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(*range(6)))
    body = store.objects.get(key_of(6)).body
    store.objects.delete(key_of(6))
    standby = await Active(store).stand_by()
    following = asyncio.get_running_loop().create_task(standby.member().stand_by(lambda _: None))
    await asyncio.sleep(5)
    assert [re.sub(": .*", "", str(hole)[8:]) for hole in standby.holes] == [f"{key_of(6)} is gone"]
    store.objects.create(key_of(6), body)
    await asyncio.sleep(1)
    assert standby.reader.history.next_slot == active.writer.next_slot
    following.cancel()
    active.kill()


@pytest.mark.virtual_time
async def test_a_standby_does_not_take_over_at_a_hole() -> None:
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(*range(6)))
    store.objects.delete(key_of(6))
    standby = await Active(store).stand_by()
    following = asyncio.get_running_loop().create_task(standby.member().stand_by(lambda _: None))
    await asyncio.sleep(2)
    active.kill()
    with pytest.raises(BrokenHistory, match=f"{key_of(6)} is gone"):
        await following


@pytest.mark.virtual_time
async def test_a_hole_that_a_checkpoint_has_covered_since_costs_nothing() -> None:
    """The active broker had all in memory. A standby begins again with its checkpoint."""
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(*range(6)))
    store.objects.delete(key_of(6))
    await active.keep()
    values = active.values()
    active.kill()
    await asyncio.sleep(3.5)
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
@pytest.mark.parametrize("slot", [5, 8, 9], ids=["the second", "the last but one", "the newest"])
async def test_who_is_sure_takes_over_at_the_hole_and_what_was_behind_it_stays_in_the_store(slot: int) -> None:
    store = WatchedStore()
    values = await killed(store, is_clean=False, is_old=False)
    store.objects.delete(key_of(slot))
    rest = {key: body for key, body in objects(store).items() if key > key_of(slot)}
    with pytest.raises(BrokenHistory, match=f"--accept-loss {key_of(slot)}"):
        await Active(store, key_of(slot - 1)).start()
    sure = await Active(store, key_of(slot)).start()
    assert [hole.slot for hole in sure.holes] == [slot, slot]
    assert sure.values() == values[: slot - DEPTH]
    await sure.write_one_by_one(*names(*range(50, 56)))
    for _ in range(3):
        await sure.keep()
        await sure.write_one_by_one(*names(60, 61))
    values = sure.values()
    sure.kill()
    assert {key: store.objects.get(key).body for key in rest if key.startswith("journal")} == {
        key: body for key, body in rest.items() if key.startswith("journal")
    }
    await asyncio.sleep(3.5)
    # From now on nobody needs the flag.
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
async def test_who_has_claimed_the_lease_does_not_fence_in_a_hole_that_has_come_since() -> None:
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=False)
    late = await Active(store).stand_by()
    assert await late.reader.find_hole(await read_lease(store)) is None
    store.objects.delete(key_of(6))
    before = objects(store)
    with pytest.raises(BrokenHistory, match=f"{key_of(6)} is gone"):
        await late.reader.take_over(lease=await read_lease(store))
    assert objects(store) == before


@pytest.mark.virtual_time
async def test_a_slot_behind_a_hole_is_a_witness_though_it_is_damaged() -> None:
    """By its place: it was sent when all but the last few before it had been created."""
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=False)
    store.objects.delete(LEASE_KEY)
    for slot in range(5, 10):
        store.objects.delete(key_of(slot))
    store.objects.create(key_of(9), b"damaged")
    with pytest.raises(BrokenHistory, match=f"{key_of(5)} is gone: {key_of(9)} says that all slots below 6"):
        await Active(store).start()


@pytest.mark.virtual_time
async def test_the_epoch_of_the_fence_behind_a_hole_is_above_that_of_every_fence_before_it() -> None:
    """Also of one that no witness has named, as where a listing misses what has just come."""
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=False)
    await leave(await Active(store).start(), is_clean=False)
    slot = max(needed_slots(store))
    assert decode_head(slot, store.objects.get(key_of(slot)).body).epoch == 2
    hole = Hole(store.describe(), 6, Evidence(slot, 1, "the lease"), "All is lost")
    fence = await fence_behind(store, hole, bytes(16))
    assert (fence.slot, fence.epoch) == (slot + DEPTH, 3)


@pytest.mark.virtual_time
async def test_the_broker_that_still_writes_behind_a_hole_is_fenced_before_the_hole_is_given_up() -> None:
    store = WatchedStore()
    old = await Active(store).start()
    await old.write_one_by_one(*names(*range(8)))
    old.renew_no_more()
    store.objects.delete(key_of(6))
    await asyncio.sleep(3.5)
    sure = await Active(store, key_of(6)).start()
    with pytest.raises(BaseException, match="another broker has taken over"):
        await old.write(b"nobody must acknowledge this")
    await sure.write_one_by_one(*names(*range(20)))
    values = sure.values()
    for life in (old, sure):
        life.kill()
    await asyncio.sleep(3.5)
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
@pytest.mark.parametrize("last", ["a record", "a fence"])
async def test_a_slot_that_comes_back_between_the_two_fences_of_who_was_sure_loses_nothing(last: str) -> None:
    """It died after the fence behind the rest. Then the slot is put back, and the journal is whole."""
    store = WatchedStore()
    values = await killed(store, is_clean=False, is_old=False)
    if last == "a fence":
        await leave(await Active(store).start(), is_clean=False)
    body = store.objects.get(key_of(6)).body
    store.objects.delete(key_of(6))
    sure = await Active(store, key_of(6)).stand_by()
    await sure.catch_up()
    # The lease knows of more slots than the objects in the store do.
    hole = await sure.reader.find_hole(await read_lease(store))
    assert hole is not None
    fence = await sure.reader._fence_rest(hole, bytes(16))
    store.objects.create(key_of(6), body)
    again = await Active(store).start()
    assert (again.values(), again.reader.history.epoch) == (values, fence.epoch + 1)
    again.kill()


@pytest.mark.virtual_time
async def test_a_fence_that_replaced_what_was_acknowledged_is_not_believed() -> None:
    """The slot was removed after the broker had looked, and before its fence came."""
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(1))
    late = await Active(store).stand_by()
    await late.catch_up()
    await active.write_one_by_one(*names(2, 3))
    active.kill()
    slot = late.reader.history.next_slot
    body = store.objects.get(key_of(slot)).body

    async def remove() -> bool:
        store.objects.delete(key_of(slot))
        return True

    # The reader goes on from where it was, as if it had not seen what came since.
    late.reader._read_next = lambda _: asyncio.sleep(0, False)  # type: ignore[method-assign, assignment]
    with contextlib.suppress(BrokenHistory):
        found = late.reader.find_hole
        late.reader.find_hole = lambda _: asyncio.sleep(0, None)  # type: ignore[method-assign, assignment]
        await late.reader.take_over(remove)
        raise AssertionError("it is active")
    late.reader.find_hole = found  # type: ignore[method-assign]
    with pytest.raises(BrokenHistory, match=f"{key_of(slot)} is the fence of epoch 2.*Replace"):
        await Active(store).start()
    store.objects.delete(key_of(slot))
    store.objects.create(key_of(slot), body)
    again = await Life(store).start()
    assert len(again.values()) == 3
    again.end()


@pytest.mark.virtual_time
async def test_a_fence_that_replaced_a_slot_is_not_believed_though_only_the_last_possible_slot_says_so() -> None:
    """The slots that were sent together with it could not know whether it was created."""
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(1))
    late = await Active(store).stand_by()
    await late.catch_up()
    fence = late.reader.history.fence(bytes(16), digest_of([]))
    for value in names(*range(DEPTH)):
        active.append(value)
        active.writer.begin(lambda *_: None)
    assert active.writer.is_busy
    await active.settle()
    await active.write_one_by_one(*names(9))
    active.kill()
    heads = [decode_head(slot, store.objects.get(key_of(slot)).body) for slot in range(fence.slot, fence.slot + 5)]
    assert [head.created_below > fence.slot for head in heads] == [False] * DEPTH + [True]
    store.objects.delete(key_of(fence.slot))
    store.objects.create(key_of(fence.slot), encode_head(fence))
    with pytest.raises(BrokenHistory, match=f"{key_of(fence.slot)} is the fence of epoch 2.*Replace"):
        await Active(store).start()
    found = await examine_store(store)
    assert found.examined.stopped is not None
    assert f"{key_of(fence.slot)} is the fence of epoch 2" in found.examined.stopped


@pytest.mark.virtual_time
async def test_a_standby_at_a_hole_that_the_newest_checkpoint_covers_begins_again_from_that() -> None:
    """The slots behind the hole may not be deleted yet: the checkpoint before needs them."""
    store = WatchedStore()
    active = await Active(store).start()
    await active.write_one_by_one(*names(1))
    late = await Active(store).stand_by()
    await late.catch_up()
    await active.write_one_by_one(*names(2, 3))
    slot = late.reader.history.next_slot
    store.objects.delete(key_of(slot))
    await active.keep()
    assert store.floor.deleted_below <= slot < store.floor.slot
    with pytest.raises(Overtaken, match="a checkpoint covers it: start again"):
        await late.reader.find_hole(None)
    values = active.values()
    active.kill()
    await asyncio.sleep(3.5)
    again = await Active(store).start()
    assert again.values() == values
    again.kill()


@pytest.mark.virtual_time
async def test_a_dump_finds_a_hole() -> None:
    store = WatchedStore()
    await killed(store, is_clean=False, is_old=True)
    slot = needed_slots(store)[2]
    store.objects.delete(key_of(slot))
    found = await examine_store(store)
    assert found.examined.stopped is not None
    assert f"{key_of(slot)} is gone" in found.examined.stopped


@pytest.mark.virtual_time
async def test_a_lease_of_another_cluster_is_named() -> None:
    store = WatchedStore()
    await killed(store, is_clean=True, is_old=False)
    content, version = store.objects.get(LEASE_KEY)
    store.objects.replace(LEASE_KEY, decode_lease(content)._replace(cluster_id="other").encode(), version)
    with pytest.raises(BrokenHistory, match="'lease' is that of cluster other"):
        await Active(store).start()


async def test_a_whole_broker_refuses_to_start_at_a_hole_and_leaves_the_journal_alone() -> None:
    store = MemoryStore()
    async with Broker(store=store) as broker:
        await asking(broker, lambda asker: asker.create("payments"))
    before = {key: body for key, body in objects(store).items() if key.startswith("journal")}
    newest = max(before)
    store.objects.delete(newest)
    with pytest.raises((BrokenHistory, BrokerFailed), match=f"{newest} is gone"):
        await Broker(store=store).start()
    store.objects.create(newest, before[newest])
    async with Broker(store=store) as broker:
        assert broker.log.state.catalog.named("payments") is not None
    assert {key: objects(store)[key] for key in before} == before
