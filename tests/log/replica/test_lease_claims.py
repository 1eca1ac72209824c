"""When a broker claims the lease, and when it gives it back: a standby that is behind or full leaves it to others, and
nobody is let in before what was written is durable.
"""

import asyncio

import pytest

from leased_lives import LEASE_SECONDS, Active
from lives import WatchedStore, names
from semel.log.broker.broker import Broker
from semel.log.replica.lease import LEASE_KEY, LeaseWatch, decode_lease
from semel.log.replica.reader import SLOTS_PER_LOOK
from semel.log.replica.slot import JOURNAL, key_of
from semel.log.storage.files import MemoryFiles
from semel.log.store.contract import Buffer
from semel.testing.stores import MemoryStore
from small_disk import SmallDisk
from virtual_brokers import AtOnce, run


def test_a_standby_claims_the_lease_when_it_has_read_all() -> None:
    """Until then another one that is not behind would have to wait for it."""

    async def scenario() -> None:
        store = WatchedStore()
        first = await Active(store).start()
        await first.write_one_by_one(*names(*range(2 * SLOTS_PER_LOOK)))
        last = first.reader.history.next_slot - 1
        await first.stop()
        late = Active(store)
        await late.stand_by()
        store.calls.clear()
        await late.become_active()
        before_the_claim = store.calls[: store.calls.index(("replace", LEASE_KEY))]
        assert ("get", key_of(last)) in before_the_claim
        await late.stop()

    run(scenario())


def test_a_standby_without_room_leaves_the_lease_to_others() -> None:
    """It would claim and release it again and again, and another one that has room would not get it."""

    async def scenario() -> None:
        store, disk = WatchedStore(), SmallDisk(1_000_000)
        first = await Active(store).start()
        await first.write(*names(1))
        full = Active(store, files=disk, make_room=lambda _: None)
        await full.stand_by()
        disk.bytes_max = 0
        await first.stop()
        store.calls.clear()
        membership = full.member()
        standing_by = asyncio.ensure_future(membership.stand_by(lambda _: None))
        await asyncio.sleep(10 * LEASE_SECONDS)
        assert ("replace", LEASE_KEY) not in store.calls
        disk.bytes_max = 1_000_000
        await standing_by
        assert await membership.take_over() == 2

    run(scenario())


class HeldStore(MemoryStore):
    """Creates no slot once it is closed."""

    is_open = True

    async def create(self, key: str, body: Buffer) -> str:
        if key.startswith(JOURNAL) and not self.is_open:
            await asyncio.Event().wait()
        return await super().create(key, body)


def broker_on(store: MemoryStore) -> Broker:
    """A broker on the loop of the test, always at the same address."""
    return Broker(
        store=store,
        files=MemoryFiles(),
        host="a",
        port=1,
        insecure=True,
        boot_clock=asyncio.get_running_loop().time,
        disk_threads=AtOnce,
    )


def test_a_broker_that_is_started_again_at_once_does_not_take_itself_for_another() -> None:
    """The lease of the process that was killed still has its address. It would ask itself who is active."""

    async def scenario() -> None:
        store = MemoryStore()
        first = broker_on(store)
        await first.start()
        await first.kill()
        again = broker_on(store)
        await again.start()
        assert not again.role.is_active
        assert not again.role.is_another_active
        await again.activated
        await again.stop()

    run(scenario())


@pytest.mark.parametrize("is_open", [True, False])
def test_a_broker_that_stops_lets_another_one_in_at_once_if_all_that_it_wrote_is_durable(is_open: bool) -> None:
    """What it has sent may still arrive. A broker that began at once would fence it, and it was on its way in time."""

    async def scenario() -> None:
        store = HeldStore()
        broker = broker_on(store)
        await broker.start()
        store.is_open = is_open
        broker.log.new_producer_id(0)
        broker.pump.sync_soon()
        await broker.stop()
        assert decode_lease((await store.get(LEASE_KEY)).body).is_released == is_open
        watch = LeaseWatch(store)
        await watch.look(asyncio.get_running_loop().time)
        assert watch.is_over == is_open

    run(scenario())
