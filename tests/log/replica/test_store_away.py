"""A store that is away for ten minutes, or answers 503 all the time: nothing is lost, and serving goes on by itself."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, Message
from test_slot_writer import Active

from asking import Asker
from eventually import SECONDS_MAX, eventually
from producing import idempotent_producer
from semel.log.replica.membership import Membership, cluster_of
from semel.log.store import Unsure
from semel.testing.broker import FaultyBroker
from semel.testing.stores import CallName, MemoryStore

pytestmark = pytest.mark.virtual_time

Result = TypeVar("Result")
AWAY_SECONDS = 600.0


class AwayStore(MemoryStore):
    """No call of it happens while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False

    async def _send(self, call: CallName, key: str, land: Callable[[], Result]) -> Result:
        if self.is_away:
            await asyncio.sleep(0.1)
            raise Unsure(f"{call} of {key}: 503")
        return await super()._send(call, key, land)


class CutOff:
    """The same store, as a broker sees it that may be cut off from it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_cut_off = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str) -> Any:
        if self.is_cut_off:
            await asyncio.sleep(0.1)
            raise Unsure(f"get of {key}: no route to host")
        return await self._store.get(key)


async def nothing() -> None:
    """For a membership that has no clients."""


async def active_on(store: MemoryStore) -> tuple[Active, Membership, "asyncio.Task[None]"]:
    """A broker that has taken over, and keeps its lease."""
    await cluster_of(store, "a new one")
    active = Active(store)
    clock = asyncio.get_running_loop().time
    membership = Membership(store, active.reader, {"clients": ("127.0.0.1", 9092)}, 3.0, "a cluster", clock)
    await membership.stand_by(lambda _: None)
    epoch = await membership.take_over()
    active.writer.open()
    kept = membership.keep_lease(epoch, lambda _: None, nothing, lambda _: None)
    keeping = asyncio.get_running_loop().create_task(kept)
    return active, membership, keeping


async def test_the_active_broker_goes_on_where_it_was_and_has_lost_nothing() -> None:
    store = AwayStore()
    active, membership, keeping = await active_on(store)
    active.send(b"before")
    await active.until_told(1)
    assert membership.may_serve
    store.is_away = True
    sent = []
    while not active.writer.is_busy:
        sent.append(active.send(b"meanwhile %d" % len(sent)))
    await asyncio.sleep(AWAY_SECONDS)
    assert len(active.told) == 1, "nobody is told what no slot has"
    assert not membership.may_serve
    store.is_away = False
    told = await active.until_told(1 + len(sent))
    assert told[1:] == [(position, None) for position in sent]
    await asyncio.sleep(3)
    assert membership.may_serve, "by itself"
    active.send(b"after")
    assert (await active.until_told(2 + len(sent)))[-1][1] is None
    keeping.cancel()
    successor = await Active(store).take_over()
    meanwhile = [b"meanwhile %d" % number for number in range(len(sent))]
    assert successor.log.entries == [b"before", *meanwhile, b"after"]


def test_a_producer_goes_on_by_itself_when_the_store_is_back() -> None:
    """A real one: the broker has no lease meanwhile, and at first no clients."""
    store = AwayStore()
    with FaultyBroker(store=store, lease_seconds=1.0) as broker:
        producer = idempotent_producer(broker)
        outcomes: list[tuple[KafkaError | None, int | None]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            outcomes.append((error, message.offset()))

        def send(count: int) -> None:
            for number in range(count):
                producer.produce("payments", b"%d" % number, on_delivery=note)

        def refuses() -> bool:
            try:
                with Asker(broker.bootstrap):
                    return False
            except ConnectionRefusedError:
                return True

        send(10)
        producer.flush(SECONDS_MAX)
        store.is_away = True
        send(10)
        assert eventually(refuses)
        producer.poll(0)
        assert len(outcomes) == 10, "nobody is told what no slot has"
        store.is_away = False
        assert producer.flush(SECONDS_MAX) == 0
        assert outcomes == [(None, offset) for offset in range(20)]
        assert len(broker.log("payments")) == 20


async def test_a_standby_does_not_take_a_store_that_is_away_for_a_broker_that_is_gone() -> None:
    """Both look at the same store, and the active broker could not renew its lease either."""
    store = AwayStore()
    _, membership, keeping = await active_on(store)
    clock = asyncio.get_running_loop().time
    standby = Active(store)
    other = Membership(store, standby.reader, {"clients": ("127.0.0.1", 9093)}, 3.0, "a cluster", clock)
    standing_by = asyncio.get_running_loop().create_task(other.stand_by(lambda _: None))
    await asyncio.sleep(10)
    store.is_away = True
    await asyncio.sleep(AWAY_SECONDS)
    store.is_away = False
    await asyncio.sleep(30)
    assert not standing_by.done()
    assert membership.may_serve
    for task in (standing_by, keeping):
        task.cancel()


async def test_a_broker_that_was_cut_off_while_it_took_over_does_not_fence_who_did_so_meanwhile() -> None:
    """Its claim has ended by then: it stands by again. It ended a healthy broker, and then itself."""
    store = MemoryStore()
    await cluster_of(store, "a new one")
    clock = asyncio.get_running_loop().time
    wire = CutOff(store)
    late = Active(wire)  # type: ignore[arg-type]
    membership = Membership(wire, late.reader, {"clients": ("127.0.0.1", 9094)}, 3.0, "a cluster", clock)  # type: ignore[arg-type]
    await membership.stand_by(lambda _: None)
    wire.is_cut_off = True
    taking_over = asyncio.get_running_loop().create_task(membership.take_over())
    active, other, keeping = await active_on(store)
    active.send(b"one")
    assert (await active.until_told(1))[-1][1] is None
    wire.is_cut_off = False
    assert await taking_over is None
    active.send(b"two")
    assert (await active.until_told(2))[-1][1] is None
    assert other.may_serve
    keeping.cancel()
