"""A store that does not work is seen: clients that need no write are answered, and the operator reads for how long, and
why, in the log, in the figures, and where a supervisor asks."""

import asyncio
import re
from typing import Any

import pytest
from test_cut_off import Line, broker_on, until

from asking import Asker, ConnectionEnded, at
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.log.broker.metrics_server import serve_metrics
from semel.log.replica.health import LINE_SECONDS_MAX, STALE_SECONDS, Outage, StoreHealth
from semel.log.store import Full, StoreRefused, Unsure, open_store
from semel.testing.postgres import PostgresServer
from semel.testing.stores import MemoryStore
from semel.wire import versions
from semel.wire.basic import BasicLogin
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch

FAR_SECONDS = 15.0


def produce_later(ask: Asker, topic: str) -> Any:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(encode_batch(at(1)))}]}]
    return ask.ask_later(versions.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)


def leaders(ask: Asker, *names: str, version: int = 8) -> list[tuple[str, int, list[int]]]:
    """Of each topic its error, and the leader of each of its partitions."""
    fields = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    topics = [{"name": name} for name in names] if names else None
    metadata = ask(versions.METADATA, version, topics=topics, allow_auto_topic_creation=True, **fields)
    return [(topic.name, topic.error_code, [one.leader_id for one in topic.partitions]) for topic in metadata.topics]


async def probed(broker: Broker, path: str, login: BasicLogin | None = None) -> tuple[int, str]:
    server = await serve_metrics(broker, "127.0.0.1", 0, login=login)
    try:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body
    finally:
        server.close()


def figure(broker: Broker, name: str) -> float:
    (value,) = re.findall(rf"^semel_{re.escape(name)} (\S+)$", exposition(broker), re.MULTILINE)
    return float(value)


async def test_while_its_postgresql_is_down_a_broker_answers_who_asks_for_topics_and_says_how_long_and_why(
    postgres_to_crash: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"{postgres_to_crash.url()}?allow_async=1")
    async with Broker(store=store, lease_seconds=1.0) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            assert (await probed(broker, "/ready")) == (200, "active\n")
            await asyncio.to_thread(postgres_to_crash.crash)
            waiting = produce_later(ask, "payments")
            with pytest.raises((ConnectionEnded, ConnectionResetError)):
                await asyncio.to_thread(waiting)
        await until(lambda: broker.doors.are_open)
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            shown = await asyncio.to_thread(leaders, ask)
            assert shown == [("payments", 0, [-1])]
            found = await asyncio.to_thread(ask, versions.FIND_COORDINATOR, 2, key="ledger", key_type=0)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "store" in found.error_message
            await until(lambda: "store_fails" in caplog.text)
            status, why = await probed(broker, "/ready")
            assert status == 503
            assert re.match(r"the store has failed for \d+\.\d s: postgresql://127.0.0.1", why)
            assert (await probed(broker, "/live"))[0] == 200
            assert figure(broker, "up") == figure(broker, "active") == 0
            assert figure(broker, "store_failing_seconds") >= 1
            assert figure(broker, 'store_errors_total{kind="unsure"}') > 0
            await asyncio.to_thread(postgres_to_crash.start)
            await until(lambda: broker.role.may_serve)
            assert await asyncio.to_thread(produce_later(ask, "payments"))
        (line,) = [record.getMessage() for record in caplog.records if "store_works_again" in record.getMessage()]
        assert re.search(r"for_seconds=\d", line)
        assert figure(broker, "up") == 1
        assert figure(broker, "store_failing_seconds") == 0


class HeldStore(MemoryStore):
    """While it is held, it creates nothing, and answers everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.creates = asyncio.Event()
        self.creates.set()

    async def create(self, key: str, body: Any) -> str:
        await self.creates.wait()
        return await super().create(key, body)


async def test_a_supervisor_needs_no_login_and_is_told_no_reason_without_one() -> None:
    line = Line(MemoryStore())
    login = BasicLogin("prometheus", "secret")
    async with broker_on(line) as broker:
        assert await probed(broker, "/ready", login) == (200, "active\n")
        line.cut()
        await until(lambda: broker.role.has_lost_lease)
        assert await probed(broker, "/ready", login) == (503, "no\n")
        assert (await probed(broker, "/metrics", login))[0] == 401
        line.mend()


async def test_while_a_record_waits_for_the_store_the_topics_are_told_at_once() -> None:
    store = HeldStore()
    async with Broker(store=store, lease_seconds=FAR_SECONDS) as broker:
        with (
            await asyncio.to_thread(Asker, broker.bootstrap) as writing,
            await asyncio.to_thread(Asker, broker.bootstrap) as asking,
        ):
            await asyncio.to_thread(writing.create, "payments")
            store.creates.clear()
            written = produce_later(writing, "payments")
            await until(lambda: broker.log.end > broker.log.synced)
            assert await asyncio.to_thread(leaders, asking, "payments") == [("payments", 0, [1])]
            assert broker.log.end > broker.log.synced
            store.creates.set()
            assert (await asyncio.to_thread(written)).responses


async def test_a_topic_is_told_only_when_it_is_durable() -> None:
    store = HeldStore()
    async with Broker(store=store, lease_seconds=FAR_SECONDS) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            store.creates.clear()
            asked = asyncio.create_task(asyncio.to_thread(leaders, ask, "payments"))
            await until(lambda: broker.pump.is_waited_for)
            assert not asked.done()
            store.creates.set()
            assert await asked == [("payments", 0, [1])]


async def test_a_broker_without_a_lease_makes_no_topic() -> None:
    line = Line(MemoryStore())
    async with broker_on(line) as broker:
        line.cut()
        await until(lambda: broker.metrics.lost_leases and broker.doors.are_open)
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            for _ in range(2):
                answer = await asyncio.to_thread(leaders, ask, "refunds")
                assert answer == [("refunds", ErrorCode.LEADER_NOT_AVAILABLE, [])]
        line.mend()


# -- the operator -----------------------------------------------------------------------------------------------------


class Told:
    """A health whose clock stands still between calls, and what it has told."""

    def __init__(self) -> None:
        self.at = 0.0
        self.outages: list[Outage] = []
        self.ends: list[float] = []
        self.health = StoreHealth(lambda: self.at, self.outages.append, self.ends.append)

    def fail(self, at: float, kind: Any = "create", error: Any = None) -> None:
        self.at = at
        self.health.note(kind, at - 0.1, error or Unsure("503"))


def test_a_single_failure_is_counted_and_not_told() -> None:
    told = Told()
    told.fail(10.0, error=Full("no space"))
    told.at = 10.5
    told.health.note("create", 10.4, None)
    told.fail(11.5)
    assert (told.outages, told.ends) == ([], [])
    assert told.health.errors == {"full": 1, "refused": 0, "silent": 0, "unsure": 1}


def test_an_outage_is_told_after_a_second_and_at_ever_longer_intervals_and_so_is_its_end() -> None:
    told = Told()
    told.fail(10.0, "replace")
    for tenth in range(3000):
        told.fail(10.0 + tenth / 10)
    pauses = [outage.next_line_seconds for outage in told.outages]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *(LINE_SECONDS_MAX for _ in pauses[6:])]
    assert len(pauses) < 12
    told.health.note("replace", told.at, None)
    assert told.ends == [], "slots still fail"
    told.health.note("create", told.at, None)
    assert told.ends == [pytest.approx(300.0)]
    assert told.health.failing_seconds == 0


def test_what_a_broker_can_do_without_is_no_outage() -> None:
    """Such as the right to delete."""
    told = Told()
    for second in range(30):
        told.fail(float(second), "other", StoreRefused("403"))
    assert told.health.failing_seconds == 0
    assert told.health.errors["refused"] == 30


def test_a_failure_of_long_ago_says_nothing_any_more() -> None:
    """A read that a client gave up is never repeated."""
    told = Told()
    told.fail(10.0, "get")
    told.fail(12.0, "get")
    assert told.health.failing_seconds > 2
    told.at = 12.5 + STALE_SECONDS
    assert told.health.failing_seconds == 0
    told.fail(told.at, "get")
    assert told.health.failing_seconds < 1
