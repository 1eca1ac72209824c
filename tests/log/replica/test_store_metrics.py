"""What an operator sees of a broker on a store: whether it is active, what is on its way, and how long a slot takes."""

import asyncio
import re

from asking import Asker, at
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.testing.stores import MemoryStore


def figures(broker: Broker) -> dict[str, float]:
    """By their names; of a histogram its sum and its count."""
    shown = re.findall(r"^semel_(\w+) (\S+)$", exposition(broker), re.MULTILINE)
    return {name: float(value) for name, value in shown}


async def test_slots_their_bytes_and_their_seconds_are_counted_and_takeovers_by_all_brokers() -> None:
    store = MemoryStore()
    async with Broker(store=store) as first:

        def pay() -> None:
            with Asker(first.bootstrap) as asker:
                asker.create("payments")
                asker.produce("payments", at(1))

        await asyncio.to_thread(pay)
        shown = figures(first)
        lengths = [listed.size_bytes async for listed in store.list("journal")]
        assert shown["store_slots_total"] == shown["store_create_seconds_count"] == len(lengths) - 1 >= 2
        assert shown["store_slot_bytes_total"] == sum(lengths) - min(lengths), "all but the fence"
        assert shown["store_create_seconds_sum"] > 0
        assert shown["store_under_way_bytes"] == 0
        assert (shown["active"], shown["takeovers_total"], shown["standby_lag_bytes"]) == (1, 0, 0)
        async with Broker(store=store) as second:
            assert (figures(second)["active"], figures(second)["store_slots_total"]) == (0, 0)
            await first.stop()
            await second.activated
            assert (figures(second)["active"], figures(second)["takeovers_total"]) == (1, 1)


async def test_a_broker_without_a_store_is_active() -> None:
    async with Broker() as broker:
        shown = figures(broker)
        assert (shown["active"], shown["takeovers_total"], shown["store_slots_total"]) == (1, 0, 0)


async def test_what_the_store_has_not_answered_is_under_way() -> None:
    class Held(MemoryStore):
        """Creates nothing from some moment on."""

        is_held = False

        async def create(self, key: str, body: bytes | bytearray | memoryview) -> str:
            if self.is_held:
                held.set()
                await asyncio.Event().wait()
            return await super().create(key, body)

    held = asyncio.Event()
    store = Held()
    async with Broker(store=store) as broker:
        store.is_held = True

        def ask() -> None:
            asker = Asker(broker.bootstrap)
            asker.create("payments")

        asking = asyncio.create_task(asyncio.to_thread(ask))
        await held.wait()
        assert figures(broker)["store_under_way_bytes"] > 0
        await broker.kill()
        await asyncio.wait([asking])
        asking.exception()
