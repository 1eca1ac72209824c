"""The log in a store is read without becoming a broker on it: the state that a standby would have, as far as it can."""

import random

import pytest

from lives import Life, WatchedStore, prepared, run
from semel.log.core.slots import BrokenHistory
from semel.log.replica.examination import ExaminedStore, examine_store, objects_of, slots_of
from semel.log.replica.slot import Slot, key_of
from semel.log.store import Missing
from semel.log.store.contract import Found

pytestmark = pytest.mark.virtual_time


def ends(found: ExaminedStore) -> list[int]:
    return [holder.state.next_offset for holder in found.examined.state.partitions.all()]


async def test_the_state_is_that_of_a_broker_and_nothing_is_changed() -> None:
    store = WatchedStore()
    life = await prepared(store)
    store.calls.clear()
    found = await examine_store(store)
    assert found.examined.stopped is None
    assert found.cluster_id == "a cluster"
    assert ends(found) == [8, 6]
    assert found.history.next_slot == life.writer.next_slot
    assert found.floor == store.floor
    slots = [read async for _, read in slots_of(store)]
    assert all(isinstance(read, Slot) for read in slots)
    objects = [checked async for checked in objects_of(store, found.contents)]
    assert {checked.key for checked in objects} <= store.needed()
    assert [checked.trouble for checked in objects] == [""] * len(objects) != []
    assert {call for call, _ in store.calls} == {"get", "get_range"}


async def test_a_damaged_slot_is_named_and_all_before_it_is_shown() -> None:
    store = WatchedStore()
    life = await prepared(store)
    await life.write(b"more")
    slot = life.writer.next_slot - 1
    body, version = store.objects.get(key_of(slot))
    store.objects.replace(key_of(slot), body[:-1] + b"?", version)
    found = await examine_store(store)
    assert found.examined.stopped == f"slot {slot} is damaged: the digest does not match its entries"
    assert ends(found) == [8, 6]
    [damage] = [read async for key, read in slots_of(store) if key == key_of(slot)]
    assert isinstance(damage, BrokenHistory)


async def test_a_damaged_or_lost_object_of_the_checkpoint_is_named() -> None:
    store = WatchedStore()
    await prepared(store)
    found = await examine_store(store)
    damaged, gone = sorted(found.contents.objects)[:2]
    body, version = store.objects.get(damaged)
    store.objects.replace(damaged, b"?" + body[1:], version)
    store.objects.delete(gone)
    troubles = {each.key: each.trouble async for each in objects_of(store, found.contents) if each.trouble}
    assert troubles.keys() == {damaged, gone}
    assert "another digest" in troubles[damaged]
    assert troubles[gone] == "it is gone"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged_examining_comes_to_an_end(seed: int) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        store = WatchedStore()
        await prepared(store)
        for key in chance.sample(sorted(store.keys("")), 2):
            body, version = store.objects.get(key)
            if chance.random() < 0.3:
                store.objects.delete(key)
                continue
            changed = bytearray(body[: chance.randrange(len(body) + 1)] if chance.random() < 0.3 else body)
            if changed:
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            store.objects.replace(key, bytes(changed), version)
        try:
            found = await examine_store(store)
        except (BrokenHistory, Missing):
            return
        assert found.examined.stopped is None or "\n" not in found.examined.stopped
        [_ async for _ in slots_of(store)]
        [_ async for _ in objects_of(store, found.contents)]

    run(scenario())


class MovingStore(WatchedStore):
    """Its broker keeps two checkpoints, and deletes what they cover, while somebody reads the first slot after one."""

    def __init__(self) -> None:
        super().__init__()
        self.broker: Life | None = None

    async def get(self, key: str) -> Found:
        broker, self.broker = self.broker, None
        if broker is not None and key.startswith("journal/"):
            for number in range(2):
                await broker.write(b"late %d" % number)
                await broker.keep()
        elif broker is not None:
            self.broker = broker
        return await super().get(key)


async def test_who_is_overtaken_by_a_deletion_begins_again() -> None:
    store = MovingStore()
    store.broker = await prepared(store)
    found = await examine_store(store)
    assert store.broker is None, "it was overtaken"
    assert found.examined.stopped is None
    assert ends(found) == [10, 6]


async def test_where_no_broker_was_there_is_nothing() -> None:
    with pytest.raises(Missing, match="no broker was ever here"):
        await examine_store(WatchedStore())
