"""Partitions that change hands while events come: each event is done once, and in the order of its partition."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from effects import done
from sqlalchemy import Engine
from test_async_loop import asynchronous
from test_async_loop import handle as handle_async
from test_loop import AT_ONCE, handle, identity

from semel.database import engine_of
from semel.inbox import AsyncInbox, Counts, Inbox, Outcome
from semel.inbox.loop import Loop

PARTITIONS = 2
# A broker that never gives the second one a partition ends the test.
SECONDS_MAX = 60


class Events:
    """Sends one to each partition, and knows what that makes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.topic = topic
        self.sent = 0

    def send(self) -> None:
        for partition in range(PARTITIONS):
            event = {"id": f"{partition}-{self.sent // PARTITIONS:06}"}
            self.producer.produce(self.topic, json.dumps(event), partition=partition)
        assert self.producer.flush(30) == 0
        self.sent += PARTITIONS

    def check(self, engine: Engine) -> None:
        """Each is done once, in the order of its partition."""
        for partition in range(PARTITIONS):
            own = [name for name in done(engine) if name.startswith(f"{partition}-")]
            assert own == [f"{partition}-{number:06}" for number in range(self.sent // PARTITIONS)]


counted = threading.Condition()


class Watched(Loop[Any]):
    """Tells whoever waits for it of each message that it is done with."""

    def _count(self, outcome: Outcome | None) -> None:
        with counted:
            super()._count(outcome)
            counted.notify_all()


class WatchedInbox(Watched, Inbox):
    pass


class WatchedAsyncInbox(Watched, AsyncInbox):
    pass


def wait_for(is_so: Callable[[], bool]) -> None:
    with counted:
        assert counted.wait_for(is_so, timeout=SECONDS_MAX)


def test_a_second_loop_takes_over_a_partition_and_nothing_is_doubled_or_out_of_order(
    engine: Engine, url: str, bootstrap: str, topic: str
) -> None:
    events = Events(bootstrap, topic)
    engines = [engine_of(url) for _ in range(2)]
    first, second = (WatchedInbox(one, consumer="billing", identity=identity, retries=AT_ONCE) for one in engines)

    # A member that is heard of often hears soon that there is another one.
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "heartbeat.interval.ms": 100}

    def run(inbox: Inbox) -> None:
        inbox.run(handle, config, [topic])

    with ThreadPoolExecutor() as pool:
        running = [pool.submit(run, first)]
        try:
            events.send()
            wait_for(lambda: first.counts.consumed == events.sent)
            running.append(pool.submit(run, second))
            deadline = time.monotonic() + SECONDS_MAX
            while second.counts.consumed == 0 and time.monotonic() < deadline:
                events.send()
                wait_for(lambda: first.counts.first_time + second.counts.first_time == events.sent)
        finally:
            first.stop()
            second.stop()
        for one in running:
            one.result(60)
    for one in engines:
        one.dispose()
    assert second.counts.consumed > 0
    events.check(engine)


def test_a_second_asynchronous_loop_takes_over_a_partition_too(
    engine: Engine, url: str, bootstrap: str, topic: str
) -> None:
    events = Events(bootstrap, topic)

    async def work() -> Counts:
        made = asynchronous(url)
        first, second = (
            WatchedAsyncInbox(made, consumer="billing", identity=identity, retries=AT_ONCE) for _ in range(2)
        )
        # A member that is heard of often hears soon that there is another one.
        config = {"bootstrap_servers": bootstrap, "group_id": topic, "heartbeat_interval_ms": 100}

        async def until(is_so: Callable[[], bool]) -> None:
            deadline = time.monotonic() + SECONDS_MAX
            while not is_so() and time.monotonic() < deadline:
                await asyncio.to_thread(events.send)
                await asyncio.to_thread(
                    wait_for, lambda: first.counts.first_time + second.counts.first_time == events.sent
                )

        async with asyncio.TaskGroup() as group:
            group.create_task(first.run(handle_async, config, [topic]))
            await until(lambda: first.counts.consumed > 0)
            group.create_task(second.run(handle_async, config, [topic]))
            await until(lambda: second.counts.consumed > 0)
            first.stop()
            second.stop()
        await made.dispose()
        return second.counts

    assert asyncio.run(work()).consumed > 0
    events.check(engine)
