"""Who asks a broker to resign hears of the next one when that is active, and asks none but the one that was seen."""

import asyncio

import pytest

from semel.log.replica.lease import LEASE_KEY, LeaseHolder, decode_lease
from semel.log.replica.membership import FORMAT_KEY, format_of
from semel.log.replica.resignation import StaysActive, _ask, have_resign
from semel.testing.stores import MemoryStore

CLUSTER, SECONDS = "c", 3.0
pytestmark = pytest.mark.virtual_time


def holder_on(store: MemoryStore, nonce: str) -> LeaseHolder:
    return LeaseHolder(store, nonce, {"clients": (nonce, 9092)}, SECONDS, CLUSTER)


async def active_on(store: MemoryStore) -> LeaseHolder:
    """The lease of a broker that is active."""
    await store.create(FORMAT_KEY, format_of(CLUSTER))
    holder = holder_on(store, "one")
    assert await holder.claim(1, None, 0.0)
    assert await holder.renew(1, 0.0, position=5)
    return holder


async def claimed_on(store: MemoryStore) -> LeaseHolder:
    """The lease of a broker that has claimed it, and is about to become active."""
    holder = holder_on(store, "two")
    _, version = await store.get(LEASE_KEY)
    assert await holder.claim(2, version, 0.0)
    return holder


async def test_the_next_broker_is_named_when_it_is_active_and_not_when_it_has_claimed_the_lease() -> None:
    store = MemoryStore()
    first = await active_on(store)
    asking = asyncio.ensure_future(have_resign(store))
    while not first.resigns:
        await asyncio.sleep(first.pause_seconds)
        assert await first.renew(1, 0.0, position=5)
    await first.release()
    second = await claimed_on(store)
    await asyncio.sleep(SECONDS)
    assert not asking.done()
    assert await second.renew(2, 0.0, position=5)
    former, lease = await asking
    assert (former["clients"][0], lease.nonce) == ("one", "two")


@pytest.mark.parametrize("meanwhile", ["another has claimed", "another is active", "it was released"])
async def test_the_wish_is_written_into_no_lease_but_that_of_the_active_broker_that_was_seen(meanwhile: str) -> None:
    """Another broker would resign without having been asked, or one that has just begun."""
    store = MemoryStore()
    first = await active_on(store)
    seen = decode_lease((await store.get(LEASE_KEY)).body)
    await first.release()
    if meanwhile != "it was released":
        second = await claimed_on(store)
        if meanwhile == "another is active":
            assert await second.renew(2, 0.0, position=5)
    with pytest.raises(StaysActive, match="another broker is becoming active"):
        await _ask(store, seen)
    assert not decode_lease((await store.get(LEASE_KEY)).body).resigns
