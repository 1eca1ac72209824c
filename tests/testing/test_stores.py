"""Holds that the faulty store is as bad as it says, and no worse: it never breaks the contract of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.store import Exists, Missing, StoreError, Unsure
from semel.testing.stores import STRIKES, FaultyStore, StoreFault, StoreFaultKind
from semel.testing.virtual_loop import VirtualLoop

LATE_SECONDS = 10.0


def run(story: Callable[[FaultyStore], Awaitable[None]], *faults: StoreFault, seed: int = 0) -> FaultyStore:
    store = FaultyStore(seed, late_seconds=LATE_SECONDS)
    for fault in faults:
        store.arm(fault)

    async def told() -> None:
        await story(store)

    VirtualLoop().run(told())
    return store


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except StoreError as error:
        return type(error)


@pytest.mark.parametrize("kind", ["lost request", "conflict", "throttled"])
def test_a_call_that_did_not_happen_leaves_nothing_behind(kind: StoreFaultKind) -> None:
    async def story(store: FaultyStore) -> None:
        assert await outcome(store.create("a", b"x")) is Unsure
        await asyncio.sleep(LATE_SECONDS)
        assert await outcome(store.get("a")) is Missing
        await store.create("a", b"x")

    assert run(story, StoreFault(kind, times=1)).fired == {kind: 1}


def test_a_call_whose_answer_is_lost_has_happened() -> None:
    async def story(store: FaultyStore) -> None:
        assert await outcome(store.create("a", b"x")) is Unsure
        assert (await store.get("a")).body == b"x"
        store.arm(StoreFault("lost answer", call="create"))
        # Not even that the object exists is told.
        assert await outcome(store.create("a", b"y")) is Unsure

    run(story, StoreFault("lost answer", times=1))


def test_a_late_create_lands_when_its_slot_is_empty_again() -> None:
    """That is how a message of a dead writer comes back into a slot that was deleted."""

    async def story(store: FaultyStore) -> None:
        assert await outcome(store.create("a", b"x")) is Unsure
        assert await outcome(store.get("a")) is Missing
        await store.create("a", b"y")
        await store.delete("a")
        await asyncio.sleep(LATE_SECONDS)
        assert (await store.get("a")).body == b"x"

    assert run(story, StoreFault("late", call="create", times=1)).fired["late"] == 1


def test_a_late_create_does_not_replace_what_was_faster() -> None:
    async def story(store: FaultyStore) -> None:
        assert await outcome(store.create("a", b"x")) is Unsure
        await store.create("a", b"y")
        await asyncio.sleep(LATE_SECONDS)
        assert (await store.get("a")).body == b"y"

    run(story, StoreFault("late", call="create", times=1))


def test_a_create_may_land_a_second_time() -> None:
    async def story(store: FaultyStore) -> None:
        await store.create("a", b"x")
        await store.delete("a")
        await asyncio.sleep(LATE_SECONDS)
        assert (await store.get("a")).body == b"x"

    run(story, StoreFault("landed again", call="create", times=1))


def test_a_slow_call_takes_long_and_others_overtake_it() -> None:
    async def story(store: FaultyStore) -> None:
        slow = asyncio.create_task(store.create("a", b"x"))
        await asyncio.sleep(0)
        await store.create("a", b"y")
        assert await outcome(slow) is Exists

    run(story, StoreFault("slow", times=1))


def test_a_stale_listing_is_one_of_a_moment_ago() -> None:
    async def story(store: FaultyStore) -> None:
        await store.create("f/0", b"")
        await store.create("f/1", b"")
        await store.delete("f/0")
        store.arm(StoreFault("stale list"))
        listings = {tuple(sorted([listed.key async for listed in store.list("f")])) for _ in range(50)}
        assert listings == {("f/0", "f/1"), ("f/0",), ()}

    run(story)


def test_a_caller_that_is_cancelled_does_not_take_its_message_back() -> None:
    async def story(store: FaultyStore) -> None:
        creating = asyncio.create_task(store.create("a", b"x"))
        await asyncio.sleep(0)
        creating.cancel()
        await asyncio.wait([creating])
        assert creating.cancelled()
        await asyncio.sleep(LATE_SECONDS)
        assert (await store.get("a")).body == b"x"

    run(story)


def test_a_fault_strikes_the_calls_it_is_for_as_often_as_it_says_and_until_it_is_called_off() -> None:
    async def story(store: FaultyStore) -> None:
        await store.create("journal/0", b"")
        await store.create("lease", b"")
        await store.get("lease")
        assert [await outcome(store.get("journal/0")) for _ in range(2)] == [Unsure, Unsure]
        await store.get("journal/0")
        store.arm(StoreFault("throttled", call="delete"))
        assert [await outcome(store.delete("lease")) for _ in range(3)] == [Unsure] * 3
        store.calm()
        await store.delete("lease")

    assert run(story, StoreFault("throttled", "get", "journal/*", times=2)).fired == {"throttled": 5}


KINDS = sorted(STRIKES)


@given(seed=st.integers(0, 2**32), chances=st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 0.4)), max_size=5))
def test_whatever_goes_wrong_a_slot_belongs_to_one_writer_for_ever(seed: int, chances: list[Any]) -> None:
    """Writers that send the same create until they know; nothing is deleted, so what was read once stays."""
    owners: dict[str, set[bytes]] = {}

    async def writer(store: FaultyStore, name: bytes) -> None:
        for slot in range(6):
            key, ended = f"journal/{slot}", Unsure
            while ended is Unsure:
                ended = await outcome(store.create(key, name))  # type: ignore[assignment]
            seen: Any = Unsure
            while seen is Unsure:
                seen = await outcome(store.get(key))
            owners.setdefault(key, set()).add(seen.body)
            assert ended is Exists or seen.body == name

    async def story(store: FaultyStore) -> None:
        await asyncio.gather(*(writer(store, name) for name in (b"one", b"two", b"three")))
        await asyncio.sleep(LATE_SECONDS)
        store.calm()
        for key, seen in owners.items():
            assert seen == {(await store.get(key)).body}

    run(story, *(StoreFault(kind, chance=chance) for kind, chance in chances), seed=seed)
    assert len(owners) == 6


def test_the_same_seed_has_the_same_faults() -> None:
    def fired(seed: int) -> dict[StoreFaultKind, int]:
        async def story(store: FaultyStore) -> None:
            for slot in range(40):
                await outcome(store.create(f"journal/{slot}", b""))

        return dict(run(story, *(StoreFault(kind, chance=0.1) for kind in STRIKES), seed=seed).fired)

    assert fired(1) == fired(1) != fired(2)
