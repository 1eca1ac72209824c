"""What a standby answers, now that Metadata names it: it disturbs no client, whatever that asks of any broker."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from asking import Asker, ConnectionEnded
from eventually import eventually
from semel.log.broker import forwarder
from semel.log.broker.apis import APIS
from semel.log.broker.broker import Broker
from semel.log.broker.role import STANDBY_IDS
from semel.testing.pair import BrokerPair
from semel.testing.ports import free_port
from semel.testing.stores import MemoryStore
from semel.wire import versions
from semel.wire.errors import ErrorCode

# The type of a resource.
TOPIC = 2


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    """One that forwards, because nobody has to log in."""
    with BrokerPair() as pair:
        yield pair


@pytest.fixture
def strict_pair() -> Iterator[BrokerPair]:
    """One whose standby answers by itself, because the active broker has to know who asks."""
    with BrokerPair(access_rules=True, super_users=["User:ANONYMOUS"], insecure=True) as pair:
        yield pair


def metadata(ask: Asker, *names: str, creates: bool = True) -> Any:
    operations = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    topics = [{"name": name} for name in names]
    return ask(versions.METADATA, 8, topics=topics, allow_auto_topic_creation=creates, **operations)


def new_producer_id(ask: Asker) -> Any:
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return ask(versions.INIT_PRODUCER_ID, 4, **fields)


def retention(ask: Asker, topic: str) -> Any:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    (found,) = ask(
        versions.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    ).results
    return found


def with_retention(topic: str, value: str) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": value}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    return {"resources": [resource], "validate_only": False}


def set_retention(ask: Asker, topic: str, value: str) -> Any:
    (changed,) = ask(versions.INCREMENTAL_ALTER_CONFIGS, 1, **with_retention(topic, value)).responses
    return changed


def names(bootstrap: str, standbys: list[str]) -> bool:
    """Whether this broker names these standbys, by the same ids in Metadata and DescribeCluster."""
    with Asker(bootstrap) as ask:
        brokers = metadata(ask).brokers
        described = ask(
            versions.DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=False, include_fenced_brokers=False
        ).brokers
    found = {broker.node_id: f"{broker.host}:{broker.port}" for broker in brokers if broker.node_id >= STANDBY_IDS}
    same = {each.broker_id: f"{each.host}:{each.port}" for each in described if each.broker_id >= STANDBY_IDS}
    return found == same and list(found.values()) == standbys


def test_a_standby_is_named_while_it_runs_and_one_that_was_lost_is_not(pair: BrokerPair) -> None:
    for number in range(3):
        assert eventually(lambda: names(pair.active.bootstrap, [pair.standby.bootstrap]))
        assert eventually(lambda: names(pair.standby.bootstrap, [pair.standby.bootstrap]))
        pair.take_over("kill" if number else "stop", comes_back=False)
        for _ in range(20):
            assert names(pair.active.bootstrap, []), "the note of the broker that was lost does not count"
        pair.join()


def test_a_standby_forwards_what_any_broker_may_be_asked(pair: BrokerPair) -> None:
    with Asker(pair.standby.bootstrap) as ask:
        for number in range(20):
            topic = f"payments-{number}"
            (made,) = metadata(ask, topic).topics
            assert (made.error_code, len(made.partitions)) == (0, 1)
            assert set_retention(ask, topic, str(1000 + number)).error_code == 0
            assert retention(ask, topic).configs[0].value == str(1000 + number)
            assert new_producer_id(ask).error_code == 0
    assert len(pair.active._broker.log.state.catalog) == 20


def test_a_standby_answers_by_itself_where_clients_have_to_log_in(strict_pair: BrokerPair) -> None:
    with Asker(strict_pair.active.bootstrap) as ask:
        ask.create("payments", **{"retention.ms": "1234"})
    with Asker(strict_pair.standby.bootstrap) as ask:
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)
        assert retention(ask, "payments").configs[0].value == "1234"
        assert ask(versions.LIST_GROUPS, 4, states_filter=[]).error_code == ErrorCode.NONE
        with pytest.raises(ConnectionEnded):
            set_retention(ask, "payments", "1")
    with Asker(strict_pair.standby.bootstrap) as ask, pytest.raises(ConnectionEnded):
        new_producer_id(ask)
    with Asker(strict_pair.active.bootstrap) as ask:
        assert retention(ask, "payments").configs[0].value == "1234"


def test_a_client_that_goes_on_asking_a_standby_for_a_missing_topic_is_sent_away(strict_pair: BrokerPair) -> None:
    """It would ask for ever. Who hears of the active broker for the first time is told of it before."""
    with Asker(strict_pair.standby.bootstrap) as ask:
        answer = metadata(ask, "payments")
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == strict_pair.active.bootstrap
        (missing,) = metadata(ask, "payments", creates=False).topics
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ConnectionEnded):
            metadata(ask, "payments")
    with Asker(strict_pair.active.bootstrap) as ask:
        assert metadata(ask, "payments").topics[0].error_code == 0
    with Asker(strict_pair.standby.bootstrap) as ask:
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)


@pytest.mark.parametrize(
    ("api_key", "version", "what"),
    [(57, 2, "API 57"), (10_000, 0, "API 10000"), (versions.PRODUCE, 99, "version 99 of API 0")],
)
def test_a_standby_says_in_its_log_which_request_nobody_serves(
    pair: BrokerPair, caplog: pytest.LogCaptureFixture, api_key: int, version: int, what: str
) -> None:
    """As the active broker does. Nobody knows how the request is encoded, so it must not be decoded."""
    for broker in (pair.active, pair.standby):
        caplog.clear()
        header = api_key.to_bytes(2) + version.to_bytes(2) + correlation_id(1) + b"\xff\xff"
        with Asker(broker.bootstrap) as ask, pytest.raises(ConnectionEnded):
            ask.send(framed(header, bytes(20)))
        assert f"{what} is not served" in caplog.text


def test_a_standby_answers_by_itself_when_the_active_broker_is_lost(pair: BrokerPair) -> None:
    """At once, and whether the active broker refuses to be reached or does not answer."""
    with Asker(pair.active.bootstrap) as ask:
        ask.create("payments")
    with Asker(pair.standby.bootstrap) as ask:
        assert metadata(ask, "payments").topics[0].error_code == 0
        pair.active.kill()
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)
        answer = metadata(ask, "payments")
        assert f"{answer.brokers[-1].host}:{answer.brokers[-1].port}" == pair.standby.bootstrap


async def test_a_standby_whose_active_broker_seems_to_be_itself_does_not_forward_for_ever() -> None:
    """As behind a network that leads the address of the active broker back."""
    async with Misled() as misled:
        misled.leads_to = misled.standby.listeners[0].port
        await asyncio.to_thread(answers_by_itself, misled.standby)
        assert misled.connections == 1


async def test_two_standbys_that_take_each_other_for_the_active_broker_do_not_forward_for_ever() -> None:
    """As while one of them takes over: the other one knows that already, and the one itself is not active yet."""
    async with Misled() as one, Misled() as other:
        one.leads_to, other.leads_to = other.standby.listeners[0].port, one.standby.listeners[0].port
        await asyncio.to_thread(answers_by_itself, one.standby)
        assert (one.connections, other.connections) == (1, 0)


class Misled:
    """A standby of an active broker, whose connections to that one end elsewhere."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.active = Broker(store=store)
        self.standby = Broker(store=store, reach=self._reach)
        self.leads_to = 0
        # How many connections there were, how many are open, and how many were open at once.
        self.connections = self.open = self.open_most = 0

    async def _reach(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connections += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", self.leads_to)
        self.open += 1
        self.open_most = max(self.open_most, self.open)
        close = writer.close

        def closed() -> None:
            self.open -= 1
            close()

        writer.close = closed
        return reader, writer

    async def __aenter__(self) -> Self:
        await self.active.start()
        await self.standby.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.standby.stop()
        await self.active.stop()


def answers_by_itself(standby: Broker, times: int = 1) -> None:
    """It alone would say that there is no leader; the active broker would create the topic."""
    for _ in range(times):
        with Asker(standby.bootstrap) as ask:
            assert metadata(ask, "payments").topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def framed(*parts: bytes) -> bytes:
    return len(b"".join(parts)).to_bytes(4) + b"".join(parts)


def correlation_id(number: int) -> bytes:
    return number.to_bytes(4)


# What the broker at the address of the active one sends before it closes the connection, if it is none, or breaks.
# The client's request has the number 1.
NO_ANSWERS = {
    "nothing": b"",
    "half a size": b"\0\0",
    "half an answer": framed(correlation_id(1)) + (100).to_bytes(4) + correlation_id(1),
    "only that it is a broker": framed(correlation_id(1)),
    "an answer to another request": framed(correlation_id(1)) + framed(correlation_id(2), bytes(20)),
    "answers to other requests": framed(correlation_id(2)) + framed(correlation_id(1), bytes(20)),
    "an empty frame": framed(correlation_id(1)) + framed(),
    "a frame of negative size": framed(correlation_id(1)) + b"\xff\xff\xff\xff" + bytes(20),
    "a very large frame": framed(correlation_id(1)) + b"\x7f\xff\xff\xff" + bytes(20),
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_ANSWERS)
async def test_a_standby_answers_by_itself_when_what_comes_is_no_answer(sent: str) -> None:
    """And it forwards the next request: only one that cannot be reached, or is slow, makes clients wait. A broker of
    an older version hangs up at a request that it does not know, and so does each at a client that breaks the protocol.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(NO_ANSWERS[sent])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Misled() as misled:
        misled.leads_to = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(answers_by_itself, misled.standby, 3)
        assert misled.connections == 3


@pytest.mark.parametrize("why", ["it is slow", "it refuses", "its name is none"])
async def test_a_standby_does_not_make_each_client_wait_for_an_active_broker_that_cannot_be_reached(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "ANSWER_SECONDS_MAX", 0.01)
    monkeypatch.setattr(forwarder, "PAUSE_SECONDS", 1000.0)
    held = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server, Misled() as misled:
        misled.leads_to = server.sockets[0].getsockname()[1] if why == "it is slow" else free_port()
        if why == "its name is none":
            active = misled.standby.role.active_at(misled.standby.listeners[0])
            assert active == misled.active.listeners[0].reached_at
            misled.standby._forwarder._reach = lambda host, port: asyncio.open_connection("a..b", port)
            misled.connections += 1
        await asyncio.to_thread(answers_by_itself, misled.standby, 3)
        assert misled.connections == 1
        assert len(held) == (1 if why == "it is slow" else 0)


async def test_the_requests_of_one_client_are_done_in_their_order() -> None:
    """A client need not wait for an answer before it sends the next request, and the last value must win."""
    async with Misled() as misled:
        misled.leads_to = misled.active.listeners[0].port

        def change() -> None:
            with Asker(misled.active.bootstrap) as ask:
                ask.create("payments")
            with Asker(misled.standby.bootstrap) as ask:
                later = []
                for number in range(20):
                    fields = with_retention("payments", str(1000 + number))
                    later.append(ask.ask_later(versions.INCREMENTAL_ALTER_CONFIGS, 1, **fields))
                for answer in later:
                    assert answer().responses[0].error_code == 0
            with Asker(misled.active.bootstrap) as ask:
                assert retention(ask, "payments").configs[0].value == "1019"

        await asyncio.to_thread(change)
        assert (misled.connections, misled.open_most) == (20, 1)


async def unreached(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    raise AssertionError("it gave up before")


async def test_a_request_that_comes_just_before_a_takeover_is_answered() -> None:
    """Before the standby has begun to forward it: then it gives that up, and answers as the active broker."""
    ends: list[str] = []

    forwards = forwarder.Forwarder(unreached, 1000)
    forwards.forward(("host", 9092), request(), b"", lambda: ends.append("answered here"), lambda: None)
    forwards.give_up()
    await turns()
    assert ends == ["answered here"]


async def test_a_client_does_not_wait_for_an_active_broker_that_this_one_has_replaced() -> None:
    """The one whose answer a standby waits for is lost; the standby answers as soon as it is active itself."""
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server, Misled() as misled:
        misled.leads_to = server.sockets[0].getsockname()[1]
        with Asker(misled.standby.bootstrap) as ask:
            answer = asyncio.create_task(asyncio.to_thread(metadata, ask, "payments"))
            await asked.wait()
            await misled.active.stop()
            await misled.standby.activated
            await turns()
            assert misled.open == 0
            assert (await answer).topics[0].error_code == ErrorCode.NONE


async def test_a_request_that_comes_just_before_the_standby_stops_is_hung_up() -> None:
    ends: list[str] = []

    forwards = forwarder.Forwarder(unreached, 1000)
    exchange = request()
    exchange.reply_by_hanging_up = lambda: ends.append("hung up")
    forwards.forward(("host", 9092), exchange, b"", lambda: ends.append("answered here"), lambda: ends.append("done"))
    forwards.stop()
    await turns()
    assert ends == ["hung up", "done"]


async def test_a_request_whose_client_is_gone_is_answered_by_nobody() -> None:
    ends: list[str] = []

    forwards = forwarder.Forwarder(unreached, 1000)
    exchange = request(is_lost=True)
    forwards.forward(("host", 9092), exchange, b"", lambda: ends.append("answered here"), lambda: ends.append("done"))
    forwards.give_up()
    await turns()
    assert ends == ["done"]


@pytest.mark.virtual_time
async def test_a_standby_forwards_again_a_moment_after_the_active_broker_could_not_be_reached() -> None:
    async def refused(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    ends: list[str] = []
    forwards = forwarder.Forwarder(refused, 1000)
    assert forwards.takes(request())
    for _ in range(2):
        forwards.forward(("host", 9092), request(), b"", lambda: ends.append("answered here"), lambda: None)
        await turns()
        assert not forwards.takes(request())
        await asyncio.sleep(forwarder.PAUSE_SECONDS)
        assert forwards.takes(request())
    assert ends == ["answered here"] * 2


def request(*, is_lost: bool = False) -> Any:
    """A request for Metadata."""
    api = APIS[versions.METADATA]
    header = {"api": api, "api_key": api.key, "version": 8, "correlation_id": 1, "client_id": None}
    return SimpleNamespace(**header, is_lost=is_lost, connection=SimpleNamespace(is_of_a_standby=False))


async def turns() -> None:
    """Let everything happen for which nobody has to wait."""
    for _ in range(5):
        await asyncio.sleep(0)
