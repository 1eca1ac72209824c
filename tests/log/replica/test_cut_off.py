"""A broker that is cut off from its store has no clients when its lease is over: they would wait for it, and ask nobody
else. It waits for no answer of the store before that, and begins again by itself."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, ConnectionEnded
from cut_line import CutLine
from eventually import SECONDS_MAX, eventually
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.log.broker.failure import BrokerCutOff, BrokerFenced
from semel.log.replica.health import StoreHealth
from semel.log.replica.lease import LEASE_KEY
from semel.log.replica.resignation import StaysActive, have_resign
from semel.log.replica.timely import CALL_SECONDS_MIN, TimelyStore
from semel.log.store import Unsure
from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer
from semel.testing.served import ServedBroker
from semel.testing.stores import MemoryStore
from semel.wire import versions
from semel_command import semel_failure, semel_lines
from takeover_pair import fresh_bucket

LEASE_SECONDS = 0.5


class Line:
    """A `Store` over another one, for one broker; while it is cut, no call is answered, and none happens."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._passes = asyncio.Event()
        self._passes.set()

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name in ("list", "describe", "close", "objects"):
            return call

        async def passing(*arguments: Any) -> Any:
            if not self._passes.is_set():
                # Bytes that have vanished do not come later.
                await asyncio.Event().wait()
            return await call(*arguments)

        return passing


def health() -> StoreHealth:
    return StoreHealth(asyncio.get_running_loop().time, lambda _: None, lambda _: None)


def broker_on(line: Line, lease_seconds: float = LEASE_SECONDS, **options: Any) -> Broker:
    return Broker(store=line, lease_seconds=lease_seconds, **options)  # type: ignore[arg-type]


async def until(what: Any) -> None:
    await asyncio.to_thread(eventually, what)


def is_refused(broker: Broker) -> bool:
    try:
        Asker(broker.bootstrap).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_a_broker_whose_store_does_not_answer_ends_all_connections_and_listens_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a client that is idle, of one that waits for records, and of one whose record is under way to the store. Two
    leases later another broker would be active, if there were one: then it listens again, and leads nothing."""
    line = Line(MemoryStore())
    caplog.set_level(logging.INFO, "semel")
    async with broker_on(line) as broker:
        clients = [await asyncio.to_thread(Asker, broker.bootstrap) for _ in range(3)]
        idle, reading, writing = clients
        await asyncio.to_thread(idle.create, "payments")
        line.cut()
        fetch = {"name": "payments"}
        reading.ask_later(versions.FETCH, 12, **waiting_fetch(fetch["name"]))
        writing.ask_later(versions.CREATE_TOPICS, 4, **another_topic())
        for client in clients:
            with pytest.raises((ConnectionEnded, ConnectionResetError)):
                await asyncio.to_thread(client.read)
            client.close()
        assert not broker.doors.are_open
        assert "semel_active 0\n" in exposition(broker)
        assert "semel_lost_leases_total 1\n" in exposition(broker)
        (told,) = [record for record in caplog.records if "gave_up_clients" in record.getMessage()]
        assert told.levelno == logging.ERROR
        await until(lambda: not is_refused(broker))
        assert "semel_active 0\n" in exposition(broker)
        line.mend()
        await until(lambda: "takes_clients_again" in caplog.text)
        assert "semel_active 1\n" in exposition(broker)
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "refunds")
        assert not broker.failed.done()


def waiting_fetch(topic: str) -> dict[str, Any]:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
    wanted |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    fields = {"replica_id": -1, "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0}
    fields |= {"session_id": 0, "session_epoch": -1, "rack_id": "", "forgotten_topics_data": []}
    return {**fields, "topics": [{"topic": topic, "partitions": [wanted]}]}


def another_topic() -> dict[str, Any]:
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 1000, "validate_only": False}


async def test_a_broker_has_no_clients_any_more_when_another_one_becomes_active(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the clock that both have. It begins again in the same process when it is told of the other one."""
    store = MemoryStore()
    lines = Line(store), Line(store)
    first, second = broker_on(lines[0]), broker_on(lines[1])
    await first.start()
    await second.start()
    client = await asyncio.to_thread(Asker, first.bootstrap)
    lines[0].cut()
    # Whether the first one had clients in the turn in which the second one became active.
    state: list[tuple[int, bool]] = []
    second.activated.add_done_callback(lambda _: state.append((len(first.connections), first.doors.are_open)))
    async with asyncio.timeout(SECONDS_MAX):
        await second.activated
        await asyncio.sleep(0)
    assert state == [(0, False)]
    lines[0].mend()
    with pytest.raises(BrokerCutOff):
        async with asyncio.timeout(SECONDS_MAX):
            await first.failed
    assert [one.levelname for one in caplog.records if "event=gave_way" in one.getMessage()] == ["WARNING"]
    assert "stopped_serving" not in caplog.text
    client.close()
    await first.stop()
    await second.stop()


def named_active(ask: Asker) -> int:
    """The port of the broker to which Metadata and FindCoordinator lead."""
    fields = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    metadata = ask(versions.METADATA, 8, topics=[], allow_auto_topic_creation=False, **fields)
    (port,) = {broker.port for broker in metadata.brokers if broker.node_id == metadata.controller_id}
    assert ask(versions.FIND_COORDINATOR, 2, key="payments", key_type=0).port == port
    return int(port)


async def test_a_standby_leads_nobody_to_a_broker_that_is_probably_lost() -> None:
    """Clients try again after ever longer pauses to reach a broker that they were told of, and so find the next one
    late. A standby answers them when it is active."""
    store = MemoryStore()
    line = Line(store)
    async with broker_on(line, lease_seconds=2) as first, broker_on(Line(store), lease_seconds=2) as second:
        with await asyncio.to_thread(Asker, second.bootstrap) as ask:
            assert await asyncio.to_thread(named_active, ask) == first.listeners[0].port
            line.cut()
            await until(lambda: second.role.is_in_doubt or second.role.is_active)
            assert await asyncio.to_thread(named_active, ask) == second.listeners[0].port
        assert second.role.is_active


async def test_no_question_waits_for_longer_than_a_lease() -> None:
    """The store is away for both: nobody takes over, and whoever asks is told what was known last."""
    store = MemoryStore()
    lines = Line(store), Line(store)
    async with broker_on(lines[0]) as first, broker_on(lines[1]) as second:
        with await asyncio.to_thread(Asker, second.bootstrap) as ask:
            lines[0].cut()
            await until(lambda: second.role.is_in_doubt)
            lines[1].cut()
            assert await asyncio.to_thread(named_active, ask) in (first.listeners[0].port, second.listeners[0].port)


async def test_a_broker_that_has_stood_still_serves_nobody_before_it_gives_its_clients_up() -> None:
    """What came meanwhile lies before it as soon as it goes on, and the timer that gives the clients up does, too."""
    jump = 0.0
    loop = asyncio.get_running_loop()
    async with broker_on(Line(MemoryStore()), boot_clock=lambda: loop.time() + jump) as broker:
        assert broker.role.may_serve
        # Nothing else runs between the jump and the question.
        jump = 10 * LEASE_SECONDS
        assert not broker.role.may_serve
        jump = 0.0


async def test_a_broker_that_gives_its_clients_up_late_ends_as_fenced_and_does_not_begin_again() -> None:
    """Its process has stood still, or its clock has jumped: a supervisor starts it anew."""
    jump = 0.0
    store = MemoryStore()
    line = Line(store)
    loop = asyncio.get_running_loop()
    first, second = broker_on(line, boot_clock=lambda: loop.time() + jump), broker_on(Line(store))
    await first.start()
    await second.start()
    line.cut()
    jump = 10 * LEASE_SECONDS
    async with asyncio.timeout(SECONDS_MAX):
        await second.activated
    assert not first.doors.are_open
    line.mend()
    with pytest.raises(BrokerFenced) as raised:
        async with asyncio.timeout(SECONDS_MAX):
            await first.failed
    assert not isinstance(raised.value, BrokerCutOff)
    await first.stop()
    await second.stop()


async def test_after_both_were_cut_off_the_standby_takes_over_at_once() -> None:
    """Its clients know it, and could not reach the other one."""
    store = MemoryStore()
    lines = Line(store), Line(store)
    first, second = broker_on(lines[0]), broker_on(lines[1])
    await first.start()
    await second.start()
    assert await first.role.finds_standby()
    for line in lines:
        line.cut()
    await until(lambda: not first.doors.are_open)
    for line in lines:
        line.mend()
    with pytest.raises(BrokerCutOff):
        async with asyncio.timeout(SECONDS_MAX):
            await first.failed
    async with asyncio.timeout(SECONDS_MAX):
        await second.activated
    await first.stop()
    await second.stop()


# -- a planned takeover -----------------------------------------------------------------------------------------------


async def test_a_broker_that_is_asked_to_resign_hands_over_while_clients_are_served() -> None:
    """And nobody but the store is asked. The lease is never without a holder who serves longer than that takes."""
    store = MemoryStore()
    first, second = broker_on(Line(store)), broker_on(Line(store))
    await first.start()
    await second.start()
    resigning = asyncio.create_task(have_resign(store))
    async with asyncio.timeout(SECONDS_MAX):
        await first.resigned
    assert first.role.may_serve
    await first.stop()
    former, lease = await resigning
    assert list(former.values()) == [first.listeners[0].reached_at]
    assert (list(lease.addresses.values()), lease.epoch) == ([second.listeners[0].reached_at], 2)
    assert second.role.may_serve
    await second.stop()


async def test_a_broker_without_a_standby_does_not_resign() -> None:
    store = MemoryStore()
    async with broker_on(Line(store)) as broker:
        with pytest.raises(StaysActive, match="has found no standby"):
            await have_resign(store)
        assert broker.role.may_serve
        assert not broker.resigned.done()
    with pytest.raises(StaysActive, match="no broker is active"):
        await have_resign(store)


async def test_two_operators_who_want_a_takeover_at_once_cost_no_broker_its_lease() -> None:
    store = MemoryStore()
    first, second = broker_on(Line(store)), broker_on(Line(store))
    await first.start()
    await second.start()
    operators = [asyncio.create_task(have_resign(store)) for _ in range(3)]
    async with asyncio.timeout(SECONDS_MAX):
        await first.resigned
    await first.stop()
    assert {lease.epoch for _, lease in await asyncio.gather(*operators)} == {2}
    assert not second.failed.done()
    assert not second.resigned.done()
    await second.stop()


# -- calls that nobody answers ----------------------------------------------------------------------------------------


class Silent(MemoryStore):
    """Answers after some seconds."""

    seconds = 0.0

    async def _send(self, call: Any, key: str, land: Any) -> Any:
        await asyncio.sleep(self.seconds)
        return await super()._send(call, key, land)


@pytest.mark.virtual_time
async def test_a_call_that_is_not_answered_is_given_up_and_the_next_one_has_twice_the_time() -> None:
    store = Silent()
    timely = TimelyStore(store, 3.0, health())
    loop = asyncio.get_running_loop()
    for key in (LEASE_KEY, "floor"):
        await timely.create(key, b"one")

    async def given_up_after(key: str) -> float:
        began = loop.time()
        with pytest.raises(Unsure, match="no answer for"):
            await timely.get(key)
        return loop.time() - began

    store.seconds = 1.5 * CALL_SECONDS_MIN
    assert await given_up_after("floor") == pytest.approx(1)
    assert (await timely.get("floor")).body == b"one"
    assert await given_up_after("floor") == pytest.approx(1), "it was answered, so it is not slow any more"
    for _ in range(3):
        assert await given_up_after(LEASE_KEY) == pytest.approx(1)


@pytest.mark.virtual_time
async def test_a_large_body_has_the_time_of_a_slow_line() -> None:
    store = Silent()
    timely = TimelyStore(store, 3.0, health())
    store.seconds = 4
    body = bytes(4 * 1024 * 1024)
    await timely.create("journal/0", body)
    assert len(await timely.get_range("journal/0", 0, len(body))) == len(body)
    await timely.create("checkpoints/0", body)
    # How large it is, is known only afterwards.
    assert len((await timely.get("checkpoints/0")).body) == len(body)


@pytest.fixture
def seaweedfs() -> Iterator[SeaweedServer]:
    try:
        server = SeaweedServer()
    except SeaweedMissing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


# -- from outside -----------------------------------------------------------------------------------------------------


def test_semel_serve_stands_by_again_by_itself_after_it_was_cut_off(seaweedfs: SeaweedServer, tmp_path: Path) -> None:
    """In the same process and at the same address, while another broker is active."""
    url = fresh_bucket(seaweedfs)
    with CutLine(url) as line:
        first = ServedBroker(tmp_path / "first", f"--store={line.url}", "--lease-seconds=2")
        second = ServedBroker(tmp_path / "second", f"--store={url}", "--lease-seconds=2")
        try:
            first.start()
            second.start()
            process, bootstrap = first.process_id, first.bootstrap
            line.set("vanishes")
            second.wait_until_active()
            line.set("passes")
            first.wait_until_standing_by()
            assert (first.process_id, first.bootstrap) == (process, bootstrap)
            assert first.exit_code is None
            line.set("refuses")
            line.set("passes")
            second.stop()
            first.wait_until_active()
        finally:
            first.kill()
            second.kill()


def test_who_resigns_stands_by_in_the_same_process_and_a_producer_goes_on(tmp_path: Path) -> None:
    """The service manager is told of no end: it would kill the standby some time later."""
    url = f"file://{tmp_path}/store"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.settimeout(SECONDS_MAX)
    # A name without a file, because TMPDIR may be longer than the address of such a socket.
    address = f"semel-{os.getpid()}-{tmp_path.name}"
    manager.bind(f"\0{address}")
    first, second = (
        ServedBroker(
            *(tmp_path / name, f"--store={url}", "--lease-seconds=1"),
            environment={"NOTIFY_SOCKET": f"@{address}"},
        )
        for name in ("first", "second")
    )
    try:
        first.start()
        second.start()
        process = first.process_id
        servers = f"{first.bootstrap},{second.bootstrap}"
        for epoch, active, other in ((2, first, second), (3, second, first)):
            semel_lines("produce", "payments", f"--bootstrap={servers}", stdin="1 book\n")
            assert semel_lines("resign", url) == [
                f"{active.bootstrap} has resigned; {other.bootstrap} is active, epoch {epoch}"
            ]
            active.wait_until_standing_by()
        assert (first.process_id, first.exit_code) == (process, None)
        assert len(semel_lines("tail", "payments", f"--bootstrap={servers}")) == 2
        told = [manager.recv(1024).partition(b"\n")[0] for _ in range(6)]
        assert set(told) == {b"READY=1"}, "each of them twice, and then once more where it stands by or is active"
        second.stop()
        assert manager.recv(1024) == b"STOPPING=1"
        refusal = f"{url}: the active broker has found no standby, and stays active: start a standby first"
        assert semel_failure("resign", url) == refusal
    finally:
        first.kill()
        second.kill()
