"""Who may serve, by the lease: never two at once, and nobody takes over from a broker that is heard of."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.slots import BrokenHistory
from semel.log.replica.lease import LEASE_KEY, Lease, LeaseHolder, LeaseWatch, boot_seconds
from semel.log.replica.record import encode_record
from semel.log.store import Unsure
from semel.testing.stores import MemoryStore

SECONDS = 3.0
ADDRESSES = {"PLAINTEXT": ("127.0.0.1", 9092)}
LEASE = Lease(1, ADDRESSES, SECONDS, False, "a", puts=1, position=0, created_below=0, cluster_id="a cluster")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def at(now: float) -> Callable[[], float]:
    """A clock that stands still."""
    return lambda: now


async def held(store: MemoryStore, now: float, nonce: str = "a") -> LeaseHolder:
    """A lease that was claimed at this time."""
    holder = LeaseHolder(store, nonce, ADDRESSES, SECONDS, "a cluster")
    watch = LeaseWatch(store)
    await watch.look(at(now))
    assert await holder.claim(1, watch.version, now)
    return holder


@given(st.lists(st.tuples(st.floats(0.01, 4), st.sampled_from(["renew", "look", "both"])), max_size=40))
def test_while_a_standby_believes_the_lease_to_be_over_its_holder_does_not_serve(
    steps: list[tuple[float, str]],
) -> None:
    """However often each of them gets to run, and whoever misses the other's turns."""

    async def scenario() -> None:
        store = MemoryStore()
        now = 0.0
        holder = await held(store, now)
        watch = LeaseWatch(store)
        for seconds, what in steps:
            now += seconds
            if what != "look":
                await holder.renew(1, now)
            if what != "renew":
                await watch.look(at(now))
                assert not (watch.is_over and holder.is_held(now))

    run(scenario())


async def test_a_holder_that_is_silent_for_the_whole_lease_is_given_up() -> None:
    store = MemoryStore()
    await held(store, 0.0)
    watch = LeaseWatch(store)
    looks = 0
    now = 0.0
    while not watch.is_over or looks == 0:
        await watch.look(at(now))
        looks += 1
        now += watch.pause_seconds
    assert looks in (11, 12), "ten looks in a period, one to begin with, and what rounding makes of it"


async def test_time_in_which_a_standby_did_not_look_does_not_count() -> None:
    """It was stopped, or the store did not answer: the holder may have been there all the time."""
    store = MemoryStore()
    await held(store, 0.0)
    watch = LeaseWatch(store)
    await watch.look(at(0.0))
    await watch.look(at(1000.0))
    assert not watch.is_over


async def test_a_lease_that_was_put_while_a_standby_looked_is_not_silent_from_before() -> None:
    class Slow(MemoryStore):
        now = 0.0
        holder: LeaseHolder | None = None

        async def get(self, key: str):  # type: ignore[no-untyped-def]
            holder, self.holder = self.holder, None
            if holder is not None:
                self.now = 0.5
                assert await holder.renew(1, self.now)
            return await super().get(key)

    store = Slow()
    holder = await held(store, 0.0)
    watch = LeaseWatch(store)
    store.holder = holder
    while watch.lease is None or not watch.is_over:
        await watch.look(lambda: store.now)
        assert watch.lease is not None
        assert not (watch.is_over and holder.is_held(store.now))
        # It was put half a second after the watch began to look.
        assert not watch.is_over or store.now >= 0.5 + watch.lease.seconds
        store.now += watch.pause_seconds


def test_nobody_can_set_the_clock_of_the_lease() -> None:
    """It goes on while the machine sleeps, and does not follow the date."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_of_two_standbys_one_gets_the_lease() -> None:
    store = MemoryStore()
    first = await held(store, 0.0)
    watch = LeaseWatch(store)
    await watch.look(at(0.0))
    both = [LeaseHolder(store, nonce, ADDRESSES, SECONDS, "a cluster") for nonce in "bc"]
    assert [await one.claim(2, watch.version, 5.0) for one in both] == [True, False]
    assert [one.is_held(5.0) for one in both] == [True, False]
    assert not await first.renew(1, 5.0), "it is somebody else's"


class LosesOneAnswer(MemoryStore):
    loses = False

    async def replace(self, key: str, body: bytes | bytearray | memoryview, version: str) -> str:
        replaced = await super().replace(key, body, version)
        if self.loses:
            self.loses = False
            raise Unsure("the answer was lost")
        return replaced


async def test_a_lost_answer_is_not_the_loss_of_the_lease() -> None:
    store = LosesOneAnswer()
    holder = await held(store, 0.0)
    store.loses = True
    with pytest.raises(Unsure):
        await holder.renew(1, 1.0)
    assert not holder.is_held(3.5), "what is not known does not count"
    assert await holder.renew(1, 2.0)
    assert holder.is_held(3.5)


async def test_a_lease_that_was_released_is_over_at_once() -> None:
    store = MemoryStore()
    holder = await held(store, 0.0)
    await holder.release()
    watch = LeaseWatch(store)
    await watch.look(at(0.0))
    assert watch.is_over
    assert not holder.is_held(0.0)


async def test_a_lease_is_released_although_the_last_put_was_not_answered() -> None:
    """A broker that stops gives up the put that is under way; others would wait for the whole lease."""
    store = LosesOneAnswer()
    holder = await held(store, 0.0)
    store.loses = True
    with pytest.raises(Unsure):
        await holder.renew(1, 1.0)
    await holder.release()
    watch = LeaseWatch(store)
    await watch.look(at(1.0))
    assert watch.is_over
    assert not holder.is_held(1.0)


@pytest.mark.parametrize(
    "content",
    [
        b'{"epoch": 1}',
        b"[" * 50_000,
        encode_record(LEASE_KEY, {"addresses": {"PLAINTEXT": ["10.0.0.2", math.inf]}}),
        encode_record(LEASE_KEY, LEASE._replace(addresses={"PLAINTEXT": ("10.0.0.2", 1_000_000)})._asdict()),
        LEASE.encode().replace(b"3.0", b"7.0"),
        # A lease is no floor, and a floor no lease.
        encode_record("floor", LEASE._asdict()),
    ],
)
async def test_a_lease_that_is_none_is_named(content: bytes) -> None:
    store = MemoryStore()
    await store.create(LEASE_KEY, content)
    with pytest.raises(BrokenHistory, match="'lease' is damaged, or none of semel's"):
        await LeaseWatch(store).look(at(0.0))


async def test_a_broker_that_has_lost_its_claim_does_not_release_the_lease_of_another() -> None:
    """When it was stopped, it ended the one that had taken over."""
    store = MemoryStore()
    late = await held(store, 0.0, "late")
    after = SECONDS + 1.0
    watch = LeaseWatch(store)
    await watch.look(at(0.0))
    other = LeaseHolder(store, "other", ADDRESSES, SECONDS, "a cluster")
    assert await other.claim(2, watch.version, after)
    assert not await late.keeps_claim(after)
    await late.release()
    await watch.look(at(after))
    assert watch.lease is not None
    assert (watch.lease.nonce, watch.lease.is_released) == ("other", False)
    assert await other.renew(2, after)


async def test_who_claims_again_the_lease_that_it_has_released_holds_it() -> None:
    """As a standby does whose disk was full. Others would take over from it at once."""
    store = MemoryStore()
    holder = await held(store, 0.0)
    await holder.release()
    watch = LeaseWatch(store)
    await watch.look(at(1.0))
    assert await holder.claim(2, watch.version, 1.0)
    assert holder.is_held(1.0)
    await watch.look(at(1.0))
    assert not watch.is_over


async def test_a_lease_that_somebody_has_deleted_is_made_again_by_its_holder() -> None:
    """The active broker ended, although nobody had taken over."""
    store = MemoryStore()
    holder = await held(store, 0.0)
    await store.delete(LEASE_KEY)
    assert await holder.renew(1, 1.0)
    assert holder.is_held(3.5)
    watch = LeaseWatch(store)
    await watch.look(at(1.0))
    assert watch.lease is not None
    assert (watch.lease.nonce, watch.is_over) == ("a", False)
    assert await holder.renew(1, 2.0)


async def test_a_lease_names_no_lower_slot_than_it_has_named_before() -> None:
    """A slot that was created and is gone would look like one that never was."""
    store = MemoryStore()
    holder = await held(store, 0.0)
    for below in (7, 3):
        holder.note_created(below)
        assert await holder.renew(1, 1.0)
    watch = LeaseWatch(store)
    await watch.look(at(1.0))
    assert watch.lease is not None
    assert watch.lease.created_below == 7
