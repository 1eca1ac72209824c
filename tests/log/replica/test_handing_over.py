"""What clients meet while the active broker of a pair stops: until another one is active it answers, and then it names
that one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from test_standby_answers import metadata, retention

from asking import Asker, at
from eventually import eventually
from lives import Gate
from semel.log.broker import broker as module
from semel.log.broker.broker import Broker
from semel.log.replica import membership
from semel.log.replica.floor import FLOOR_KEY, decode_floor
from semel.log.replica.lease import LEASE_KEY, Lease, decode_lease
from semel.log.replica.note import FOLDER
from semel.log.replica.resignation import have_resign
from semel.log.replica.slot import JOURNAL
from semel.log.replica.uploads import CHECKPOINTS
from semel.log.storage.files import MemoryFiles
from semel.log.store import Unsure
from semel.log.store.contract import Buffer, Found
from semel.testing.stores import MemoryStore
from semel.wire import versions
from semel.wire.errors import ErrorCode
from semel.wire.records import decode_batches, encode_batch

T = TypeVar("T")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not a wrong answer: a broker that stops would wait a minute for its clients, and for the next
    broker.
    """
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 60.0)
    monkeypatch.setattr(module, "HEARD_SECONDS_MAX", 60.0)
    monkeypatch.setattr(membership, "TAKEN_SECONDS_MAX", 60.0)


async def elsewhere(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


@asynccontextmanager
async def two_brokers(store: MemoryStore, **options: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """The active one, which knows the other one, and that one."""
    first, second = (Broker(store=store, files=MemoryFiles(), **options) for _ in range(2))
    async with first as active, second as standby:
        assert await active.role.finds_standby()
        yield active, standby


async def begun_stop(active: Broker) -> asyncio.Future[None]:
    """The stop of a broker that has found the standby, and refuses from now on."""
    refuses, lead_no_more = asyncio.Event(), active.role.lead_no_more

    def noticed() -> None:
        lead_no_more()
        refuses.set()

    active.role.lead_no_more = noticed
    stopping = asyncio.ensure_future(active.stop())
    async with asyncio.timeout(10):
        await refuses.wait()
    return stopping


def produce(ask: Asker, creates: bool = False) -> int:
    """The error of a batch into `payments`."""
    if creates:
        ask.create("payments")
    data = [{"name": "payments", "partition_data": [{"index": 0, "records": bytes(encode_batch(at(1)))}]}]
    (topic,) = ask(versions.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data).responses
    return int(topic.partition_responses[0].error_code)


def offsets_at(broker: Broker) -> list[int]:
    """Those of the batches in `payments`."""
    with Asker(broker.bootstrap) as ask:
        return [batch.base_offset for batch in decode_batches(ask.fetch("payments").records or b"")]


def leader(ask: Asker) -> str:
    """Where Metadata says that `payments` is led."""
    answer = metadata(ask, "payments")
    (node_id,) = {partition.leader_id for partition in answer.topics[0].partitions}
    (found,) = {f"{each.host}:{each.port}" for each in answer.brokers if each.node_id == node_id}
    return found


def coordinator(ask: Asker) -> str:
    """Where FindCoordinator says that a transactional id is coordinated."""
    (found,) = ask(versions.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["payments-1"]).coordinators
    return f"{found.host}:{found.port}"


async def test_clients_hear_where_to_go_before_the_port_is_closed() -> None:
    async with two_brokers(MemoryStore()) as (active, standby):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        stopping = await begun_stop(active)

        def moves() -> None:
            assert produce(asker) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            with Asker(active.bootstrap) as another:
                assert leader(another) == standby.bootstrap
            assert coordinator(asker) == standby.bootstrap
            asker.close()

        await elsewhere(moves)
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await elsewhere(lambda: Asker(active.bootstrap))
        await standby.activated

        with await elsewhere(lambda: Asker(standby.bootstrap)) as another:
            assert await elsewhere(lambda: produce(another)) == 0
        assert await elsewhere(lambda: offsets_at(standby)) == [0, 1], "what was refused is not in the log"


class HeldStore(MemoryStore):
    """Writes slots only while it is open, and a lease that is released only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open, self.asked, self.may = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_open.set()

    async def create(self, key: str, body: Buffer) -> str:
        if key.startswith(JOURNAL):
            await self.is_open.wait()
        return await super().create(key, body)

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        if key == LEASE_KEY and decode_lease(bytes(body)).is_released:
            self.asked.set()
            await self.may.wait()
        return await super().replace(key, body, version)


@asynccontextmanager
async def lease_on_its_way() -> AsyncIterator[tuple[Broker, Asker]]:
    """The active one of two brokers, which stops, and a client of it that has written to `payments`. After this the
    store takes the lease that it releases, and the other one becomes active.
    """
    store = HeldStore()
    async with two_brokers(store) as (active, standby):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        stopping = asyncio.ensure_future(active.stop())
        await store.asked.wait()
        yield active, asker
        asker.close()
        store.may.set()
        await stopping
        await standby.activated


async def test_nothing_changes_any_more_while_the_lease_is_given_away() -> None:
    async with lease_on_its_way() as (active, asker):
        end = active.log.end
        assert await elsewhere(lambda: produce(asker)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert active.log.end == end


async def test_a_broker_that_nobody_follows_in_time_says_so_and_creates_no_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be acknowledged, and nobody would ever write it."""
    monkeypatch.setattr(membership, "TAKEN_SECONDS_MAX", 0.1)
    async with lease_on_its_way() as (active, asker):
        end = active.log.end
        answer = await elsewhere(lambda: metadata(asker, "orders"))
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert active.log.end == end
        assert answer.controller_id == active.role.node_id, "nobody else is active"


async def test_what_is_under_way_is_durable_before_the_lease_is_given_away() -> None:
    """And what comes behind it is refused, so that there is an end."""
    store = HeldStore()
    store.may.set()
    async with two_brokers(store) as (active, standby):
        first, second = [await elsewhere(lambda: Asker(active.bootstrap)) for _ in range(2)]
        assert await elsewhere(lambda: produce(first, creates=True)) == 0
        store.is_open.clear()
        end = active.log.end
        under_way = asyncio.ensure_future(elsewhere(lambda: produce(first)))
        assert await elsewhere(lambda: eventually(lambda: active.log.end > end))
        stopping = await begun_stop(active)
        try:
            async with asyncio.timeout(10):
                assert await elsewhere(lambda: {produce(second) for _ in range(50)}) == {
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                }
            assert not store.asked.is_set()
        finally:
            store.is_open.set()
        assert await under_way == 0
        first.close()
        second.close()
        await stopping
        assert store.asked.is_set()
        await standby.activated
        assert await elsewhere(lambda: offsets_at(standby)) == [0, 1]


async def test_a_fetch_that_waits_is_answered_when_the_broker_begins_to_stop() -> None:
    """Its client would learn only by the end of the connection that it has to go on elsewhere."""
    async with two_brokers(MemoryStore()) as (active, _):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        waits: Any = asyncio.ensure_future(elsewhere(lambda: asker.fetch("payments", 1, wait_ms=20_000)))
        assert await elsewhere(lambda: eventually(lambda: active.waiting_partitions)), waits
        stopping = asyncio.ensure_future(active.stop())
        async with asyncio.timeout(10):
            answer = await waits
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, b"")
        asker.close()
        await stopping


async def test_a_broker_whose_standby_has_stopped_waits_for_nobody() -> None:
    """It would answer everything with an error meanwhile, for a second."""
    async with two_brokers(MemoryStore()) as (active, standby):
        await standby.stop()
        assert active.role.standby_ids, "this broker has not looked since"
        await active.stop()
        assert not active.role.is_another_active
        assert active.role.is_active, "it has handed over to nobody"


class NoteStore(MemoryStore):
    """Takes the note of a standby late, and refuses it at first."""

    seconds = 0.0
    refusals = 0

    async def create(self, key: str, body: Buffer) -> str:
        if key.startswith(FOLDER):
            await asyncio.sleep(self.seconds)
            if self.refusals:
                self.refusals -= 1
                raise Unsure("busy")
        return await super().create(key, body)


async def test_a_broker_hands_over_to_a_standby_that_has_just_come() -> None:
    """By itself it looks for standbys once in the period of its lease. Whoever starts one broker after the other again
    does not wait for that.
    """
    async with (
        Broker(store=(store := MemoryStore()), files=MemoryFiles()) as active,
        Broker(store=store, files=MemoryFiles()) as standby,
    ):
        assert not active.role.standby_ids, "this broker has not looked since"
        await active.stop()
        assert active.role.is_another_active
        await standby.activated


async def test_a_broker_that_stops_answers_by_itself_who_is_active() -> None:
    """It would not wait for the answer of the next one, to which everybody comes just now."""
    reached: list[object] = []

    async def reach(*address: Any, **options: Any) -> Any:
        reached.append(address)
        raise ConnectionRefusedError

    async with two_brokers(MemoryStore(), reach=reach) as (active, standby):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        stopping = await begun_stop(active)
        assert await elsewhere(lambda: leader(asker)) == standby.bootstrap
        asker.close()
        await stopping
        assert reached == []


async def test_a_standby_says_that_it_stands_by_when_the_active_broker_can_find_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "_SEARCH_SECONDS_MAX", 8.0)
    store = NoteStore()
    store.seconds, store.refusals = 0.1, 2
    async with two_brokers(store) as (active, _):
        assert active.role.standby_ids


async def test_a_standby_whose_note_is_not_taken_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_SEARCH_SECONDS_MAX", 0.01)
    store = NoteStore()
    store.seconds = 3600.0
    first, second = (Broker(store=store, files=MemoryFiles()) for _ in range(2))
    async with first, asyncio.timeout(30), second:
        assert second.role.is_another_active


async def test_a_question_after_the_next_broker_is_active_fences_nobody() -> None:
    """Where clients have to log in, the broker answers it by itself, as a standby does."""
    strict = {"access_rules": True, "super_users": ["User:ANONYMOUS"], "insecure": True}
    async with two_brokers(MemoryStore(), **strict) as (active, standby):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        stopping = asyncio.ensure_future(active.stop())

        def asks() -> None:
            assert eventually(lambda: leader(asker) == standby.bootstrap)
            assert retention(asker, "payments").error_code == ErrorCode.NONE
            asker.close()

        await elsewhere(asks)
        await stopping
        assert not active.failed.done()


class BusyStore(MemoryStore):
    """Does not answer the first call of this name for a lease that was released."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call
        self.was_busy = False

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        self._strike("replace", key, bytes(body))
        return await super().replace(key, body, version)

    async def get(self, key: str) -> Found:
        found = await super().get(key)
        self._strike("get", key, found.body)
        return found

    def _strike(self, call: str, key: str, body: bytes) -> None:
        if key == LEASE_KEY and call == self._call and not self.was_busy and decode_lease(body).is_released:
            self.was_busy = True
            raise Unsure("busy")


@pytest.mark.parametrize("call", ["replace", "get"])
async def test_one_call_that_is_not_answered_does_not_end_the_handover(call: str) -> None:
    store = BusyStore(call)
    async with two_brokers(store) as (active, _):
        await active.stop()
        assert store.was_busy
        assert active.role.is_another_active


async def test_a_broker_stops_although_the_lease_is_damaged() -> None:
    store = MemoryStore()
    async with two_brokers(store) as (active, standby):
        for broker in (active, standby):
            broker.role.stop()
        # The last call of both has ended.
        await active.role.finds_standby()
        store.objects.delete(LEASE_KEY)
        store.objects.create(LEASE_KEY, b"{}")
        await active.stop()
        assert not active.failed.done()


async def test_a_broker_that_stops_while_it_takes_over_gives_its_claim_to_the_next_one() -> None:
    """And nobody takes it for the active one."""
    store = HeldStore()
    store.may.set()

    def lease() -> Lease:
        return decode_lease(store.objects.get(LEASE_KEY).body)

    async with two_brokers(store) as (active, standby):
        store.is_open.clear()
        stopping = asyncio.ensure_future(active.stop())
        assert await elsewhere(lambda: eventually(lambda: lease().epoch == 2))
        assert not lease().is_active
        await standby.stop()
        assert lease().is_released, "the next one would wait for the whole period"
        store.is_open.set()
        async with Broker(store=store, files=MemoryFiles()) as third:
            await stopping
            host, port = active.role.active_at(active.listeners[0])
            assert f"{host}:{port}" == third.bootstrap


class MuteStore(MemoryStore):
    """Never answers when a lease is released."""

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        if key == LEASE_KEY and decode_lease(bytes(body)).is_released:
            await asyncio.Event().wait()
        return await super().replace(key, body, version)


async def test_a_broker_stops_although_the_store_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "TAKEN_SECONDS_MAX", 0.01)
    monkeypatch.setattr(membership, "_LEAVE_SECONDS_MAX", 0.01)
    async with two_brokers(MuteStore()) as (active, _), asyncio.timeout(30):
        await active.stop()
        assert not active.failed.done()


async def test_a_checkpoint_under_way_does_not_fail_a_broker_that_has_handed_over() -> None:
    """It would find the floor of the next broker."""
    store = MemoryStore()
    gate = Gate(store, "create", CHECKPOINTS)
    async with two_brokers(store) as (active, standby):
        asker = await elsewhere(lambda: Asker(active.bootstrap))
        assert await elsewhere(lambda: produce(asker, creates=True)) == 0
        active.pump.begin_checkpoint()
        await gate.reached.wait()
        checkpoint = active.role._checkpoints._task
        stopping = asyncio.ensure_future(active.stop())
        await standby.activated
        assert await elsewhere(lambda: eventually(lambda: active.role.is_another_active))
        standby.pump.begin_checkpoint()

        def is_raised() -> bool:
            return decode_floor(store.objects.get(FLOOR_KEY).body).epoch == standby.role.epoch

        assert await elsewhere(lambda: eventually(is_raised))
        gate.opened.set()
        await asyncio.wait([checkpoint])
        assert not active.failed.done()
        asker.close()
        await stopping


async def test_a_takeover_is_told_although_a_healthy_broker_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The operator has to look after the former one."""
    async with two_brokers(MemoryStore(), lease_seconds=1.0) as (active, standby):
        former = active.bootstrap
        await active.stop()
        async with asyncio.timeout(60):
            await standby.activated
        told = [(one.levelname, one.getMessage()) for one in caplog.records if "took_over" in one.getMessage()]
        assert told == [("WARNING", f"event=took_over former={former} epoch=2")]


async def test_a_broker_that_starts_again_does_not_name_itself_as_the_active_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "semel")
    store = MemoryStore()
    first = Broker(store=store, lease_seconds=1.0)
    await first.start()
    port = first.listeners[0].port
    await first.kill()
    async with Broker(store=store, lease_seconds=1.0, port=port) as again, asyncio.timeout(60):
        assert again.active_bootstrap == "nobody"
        await again.activated
    assert "event=standing_by active=nobody" in caplog.text
    assert "took_over" not in caplog.text


async def test_clients_are_told_at_once_where_a_broker_that_has_resigned_will_stand_by() -> None:
    """Before it is back: many ask for Metadata only once after a takeover."""
    store = MemoryStore()
    async with two_brokers(store, lease_seconds=1.0) as (active, standby):
        resigning = asyncio.create_task(have_resign(store))
        async with asyncio.timeout(60):
            await active.resigned
            await active.stop()
            await standby.activated
            await resigning
        where = active.listeners[0].reached_at
        assert where in standby.role.standbys_at(standby.listeners[0]).values()
        assert not await standby.role.finds_standby(), "it cannot take over yet"
