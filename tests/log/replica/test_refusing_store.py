"""A store that refuses calls until a person acts is waited for: a directory that is not mounted or may not be written,
a right that was taken away. A directory that is not mounted is never taken for an empty store.
"""

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from test_cut_off import until
from test_store_outage import probed, produce_later

from asking import Asker, ConnectionEnded
from semel.log.broker.broker import Broker
from semel.log.store import FORMAT_KEY, StoreBroken, StoreRefused, open_store
from semel.testing.stores import MemoryStore

LEASE_SECONDS = 1.0


class Refusing:
    """A `Store` over another one, which refuses each call while it has a `refusal`, as one whose right is gone."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.refusal: StoreRefused | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name in ("list", "describe", "close", "objects"):
            return call

        async def refusing(*arguments: Any) -> Any:
            if self.refusal is not None:
                raise self.refusal
            return await call(*arguments)

        return refusing


async def topic_made_by_one_of(*brokers: Broker) -> None:
    """One that has its lease again may give way to the other a moment later."""
    for attempt in count():
        for broker in brokers:
            if broker.role.may_serve:
                with suppress(AssertionError, ConnectionEnded, OSError):
                    with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
                        await asyncio.to_thread(ask.create, f"orders-{attempt}")
                    return
        await asyncio.sleep(0)


async def test_brokers_wait_for_a_store_that_refuses_them_and_go_on_by_themselves() -> None:
    memory = MemoryStore()
    store: Any = Refusing(memory)
    async with (
        Broker(store=store, lease_seconds=LEASE_SECONDS) as active,
        Broker(store=store, lease_seconds=LEASE_SECONDS) as standby,
    ):
        with await asyncio.to_thread(Asker, active.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            store.refusal = StoreRefused("s3://bucket: journal/7: 403 AccessDenied: give the key its rights")
            produce_later(ask, "payments")
            for broker in (active, standby):
                await until(lambda broker=broker: broker.role.health.failing_seconds > LEASE_SECONDS)
                assert broker.role.health.errors["refused"] > 0
                assert not broker.failed.done()
                status, reason = await probed(broker, "/ready")
                assert (status, "403 AccessDenied" in reason) == (503, True)
        store.refusal = None
        await topic_made_by_one_of(active, standby)


async def test_a_store_that_may_have_lost_what_it_acknowledged_stops_the_broker() -> None:
    store: Any = Refusing(MemoryStore())
    async with Broker(store=store, lease_seconds=LEASE_SECONDS) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            store.refusal = StoreBroken("file:///srv/semel: a sync of its directory has failed")
            produce_later(ask, "payments")
            await until(broker.failed.done)


async def test_an_unmounted_directory_is_waited_for_and_nothing_is_written_into_it(tmp_path: Path) -> None:
    mounted, aside = tmp_path / "store", tmp_path / "aside"
    async with (
        Broker(store=open_store(mounted.as_uri()), lease_seconds=LEASE_SECONDS) as active,
        Broker(store=open_store(mounted.as_uri()), lease_seconds=LEASE_SECONDS) as standby,
    ):
        with await asyncio.to_thread(Asker, active.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            mounted.rename(aside)
            mounted.mkdir()
            produce_later(ask, "payments")
            for broker in (active, standby):
                await until(lambda broker=broker: broker.role.health.failing_seconds > LEASE_SECONDS)
                assert broker.role.health.errors["refused"] > 0
        assert not any(mounted.iterdir())
        mounted.rmdir()
        aside.rename(mounted)
        await until(lambda: active.role.may_serve or standby.role.may_serve)
        assert not active.failed.done() or standby.role.may_serve


async def test_another_directory_in_its_place_has_nothing_that_is_missing(tmp_path: Path) -> None:
    """One in which somebody has begun another log since."""
    store = open_store((tmp_path / "store").as_uri())
    await store.create(FORMAT_KEY, b"ours")
    await store.create("journal/1", b"one")
    (tmp_path / "store").rename(tmp_path / "aside")
    another = open_store((tmp_path / "store").as_uri())
    await another.create(FORMAT_KEY, b"theirs")
    for call in (store.get("journal/1"), store.get_range("journal/1", 0, 1), store.create("journal/2", b"two")):
        with pytest.raises(StoreRefused, match="mount the directory again"):
            await call
    with pytest.raises(StoreRefused, match="mount the directory again"):
        assert [listed async for listed in store.list("journal")]
    await store.close()
    await another.close()
