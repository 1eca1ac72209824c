"""What a loop says of brokers that give it nothing: once what is wrong, with what to do, and once that it is over."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from test_loop import committed

from committed_records import make_topic
from semel.database import begin_immediately
from semel.inbox import AsyncInbox, Inbox, Message
from semel.inbox.brokers import NO_TOPIC, NO_TOPIC_SEEN, SAY_AFTER_MS, Brokers
from semel.inbox.confluent import for_confluent
from semel.publish.clients import remedy_of
from semel.testing.broker import FaultyBroker
from semel.testing.clock import Clock
from semel.testing.served import ServedBroker

OVER = "going on: the brokers give what they were waited for"


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "semel.inbox"]


def send(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, json.dumps({"id": "p-1"}))
    assert producer.flush(60) == 0


def identity(message: Message) -> str:
    return str(json.loads(message.value or b"")["id"])


def handle(connection: Connection, message: Message) -> None:
    """It is enough that it came."""


def run_until(
    engine: Engine,
    bootstrap: str,
    topic: str,
    is_done: Callable[[Inbox], bool],
    handle: Callable[[Connection, Message], object] = handle,
    **more_settings: object,
) -> Inbox:
    """A second passes for the loop each time it looks at its clock."""
    clock = Clock()

    def later() -> int:
        clock.ms += 1_000
        if is_done(inbox):
            inbox.stop()
        return clock.ms

    inbox = Inbox(
        engine, consumer="billing", identity=lambda message: json.loads(message.value or b"")["id"], clock=later
    )
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "topic.metadata.refresh.interval.ms": 100}
    inbox.run(handle, settings | more_settings, [topic])
    return inbox


def test_a_topic_that_is_missing_is_said_once_and_once_that_it_is_there(
    engine: Engine, topic: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with ServedBroker(tmp_path / "log", "--no-auto-create-topics") as broker:
        looks = iter(range(1_000_000))

        def is_done(inbox: Inbox) -> bool:
            # Long after it was said it was not said again.
            if said_of(caplog) and next(looks) == 12:
                make_topic(broker.bootstrap, topic)
            return OVER in said_of(caplog)

        run_until(engine, broker.bootstrap, topic, is_done)
    assert said_of(caplog) == [f"waiting: {NO_TOPIC.format(topic)}", OVER]


def test_a_broker_that_is_away_is_said_once_and_once_that_it_is_back(
    engine: Engine, faulty: FaultyBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(faulty.bootstrap, topic)
    faulty.kill()
    looks = iter(range(1_000_000))

    def is_done(inbox: Inbox) -> bool:
        if said_of(caplog) and next(looks) == 10:
            faulty.restart()
        return inbox.counts.consumed == 1

    run_until(engine, faulty.bootstrap, topic, is_done)
    [waiting, over] = said_of(caplog)
    assert waiting.startswith("waiting: no broker answers: ")
    assert waiting.endswith(remedy_of(KafkaError(KafkaError._TRANSPORT)))
    assert over == OVER


def test_a_broker_that_goes_before_an_offset_is_committed_is_waited_for(
    engine: Engine, faulty: FaultyBroker, topic: str
) -> None:
    """The client waits for the coordinator as long as a session lasts, and then gives the commit up."""
    send(faulty.bootstrap, topic)
    looks_without_it = iter(range(1_000_000))
    away = False

    def handle(connection: Connection, message: Message) -> None:
        nonlocal away
        if not away:
            away = True
            faulty.kill()

    def is_done(inbox: Inbox) -> bool:
        # Its first commit is due after some of these.
        if away and next(looks_without_it) == 20:
            faulty.restart()
            send(faulty.bootstrap, topic)
        return inbox.counts.consumed == 2

    run_until(engine, faulty.bootstrap, topic, is_done, handle, **{"session.timeout.ms": 6_000})


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_commit_while_another_broker_takes_the_group_over_ends_no_loop(
    engine: Engine, faulty: FaultyBroker, topic: str, error: str
) -> None:
    """So an inbox ended when the active broker resigned. The offset is committed later: librdkafka finds the
    coordinator again when the session is over."""
    send(faulty.bootstrap, topic)
    faulty.fail("OffsetCommit", error, 2)

    def is_done(_inbox: Inbox) -> bool:
        return not faulty.unfired and committed(faulty.bootstrap, topic) == 1

    run_until(engine, faulty.bootstrap, topic, is_done, **{"session.timeout.ms": 6_000})


def test_nothing_is_asked_before_some_seconds_have_gone_by() -> None:
    clock = Clock()
    brokers = Brokers(clock)
    brokers.doubt(KafkaError(KafkaError._TRANSPORT, "refused"))
    asked = []
    for _ in range(2 * SAY_AFTER_MS + 1):
        asked.append(brokers.is_time_to_ask())
        clock.ms += 1
    assert [at_ms for at_ms, is_asked in enumerate(asked) if is_asked] == [SAY_AFTER_MS, 2 * SAY_AFTER_MS]
    brokers.are_well()
    assert not brokers.is_time_to_ask()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError._AUTHENTICATION, "look at sasl.mechanism, sasl.username and sasl.password"),
        (KafkaError._TRANSPORT, "look at bootstrap.servers and security.protocol, and whether a broker runs there"),
    ],
)
def test_a_login_that_is_wrong_is_not_said_to_be_a_broker_that_is_away(
    code: int, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(Clock())
    brokers.doubt(KafkaError(code, "what the client says"))
    client = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "x", "log_level": 0})
    wrong = brokers.wrong_with(client, ["orders"])
    client.close()
    assert wrong == f"no broker answers: what the client says: {remedy}"


def test_a_loop_on_asyncio_says_the_same(
    url: str, engine: Engine, topic: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    asynchronous = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    begin_immediately(asynchronous.sync_engine)
    clock = Clock()
    looks = iter(range(1_000_000))

    async def handle_it(connection: AsyncConnection, message: Message) -> None:
        inbox.stop()

    with ServedBroker(tmp_path / "log", "--no-auto-create-topics") as broker:

        def later() -> int:
            clock.ms += 1_000
            if said_of(caplog) and next(looks) == 12:
                make_topic(broker.bootstrap, topic)
                send(broker.bootstrap, topic)
            return clock.ms

        inbox = AsyncInbox(asynchronous, consumer="billing", identity=identity, clock=later)
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": topic,
            "metadata_max_age_ms": 200,
            "heartbeat_interval_ms": 100,
        }
        asyncio.run(inbox.run(handle_it, settings, [topic]))
    assert said_of(caplog) == [f"waiting: {NO_TOPIC_SEEN.format(topic)}", OVER]


def test_a_group_that_gives_no_partitions_is_named_with_what_to_look_at(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(Clock())
    for _ in range(3):
        brokers.tell(None)
    brokers.give_partitions()
    brokers.tell(None)
    [waiting, over] = said_of(caplog)
    # A restart after kill -9 is more frequent than a cluster that cannot keep offsets.
    assert waiting.index("a member that was killed") < waiting.index("offsets.topic.replication.factor")
    assert "group.instance.id" in waiting
    assert over == OVER


def test_the_client_asks_its_bootstrap_servers_again_and_its_own_callback_is_called() -> None:
    heard: list[object] = []
    settings = for_confluent({"group.id": "x", "error_cb": heard.append}, heard.append)
    settings["error_cb"]("error")
    assert (heard, settings["metadata.recovery.strategy"]) == (["error", "error"], "rebootstrap")
    own = for_confluent({"group.id": "x", "metadata.recovery.strategy": "none"}, heard.append)
    assert own["metadata.recovery.strategy"] == "none"


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "semel.inbox")
