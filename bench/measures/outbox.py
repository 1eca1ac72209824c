"""The measure of the outbox: from the commit of an application's transaction to a consumer, beside a relay as most
write it. It must never count a run in which a message is missing, doubled or out of its order."""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from statistics import median
from typing import ClassVar, Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import Connection, Engine, insert

from bench import clients
from bench.clients import LoadFailed
from bench.databases import TITLES, Databases
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers import skip_locked
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import Program, take_turns
from semel import outbox
from semel.database import engine_of

VALUE_BYTES: Final = 200
# The end of a value, which is its number.
KEY_BYTES: Final = 12
CONSUME_MESSAGES_MAX: Final = 10_000
CONSUME_POLL_SECONDS: Final = 1.0
CONSUME_SECONDS_MAX: Final = 120.0
# Longer than the peer waits between two looks, so that messages come at any moment of its wait.
PAUSE_SECONDS_MAX: Final = 0.1
EXACTLY_ONCE: Final = (
    "the peer may send a batch twice. semel's relay numbers each batch in the database and commits it in a Kafka "
    "transaction, and both take round trips that the peer does not make."
)


class Outbox(Measure):
    """From an application that adds messages of 200 B to a consumer that reads what is committed, through a relay in a
    process of its own. Messages a second where one transaction after another adds one, until the last is consumed;
    messages a second from the commit of one transaction that adds all of them, which is how fast a relay that was away
    catches up; and milliseconds from a commit to the consumer, p50, of one message at a random moment when the relay
    has nothing to do. The peer is a relay that polls every 50 ms, `SELECT ... FOR UPDATE SKIP LOCKED` (on SQLite, where
    there are no such locks, without), produces idempotently and deletes: in Python, too, and with as large batches. It
    may send a batch twice; semel's does not. Both take turns on one database and one broker, with fsync."""

    name = "outbox"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = tuple(
        row
        for kind, title in TITLES.items()
        for row in (
            Row.beside(
                f"outbox, {title}, a message a transaction; a polling relay, messages/s",
                f"{kind}_semel_rate",
                f"{kind}_peer_rate",
                Target(Kind.RATIO_AT_LEAST, 1.0),
                reason=EXACTLY_ONCE,
            ),
            Row.beside(
                "the same, a backlog in one transaction, messages/s",
                f"{kind}_semel_backlog",
                f"{kind}_peer_backlog",
                Target(Kind.RATIO_AT_LEAST, 1.0),
                reason=EXACTLY_ONCE,
            ),
            Row.beside(
                "the same, one message, commit to consumer, p50 ms",
                f"{kind}_semel_p50_ms",
                f"{kind}_peer_p50_ms",
                Target(Kind.VALUE_AT_MOST, 50),
                decimals=1,
            ),
        )
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        figures = {}
        with Databases() as databases:
            for kind in TITLES:
                found = measured(kind, databases.new(kind), broker, scale)
                figures |= {f"{kind}_{metric}": value for metric, value in found.items()}
        return figures


class Side(NamedTuple):
    """One of the two relays, and how an application adds messages for it."""

    topic: str
    command: list[str]
    add: Callable[[Connection, str, list[bytes]], None]


def sides_on(kind: str, url: str, bootstrap: str) -> dict[str, Side]:
    executable = str(Path(sys.executable).with_name("semel"))
    ours = [executable, "outbox", "run", "--database", url, "--bootstrap", bootstrap]
    theirs = [sys.executable, str(Path(skip_locked.__file__)), url, bootstrap]
    return {"semel": Side(f"{kind}-semel", ours, add_to_semel), "peer": Side(f"{kind}-peer", theirs, add_to_peer)}


def add_to_semel(connection: Connection, topic: str, values: list[bytes]) -> None:
    outbox.add_many(connection, [outbox.Message(topic, value[-KEY_BYTES:], value) for value in values])


def add_to_peer(connection: Connection, topic: str, values: list[bytes]) -> None:
    rows = [{"topic": topic, "key": value[-KEY_BYTES:], "value": value} for value in values]
    connection.execute(insert(skip_locked.waiting), rows)


class Line:
    """An application, its relay, and a consumer of what the relay publishes."""

    def __init__(self, side: Side, engine: Engine, broker: Broker) -> None:
        self._side = side
        self._engine = engine
        self._numbers = count()
        clients.create_topic(broker, side.topic, 1)
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
        self._consumer.assign([TopicPartition(side.topic, 0, 0)])

    def seconds_after_commit(self, messages: int) -> float:
        """From the commit of so many messages until the last of them is consumed."""
        values = self._values(messages)
        self._commit(values)
        began = time.perf_counter()
        self._consume(values)
        return time.perf_counter() - began

    def seconds_one_by_one(self, messages: int) -> float:
        """From the begin of the first of so many transactions until the message of the last is consumed."""
        values = self._values(messages)
        began = time.perf_counter()
        for value in values:
            self._commit([value])
        self._consume(values)
        return time.perf_counter() - began

    def _values(self, messages: int) -> list[bytes]:
        return [b"%0*d" % (VALUE_BYTES, next(self._numbers)) for _ in range(messages)]

    def _commit(self, values: list[bytes]) -> None:
        with self._engine.begin() as connection:
            self._side.add(connection, self._side.topic, values)

    def _consume(self, values: list[bytes]) -> None:
        found: list[bytes | None] = []
        deadline = time.monotonic() + CONSUME_SECONDS_MAX
        while len(found) < len(values) and time.monotonic() < deadline:
            wanted = min(len(values) - len(found), CONSUME_MESSAGES_MAX)
            found += [message.value() for message in self._consumer.consume(wanted, CONSUME_POLL_SECONDS)]
        if found != values:
            raise LoadFailed(f"{self._side.topic}: {len(found)} messages of {len(values)} came, or not in their order")

    def close(self) -> None:
        self._consumer.close()


def measured(kind: str, url: str, broker: Broker, scale: Scale) -> dict[str, float]:
    engine = engine_of(url)
    outbox.metadata.create_all(engine)
    skip_locked.tables.create_all(engine)
    found: dict[str, list[float]] = defaultdict(list)
    sides = sides_on(kind, url, broker.bootstrap)
    chance = random.Random(17)
    with ExitStack() as running:
        lines = {}
        for name, side in sides.items():
            running.enter_context(Program("relay", side.command))
            lines[name] = running.enter_context(closing(Line(side, engine, broker)))
            # The relay is there, and everything is warm.
            lines[name].seconds_after_commit(scale.outbox_messages // 10)
        for _, name in take_turns(lines, scale.outbox_turns):
            line, transactions, backlog = lines[name], scale.outbox_transactions, scale.outbox_messages
            found[f"{name}_rate"].append(transactions / line.seconds_one_by_one(transactions))
            found[f"{name}_backlog"].append(backlog / line.seconds_after_commit(backlog))
            for _ in range(scale.outbox_singles):
                time.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
                found[f"{name}_p50_ms"].append(line.seconds_after_commit(1) * 1e3)
    engine.dispose()
    return {metric: median(values) for metric, values in found.items()}
