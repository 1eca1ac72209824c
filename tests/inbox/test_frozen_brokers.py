"""A broker that hangs (SIGSTOP) keeps its connections and answers nothing: a loop says so, in whatever state it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from committed_records import make_topic
from eventually import eventually
from semel.database import begin_immediately
from semel.inbox import AsyncInbox, Inbox, Message
from semel.testing.served import ServedBroker

# The client itself would notice nothing before the test is over.
LATE_MS = 600_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The database has no part in it."""
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "log") as served:
        yield served


def identity(message: Message) -> str:
    return (message.value or b"").decode()


def send(broker: ServedBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def committed(broker: ServedBroker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    try:
        [place] = consumer.committed([TopicPartition(topic, 0)], 60)
        return int(place.offset)
    finally:
        consumer.close()


def thaw(broker: ServedBroker) -> None:
    os.kill(broker.process_id, signal.SIGCONT)


@contextlib.contextmanager
def in_thread(inbox: Inbox | AsyncInbox, run: Callable[[], object], broker: ServedBroker) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thaw(broker)
        inbox.stop()
        thread.join(120)
    assert not thread.is_alive()


@contextlib.contextmanager
def consuming(broker: ServedBroker, engine: Engine, topic: str, heard: Callable[[], None]) -> Iterator[Inbox]:
    inbox = Inbox(engine, consumer="billing", identity=identity)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic}
    settings |= {name: str(LATE_MS) for name in ("session.timeout.ms", "max.poll.interval.ms")}
    settings |= {"socket.timeout.ms": "300000"}

    def handle(*_: object) -> None:
        heard()

    with in_thread(inbox, lambda: inbox.run(handle, settings, [topic]), broker):
        yield inbox


@contextlib.contextmanager
def consuming_on_asyncio(
    broker: ServedBroker, engine: Engine, topic: str, heard: Callable[[], None]
) -> Iterator[AsyncInbox]:
    asynchronous = create_async_engine(str(engine.url).replace("sqlite:", "sqlite+aiosqlite:"))
    begin_immediately(asynchronous.sync_engine)
    inbox = AsyncInbox(asynchronous, consumer="billing", identity=identity)
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": topic}
    late = dict.fromkeys(("session_timeout_ms", "request_timeout_ms", "max_poll_interval_ms"), LATE_MS)

    async def handle(*_: object) -> None:
        heard()

    with in_thread(inbox, lambda: asyncio.run(inbox.run(handle, settings | late, [topic])), broker):
        yield inbox


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("loop", [consuming, consuming_on_asyncio])
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "with offsets to commit"])
def test_a_loop_is_not_ready_while_its_broker_hangs(
    broker: ServedBroker, engine: Engine, topic: str, url: str, loop: Any, *, is_idle: bool
) -> None:
    make_topic(broker.bootstrap, topic)
    freezes = threading.Event()

    def freeze() -> None:
        os.kill(broker.process_id, signal.SIGSTOP)

    with loop(broker, engine, topic, lambda: freeze() if freezes.is_set() else None) as inbox:
        send(broker, topic, "first")
        assert eventually(lambda: inbox.counts.consumed == 1 and not inbox.why_not_ready(60))
        if is_idle:
            # Otherwise it would freeze over that commit.
            assert eventually(lambda: committed(broker, topic) == 1)
            freeze()
        else:
            freezes.set()
            send(broker, topic, "second")
        assert eventually(lambda: inbox.why_not_ready(60).startswith("no broker "))
        freezes.clear()
        thaw(broker)
        assert eventually(lambda: not inbox.why_not_ready(60))
        send(broker, topic, "third")
        assert eventually(lambda: inbox.counts.consumed == (2 if is_idle else 3))
