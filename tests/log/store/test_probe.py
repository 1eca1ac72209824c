"""Holds that the probe passes a store that keeps its contract, finds many a way to break it, and leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from stores_under_test import Place

from semel.log.store import Exists, Found, Missing, Store, StoreRefused, Unsure
from semel.log.store.contract import Buffer
from semel.log.store.probe import probe, probe_at_start
from semel.testing.stores import FaultyStore, MemoryStore, StoreFault

pytestmark = pytest.mark.virtual_time


def test_a_store_that_keeps_its_contract_passes_and_nothing_stays(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        await asyncio.gather(probe(one), probe(other))
        assert [listed async for listed in one.list("")] == []

    place.run(story)


class Overwrites(MemoryStore):
    """Takes the condition of a create and does not heed it, as a store does that does not know the header."""

    async def create(self, key: str, body: Buffer) -> str:
        self.objects.delete(key)
        return await super().create(key, body)


class LooksThenActs(MemoryStore):
    """Keeps the contract while one call follows another."""

    async def create(self, key: str, body: Buffer) -> str:
        with contextlib.suppress(Missing):
            await self.get(key)
            raise Exists(key)
        await asyncio.sleep(0)
        self.objects.delete(key)
        return self.objects.create(key, bytes(body))


class ReplacesBlindly(MemoryStore):
    """Takes the version of a replace and does not heed it."""

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        return await super().replace(key, body, (await self.get(key)).version)


class ShowsTheFormer(MemoryStore):
    """Goes on showing what was replaced, as a cache would."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, Found] = {}

    async def get(self, key: str) -> Found:
        return self._shown.setdefault(key, await super().get(key))


class KeepsTheDeleted(MemoryStore):
    """Takes a delete and does nothing."""

    async def delete(self, key: str) -> None:
        pass


class IgnoresRanges(MemoryStore):
    """Gives the whole object where a part was asked for."""

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return (await self.get(key)).body


class ChangesWhatItRefuses(MemoryStore):
    """Refuses a create, and keeps its bytes all the same."""

    async def create(self, key: str, body: Buffer) -> str:
        try:
            return await super().create(key, body)
        except Exists:
            self.objects.replace(key, bytes(body), self.objects.get(key).version)
            raise


class AcceptsNone(MemoryStore):
    """Refuses everybody who replaces, in a race, as a store with a bug in its locks did."""

    async def create(self, key: str, body: Buffer) -> str:
        if body.startswith(b"racer"):
            raise Exists(key)
        return await super().create(key, body)


@pytest.mark.parametrize(
    ("store", "how"),
    [
        (Overwrites(), "it creates an object that exists: it ignores If-None-Match"),
        (LooksThenActs(), "2 of 2 creates of one object at once succeeded"),
        (ReplacesBlindly(), "it replaces an object that has changed: it ignores If-Match"),
        (ShowsTheFormer(), "it does not show what was just replaced"),
        (KeepsTheDeleted(), "it still shows what was just deleted"),
        (ChangesWhatItRefuses(), "a refused create changes the object"),
        (IgnoresRanges(), "it does not return the range that it is asked for"),
        (AcceptsNone(), "of 2 creates of one object at once none succeeded"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_store_that_breaks_its_contract_is_refused_in_one_line_that_says_how(store: MemoryStore, how: str) -> None:
    with pytest.raises(StoreRefused) as refusal:
        asyncio.run(probe(store))
    assert str(refusal.value) == f"memory cannot hold a log: {how}"
    if not isinstance(store, KeepsTheDeleted):
        assert store.objects.list("") == []


def test_a_store_that_cannot_be_reached_is_not_called_a_liar() -> None:
    store = FaultyStore(latency_seconds=0)
    store.arm(StoreFault("throttled"))
    with pytest.raises(Unsure):
        asyncio.run(probe(store))


def test_a_conflict_in_a_race_is_no_verdict() -> None:
    store = FaultyStore(latency_seconds=0, late_seconds=0)
    store.arm(StoreFault("conflict", call="create", key="probe/*-1"))
    asyncio.run(probe(store, rounds=1))
    assert store.fired["conflict"] == 2


class Restarting(MemoryStore):
    """Does not answer at first."""

    unanswered = 3

    async def get(self, key: str) -> Found:
        if self.unanswered:
            self.unanswered -= 1
            raise Unsure("connection refused")
        return await super().get(key)


async def test_a_broker_that_starts_waits_for_a_store_that_restarts_and_refuses_one_that_lies() -> None:
    """The probe before anything is entrusted to the store."""
    restarting = Restarting()
    await probe_at_start(restarting)
    assert not restarting.unanswered
    with pytest.raises(StoreRefused, match="ignores If-None-Match"):
        await probe_at_start(Overwrites())
    gone = Restarting()
    gone.unanswered = 10_000
    with pytest.raises(Unsure, match="memory has not answered for 30 s: connection refused"):
        await probe_at_start(gone)


class Hangs(MemoryStore):
    """Never answers a look at an object, or its removal."""

    async def get(self, key: str) -> Found:
        return await self.never()

    async def delete(self, key: str) -> None:
        await self.never()

    async def never(self) -> Found:
        return await asyncio.Future()


async def test_a_store_that_hangs_fails_a_start_when_its_time_is_up() -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unsure, match="memory has not answered for 30 s"):
        await probe_at_start(Hangs())
    assert asyncio.get_running_loop().time() - began < 32
