"""Answers that rest on what a broker knows, and not on what it stores: they leave when it is proved that no other
broker had taken over when the request came in. No clock is trusted for that: one of a virtual machine may stand still.
"""

import asyncio
from collections.abc import Callable

import pytest
from test_slot_writer import Active, HeldStore

from asking import Asker, ConnectionEnded, at, fetch_fields
from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFenced
from semel.log.replica.lease import LEASE_KEY
from semel.log.replica.slot import key_of
from semel.log.replica.writer import Fenced
from semel.log.store import Unsure
from semel.log.store.contract import Buffer
from semel.testing.stores import MemoryStore, Objects
from semel.testing.virtual_loop import VirtualLoop
from semel.wire.records import encode_batch
from semel.wire.versions import FETCH, HEARTBEAT, LIST_OFFSETS, OFFSET_FETCH, PRODUCE


class StandingStore(MemoryStore):
    """The store as a machine sees it that was suspended before it could renew its lease."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        if key == LEASE_KEY:
            await self.goes_on.wait()
        return await super().replace(key, body, version)


def other_machine(objects: Objects) -> MemoryStore:
    store = MemoryStore()
    vars(store)["objects"] = objects
    return store


def gap(asker: Asker) -> object:
    batch = bytes(encode_batch(at(1), producer_id=0, producer_epoch=0, base_sequence=7))
    data = [{"name": "payments", "partition_data": [{"index": 0, "records": batch}]}]
    return asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)


LATEST = [{"name": "payments", "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}]
QUESTIONS: dict[str, Callable[[Asker], object]] = {
    "committed offsets": lambda asker: asker(
        OFFSET_FETCH, 8, groups=[{"group_id": "group", "topics": None}], require_stable=True
    ),
    "the end of a partition": lambda asker: asker(LIST_OFFSETS, 7, replica_id=-1, isolation_level=1, topics=LATEST),
    "a gap in a producer's sequence": gap,
    "an offset out of range": lambda asker: asker(FETCH, 12, **fetch_fields("payments", 5)),
    "a member that is not known": lambda asker: asker(
        HEARTBEAT, 4, group_id="group", generation_id=3, member_id="m", group_instance_id=None
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_broker_that_was_replaced_answers_nothing_that_may_have_changed(question: str) -> None:
    """Its clock stood still, so it takes its lease for its own."""

    def ask(broker: Broker) -> object:
        with Asker(broker.bootstrap) as asker:
            return QUESTIONS[question](asker)

    def prepare(broker: Broker) -> None:
        with Asker(broker.bootstrap) as asker:
            asker.create("payments")
            asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=0)

    store = StandingStore()
    async with Broker(store=store, boot_clock=lambda: 1.0) as first:
        await asyncio.to_thread(prepare, first)
        assert await asyncio.to_thread(ask, first), "it is the active one"
        store.goes_on.clear()
        store.objects.delete(LEASE_KEY)
        async with Broker(store=other_machine(store.objects)) as second:
            await second.activated
            assert first.role.may_serve, "as far as it knows"
            try:
                with pytest.raises(ConnectionEnded):
                    await asyncio.to_thread(ask, first)
            finally:
                store.goes_on.set()
            assert isinstance(first.failed.exception(), BrokerFenced)
            assert await asyncio.to_thread(ask, second)


def run(scenario: Callable[[], object]) -> None:
    VirtualLoop().run(scenario())  # type: ignore[arg-type]


class Proofs:
    """Those of one broker, and what became of each."""

    def __init__(self, active: Active) -> None:
        self.outcomes: list[tuple[int, BaseException | None]] = []
        self._active = active

    def ask(self) -> int:
        return self._active.writer.prove(lambda *outcome: self.outcomes.append(outcome))


def test_requests_that_wait_at_the_same_time_share_one_look() -> None:
    async def scenario() -> None:
        store = CountingStore()
        active = await Active(store).take_over()
        proofs = Proofs(active)
        store.looks = 0
        numbers = [proofs.ask() for _ in range(5)]
        await asyncio.sleep(1)
        assert proofs.outcomes[-1] == (numbers[-1], None)
        assert store.looks <= 2

    run(scenario)


def test_a_proof_waits_for_the_slots_under_way() -> None:
    """One of them may be where another broker has put its fence."""

    async def scenario() -> None:
        store = HeldStore()
        active = await Active(store).take_over()
        proofs = Proofs(active)
        held = store.held[key_of(active.writer.next_slot)] = asyncio.Event()
        active.send(b"paid")
        number = proofs.ask()
        await asyncio.sleep(1)
        assert proofs.outcomes == []
        held.set()
        await asyncio.sleep(1)
        assert proofs.outcomes == [(number, None)]

    run(scenario)


def test_who_finds_another_brokers_fence_is_fenced() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        active = await Active(store).take_over()
        proofs = Proofs(active)
        await Active(store).take_over()
        proofs.ask()
        await asyncio.sleep(1)
        ((_, error),) = proofs.outcomes
        assert isinstance(error, Fenced)

    run(scenario)


def test_a_slot_that_was_sent_meanwhile_is_a_proof_as_well() -> None:
    async def scenario() -> None:
        store = CountingStore()
        active = await Active(store).take_over()
        proofs = Proofs(active)
        store.slow_seconds = 1.0
        number = proofs.ask()
        await asyncio.sleep(0.1)
        active.send(b"paid")
        await asyncio.sleep(3)
        assert proofs.outcomes == [(number, None)]

    run(scenario)


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    async def scenario() -> None:
        store = CountingStore()
        active = await Active(store).take_over()
        proofs = Proofs(active)
        store.failures = 5
        number = proofs.ask()
        await asyncio.sleep(30)
        assert store.failures == 0
        assert proofs.outcomes == [(number, None)]

    run(scenario)


class CountingStore(MemoryStore):
    """Counts looks at parts of objects, and may be slow at them, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.failures = 0
        self.slow_seconds = 0.0

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        self.looks += 1
        await asyncio.sleep(self.slow_seconds)
        if self.failures:
            self.failures -= 1
            raise Unsure("not now")
        return await super().get_range(key, start, size)
