"""Histories of transactions that overlap, commit late or are rolled back, and of relays that die at any statement,
beside a model that is a list of what was committed. The log holds each of it once, and of each aggregate in the order
that is promised: within a transaction as added, and between two of which one had committed before the other added."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, delete, event
from sqlalchemy.engine.base import Transaction

from cluster_under_test import CLIENT
from committed_records import committed_records, make_topic
from semel import outbox
from semel.database import engine_of
from semel.outbox import Relay
from semel.publish import Publisher

WRITERS = st.integers(0, 2)
AGGREGATES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("add"), WRITERS, AGGREGATES),
    st.tuples(st.just("add"), WRITERS, AGGREGATES),
    st.tuples(st.just("commit"), WRITERS),
    st.tuples(st.just("roll back"), WRITERS),
    # How many calls the relay lives for; each is a statement, a commit, or a batch that is sent or has been.
    st.tuples(st.just("relay dies"), st.integers(0, 45)),
    st.tuples(st.just("relay"), st.integers(1, 3)),
)


class Killed(BaseException):
    """As if the process had ended there."""


class Added(NamedTuple):
    """A message that was committed: when it was added, and when its transaction had committed."""

    aggregate: str
    value: str
    added_at: int
    committed_at: int
    transaction: int


@dataclass
class Writer:
    """An application's connection, and what is added in its open transaction."""

    connection: Connection
    number: int
    transaction: Transaction | None = None
    added: list[tuple[str, str, int]] = field(default_factory=list)


class World:
    def __init__(self, engine: Engine, bootstrap: str, topic: str) -> None:
        self._engine = engine
        self._bootstrap = bootstrap
        self._topic = topic
        # SQLite has one writer at a time.
        count = 1 if engine.dialect.name == "sqlite" else 3
        self._writers = [Writer(engine.connect(), number) for number in range(count)]
        self._now = 0
        self._transactions = 0
        self.committed: list[Added] = []

    def add(self, which: int, aggregate: str) -> None:
        writer = self._writer(which)
        if writer.transaction is None:
            writer.transaction = writer.connection.begin()
            self._transactions += 1
            writer.number = self._transactions
        value = f"{aggregate}{self._tick()}"
        outbox.add(writer.connection, self._topic, aggregate, value)
        writer.added.append((aggregate, value, self._now))

    def end(self, which: int, *, commits: bool) -> None:
        writer = self._writer(which)
        if writer.transaction is None:
            return
        if commits:
            writer.transaction.commit()
            at = self._tick()
            self.committed += [Added(*added, at, writer.number) for added in writer.added]
        else:
            writer.transaction.rollback()
        writer.transaction, writer.added = None, []

    def relay(self, batch_rows: int) -> None:
        if self._engine.dialect.name == "sqlite":
            self.end(0, commits=True)
        self._make_relay(self._engine, batch_rows).drain()

    def kill_relay(self, calls: int) -> None:
        if self._engine.dialect.name == "sqlite":
            self.end(0, commits=True)
        # An engine of its own: the connections of a process that dies are closed.
        engine = engine_of(self._engine.url)
        with dying_after(engine, calls) as publisher, contextlib.suppress(Killed):
            relay = self._make_relay(engine, 2)
            relay._publisher = lambda name: publisher(self._bootstrap, name, client=CLIENT)  # type: ignore[method-assign]
            relay.drain()
        engine.dispose()

    def close(self) -> None:
        for writer in self._writers:
            writer.connection.close()

    def _make_relay(self, engine: Engine, batch_rows: int) -> Relay:
        return Relay(engine, {"bootstrap.servers": self._bootstrap, **CLIENT}, batch_rows=batch_rows)

    def _writer(self, which: int) -> Writer:
        return self._writers[which % len(self._writers)]

    def _tick(self) -> int:
        self._now += 1
        return self._now


@contextlib.contextmanager
def dying_after(engine: Engine, calls: int) -> Iterator[type[Publisher]]:
    """All that is done on new connections of this engine, and with this publisher, ends after so many calls."""
    left = calls

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    class Dying(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            count()
            outcome = super().publish(number, *records)
            count()
            return outcome

    for name in ("before_cursor_execute", "commit"):
        event.listen(engine, name, count)
    try:
        yield Dying
    finally:
        for name in ("before_cursor_execute", "commit"):
            event.remove(engine, name, count)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=4, max_size=25))
def test_whatever_commits_is_in_the_log_once_and_in_the_order_that_is_promised(
    engine: Engine, bootstrap: str, steps: list[tuple[Any, ...]]
) -> None:
    topic = f"outbox-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, topic)
    with engine.begin() as connection:
        for table in outbox.metadata.sorted_tables:
            connection.execute(delete(table))
    world = World(engine, bootstrap, topic)
    try:
        for what, *how in steps:
            if what == "add":
                world.add(*how)
            elif what in ("commit", "roll back"):
                world.end(how[0], commits=what == "commit")
            elif what == "relay":
                world.relay(*how)
            else:
                world.kill_relay(*how)
        for which in range(3):
            world.end(which, commits=True)
        world.relay(2)
    finally:
        world.close()
    found = [(record.value() or b"").decode() for record in committed_records(bootstrap, topic)]  # type: ignore[union-attr]
    assert sorted(found) == sorted(added.value for added in world.committed)
    assert not [
        (before.value, after.value)
        for before in world.committed
        for after in world.committed
        if must_be_before(before, after) and found.index(before.value) > found.index(after.value)
    ]
    with engine.connect() as connection:
        assert outbox.status(connection).waiting == 0


def must_be_before(one: Added, other: Added) -> bool:
    if one.aggregate != other.aggregate:
        return False
    if one.transaction == other.transaction:
        return one.added_at < other.added_at
    return one.committed_at < other.added_at
