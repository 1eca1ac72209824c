"""Checkpoints in a store: a broker starts from the newest one, what nobody needs goes, and whatever dies or comes late
meanwhile, nothing that was acknowledged is lost.
"""

import asyncio
from itertools import count

import pytest

from lives import Gate, Life, WatchedStore, left, names, prepared, run
from semel.log.core.slots import BrokenHistory
from semel.log.replica.floor import FLOOR_KEY
from semel.log.replica.writer import Fenced
from semel.log.store import Changed, StoreRefused
from semel.testing.stores import StoreFault

pytestmark = pytest.mark.virtual_time


def slots(store: WatchedStore) -> int:
    return len(store.keys("journal"))


async def test_a_store_does_not_grow_with_what_was_written_and_is_gone() -> None:
    """Twenty rounds of records that are deleted again, and as many slots: it ends as large as after the third."""
    store = WatchedStore()
    life = await Life(store).start()
    sizes = []
    for number in range(20):
        await life.write(*names(*range(10)), index=number % 2)
        life.delete_records(life.partition(number % 2).state.next_offset, number % 2)
        await life.settle()
        await life.keep()
        sizes.append(sum(listed.size_bytes for listed in store.objects.list("")))
    assert max(sizes) <= 1.5 * max(sizes[:3])
    assert (await Life(store).start()).content() == life.content()


def stopped_everywhere() -> int:
    """How many calls a checkpoint makes, with all that is deleted after it."""
    made = 0

    async def scenario() -> None:
        nonlocal made
        life = await prepared(WatchedStore())
        before = len(life.store.calls)
        await life.keep()
        made = len(life.store.calls) - before

    run(scenario())
    return made


def test_a_crash_between_any_two_calls_loses_nothing_and_leaves_garbage_that_goes_later() -> None:
    """Whether the last call happened or not."""
    calls = stopped_everywhere()
    assert calls >= 8

    async def scenario(number: int, answers_last: bool) -> None:
        store = WatchedStore()
        life = await prepared(store)
        content = life.content()
        store.stops_at, store.answers_last = len(store.calls) + number, answers_last
        keeping = asyncio.ensure_future(life.keep())
        while len(store.calls) <= store.stops_at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        keeping.cancel()
        life.end()
        store.stops_at = None
        successor = await Life(store).start()
        assert successor.content() == content
        for value in names(9, 10):
            await successor.write(value)
            await successor.keep()
        # Those of the checkpoint before are there as well.
        before = store.needed()
        await successor.keep()
        assert store.keys("segments") | store.keys("checkpoints") == before | store.needed()
        assert all(slot >= store.floor.deleted_below or slot in successor.reader.history.fences for slot in left(store))
        assert (await Life(store).start()).content() == successor.content()

    for number in range(calls):
        run(scenario(number, answers_last=False))
        run(scenario(number, answers_last=True))


async def test_the_floor_waits_until_all_that_the_checkpoint_covers_is_durable() -> None:
    """Or a successor would start from what its predecessor had only in memory."""
    store = WatchedStore()
    life = await Life(store).start()
    await life.write(*names(1))
    gate = Gate(store, "create", "journal/")
    life.append(b"under way")
    life.writer.begin(lambda *_: None)
    keeping = asyncio.ensure_future(life.keep())
    await asyncio.sleep(10)
    assert store.floor.slot == 0
    gate.opened.set()
    await life.settle()
    await keeping
    assert store.floor.slot == life.reader.history.next_slot
    # The slot ended where the checkpoint was begun, and the next one begins there.
    await life.write(*names(2))
    assert (await Life(store).start()).content() == life.content()


async def test_what_is_appended_while_a_checkpoint_is_begun_is_in_a_slot_behind_it() -> None:
    """It would be there twice, or not at all, if one slot held what is before the checkpoint and what is behind it."""
    store = WatchedStore()
    life = await Life(store).start()
    life.append(b"before")
    keeping = asyncio.ensure_future(life.keep())
    await asyncio.sleep(0)
    life.append(b"behind")
    await life.settle()
    await keeping
    assert store.floor.slot == life.reader.history.next_slot - 1
    assert (await Life(store).start()).content() == life.content()


@pytest.mark.parametrize(("call", "beginning"), [("create", "segments/"), ("replace", FLOOR_KEY), ("delete", "")])
async def test_a_broker_that_was_replaced_in_the_middle_of_a_checkpoint_takes_nothing_from_its_successor(
    call: str, beginning: str
) -> None:
    """It stands still before it creates, names or deletes, and goes on when another one has kept checkpoints."""
    store = WatchedStore()
    zombie = await prepared(store)
    gate = Gate(store, call, beginning)
    keeping = asyncio.ensure_future(zombie.keep())
    await gate.reached.wait()
    active = await Life(store).start()
    for number in range(2):
        await active.write(*names(20 + number))
        await active.keep()
    gate.opened.set()
    if call == "delete":
        await keeping
    else:
        with pytest.raises(Fenced, match="another broker has taken over"):
            await keeping
    store.check()
    assert (await Life(store).start()).content() == active.content()


async def test_a_broker_that_was_replaced_deletes_nothing_of_its_successor() -> None:
    """Objects that no floor names yet are those of a checkpoint that is about to be named."""
    store = WatchedStore()
    zombie = await prepared(store)
    raised = Gate(store, "get", FLOOR_KEY, number=2)
    keeping = asyncio.ensure_future(zombie.keep())
    await raised.reached.wait()
    active = await Life(store).start()
    await active.write(*names(30, 31))
    uploaded = Gate(store, "create", "checkpoints/")
    own = asyncio.ensure_future(active.keep())
    await uploaded.reached.wait()
    raised.opened.set()
    await keeping
    uploaded.opened.set()
    await own
    store.check()
    assert (await Life(store).start()).content() == active.content()


async def test_what_the_checkpoint_before_names_stays_until_there_is_another() -> None:
    """A newcomer may be reading it."""
    store = WatchedStore()
    life = await prepared(store)
    before = store.needed()
    await life.keep()
    assert before <= store.keys("")
    await life.write(*names(9))
    await life.keep()
    assert not before & store.keys("checkpoints")


async def test_a_broker_that_was_replaced_may_still_raise_the_floor_before_its_successor_does() -> None:
    """What it names then is true, and the successor builds on that one."""
    store = WatchedStore()
    zombie = await prepared(store)
    gate = Gate(store, "replace", FLOOR_KEY)
    keeping = asyncio.ensure_future(zombie.keep())
    await gate.reached.wait()
    active = await Life(store).start()
    await active.write(*names(30))
    second = Gate(store, "create", "checkpoints/")
    own = asyncio.ensure_future(active.keep())
    await second.reached.wait()
    gate.opened.set()
    await keeping
    assert store.floor.epoch == 1
    second.opened.set()
    await own
    assert store.floor.epoch == 2
    store.check()
    assert (await Life(store).start()).content() == active.content()


async def test_a_store_that_refuses_to_delete_is_told_of_and_keeps_the_log() -> None:
    class Kept(WatchedStore):
        async def delete(self, key: str) -> None:
            raise StoreRefused("no right to delete")

    store = Kept()
    life = await prepared(store)
    await life.keep()
    assert set(life.told) == {"no right to delete"}
    assert (await Life(store).start()).content() == life.content()


@pytest.mark.parametrize("name", ["{} (copy)", "{}.bak", "{}/", "00000001-\u00e9", "\u00b2", ""])
@pytest.mark.parametrize("folder", ["segments", "checkpoints", "journal"])
async def test_what_a_person_has_put_among_the_objects_stays_and_ends_no_broker(folder: str, name: str) -> None:
    """A copy made by hand, or the folder that the console of a bucket makes: not every key is one of the contract."""
    store = WatchedStore()
    life = await prepared(store)
    key = f"{folder}/{name.format(sorted(store.keys(folder))[0].partition('/')[2])}"
    store.objects.create(key, b"by hand")
    await life.keep()
    await life.keep()
    assert store.objects.get(key).body == b"by hand"
    assert not life.told


async def test_a_lost_answer_to_the_floor_is_not_the_loss_of_the_log() -> None:
    store = WatchedStore()
    life = await prepared(store)
    store.arm(StoreFault("lost answer", call="replace", key=FLOOR_KEY, times=2))
    await life.keep()
    assert store.fired["lost answer"] == 1 or store.fired["lost answer"] == 2
    assert store.floor.slot == life.reader.history.next_slot


def test_on_a_bad_network_with_a_crash_in_every_life_nothing_is_lost() -> None:
    """Calls that come late, twice, never or without an answer, and listings of a moment ago."""
    fired: set[str] = set()

    async def scenario(seed: int) -> None:
        store = WatchedStore(seed)
        for kind in ("late", "lost request", "lost answer", "conflict", "throttled", "slow", "landed again"):
            store.arm(StoreFault(kind, chance=0.04))  # type: ignore[arg-type]
        store.arm(StoreFault("stale list", chance=0.5))
        numbers = count()
        content, lost = None, None
        for turn in range(5):
            life = await Life(store).start()
            assert lost is not None or content is None or life.content() == content
            for step in range(4):
                await life.write(*names(next(numbers), next(numbers)), index=step % 2)
                if step == 2:
                    life.delete_records(life.partition().state.next_offset - 1)
                    await life.settle()
                if step % 2 == seed % 2:
                    await life.keep()
            content = life.content()
            keeping = asyncio.ensure_future(life.keep())
            await asyncio.sleep(store._random.uniform(0, 0.1) * turn)
            keeping.cancel()
            life.end()
        store.calm()
        store.check()
        assert (await Life(store).start()).content() == content
        fired.update(store.fired)

    for seed in range(12):
        run(scenario(seed))
    assert len(fired) == 8, fired


async def test_two_that_raise_the_floor_at_once_do_not_both_succeed() -> None:
    """The store decides, and the floor never falls."""
    store = WatchedStore()
    life = await prepared(store)
    floor, version = store.floor, store.objects.get(FLOOR_KEY).version
    await life.keep()
    with pytest.raises(Changed):
        await store.replace(FLOOR_KEY, floor.encode(), version)


async def test_a_standby_that_takes_over_names_the_checkpoint_that_is_gone_and_writes_none_over_it() -> None:
    """It has never seen which objects that checkpoint names, so it does not know what may be deleted."""
    store = WatchedStore()
    active = await prepared(store)
    standby = await Life(store).stand_by()
    await active.keep()
    await standby.catch_up()
    assert standby.reader.floor is not None
    (piece,) = store.floor.pieces
    store.objects.delete(piece.key)
    await standby.checkpoints.follow(standby.reader.floor)
    await standby.take_over()
    await standby.write(*names(9))
    with pytest.raises(BrokenHistory, match=f"{piece.key} .* the object 'floor' names it: put it back"):
        await standby.keep()
