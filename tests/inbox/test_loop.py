"""The loop does each event once, puts aside what cannot be done, keeps the order, and commits offsets last."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from effects import do, done
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import KafkaProducer
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from semel.inbox import BrokerCoordinates, Counts, Inbox, LoopFailed, Message, Outcome, Retries, Version, quarantine
from semel.inbox.quarantine import State, events
from semel.testing.clock import Clock

AT_ONCE = Retries(attempts=3, first_wait_ms=1, wait_ms_max=1)


def identity(message: Message) -> str | Version:
    event = json.loads(message.value or b"")
    return Version(event["order"], event["version"]) if "order" in event else str(event["id"])


def handle(connection: Connection, message: Message) -> None:
    event = json.loads(message.value or b"")
    do(connection, event.get("id") or f"{event['order']}.{event['version']}")
    if event.get("fails"):
        raise RuntimeError(f"cannot book {event}\nat all")


def message(event: object, offset: int = 0) -> Message:
    value = event if isinstance(event, bytes) else json.dumps(event).encode()
    return Message("orders", 0, offset, None, value)


def send(bootstrap: str, topic: str, *events: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for event in events:
        producer.produce(topic, value=message(event).value, partition=0)
    assert producer.flush(30) == 0


def inbox_of(engine: Engine, **options: Any) -> Inbox:
    return Inbox(engine, **{"consumer": "billing", "identity": identity, "retries": AT_ONCE, **options})


def run_until(engine: Engine, bootstrap: str, topic: str, is_done: Callable[[Counts], bool], **options: Any) -> Inbox:
    """The loop looks at its clock before each record: so it is told to stop there."""
    times = Clock()

    def clock() -> int:
        if is_done(inbox.counts):
            inbox.stop()
        # A moment has passed, so that the quarantine is looked at each time.
        times.ms += 1_000
        return times.ms

    inbox = inbox_of(engine, clock=clock, **options)
    inbox.run(handle, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    return inbox


def committed(bootstrap: str, topic: str) -> int:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    [found] = client.committed([TopicPartition(topic, 0)], timeout=30)
    client.close()
    return int(found.offset)


def held(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        return [(one.cause, one.reason) for one in events(connection, consumer="billing", states=[State.HELD])]


def test_each_event_is_done_once_and_poison_is_put_aside_in_its_place(
    engine: Engine, bootstrap: str, topic: str
) -> None:
    events = [{"id": "a"}, b"\xff", {"id": "a"}, {"id": "bad", "fails": True}, {"id": "b"}, {"id": "bad"}]
    send(bootstrap, topic, *events)
    inbox = run_until(engine, bootstrap, topic, lambda counts: counts.consumed == 6)
    assert done(engine) == ["a", "b"]
    assert inbox.counts == Counts(first_time=2, duplicate=2, quarantined=2)
    assert [cause for cause, _ in held(engine)] == ["undecodable", "failed"]
    assert held(engine)[1][1] == "RuntimeError: cannot book {'id': 'bad', 'fails': True} at all"
    assert committed(bootstrap, topic) == 6


class _Named(str):
    """The name of a header that is not UTF-8, as any client but the Python ones can send it."""

    def encode(self, *_: str) -> bytes:
        return b"\xff"


def send_unreadable(bootstrap: str, topic: str, event: object) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, message(event).value, headers=[(_Named(), b"")], partition=0).get(30)
    producer.close()


def test_a_header_that_no_client_can_read_ends_nothing(engine: Engine, bootstrap: str, topic: str) -> None:
    """Whoever may write to the topic would end the loop, and every restart of it."""
    send(bootstrap, topic, {"id": "a"})
    send_unreadable(bootstrap, topic, {"id": "b"})
    send(bootstrap, topic, {"id": "c"})
    inbox = run_until(engine, bootstrap, topic, lambda counts: counts.consumed == 3)
    assert (done(engine), committed(bootstrap, topic)) == (["a", "c"], 3)
    assert [cause for cause, _ in held(engine)] == ["undecodable"]
    with engine.begin() as connection:
        quarantine.retry(connection, [event.number for event in quarantine.open_events(connection)])
    inbox_of(engine).retry_due(handle)
    assert (done(engine), held(engine), inbox.counts.quarantined) == (["a", "c", "b"], [], 1)


CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_loop import handle, inbox_of
from semel.database import engine_of
from semel.inbox.loop import CommittableOffsets

CommittableOffsets.note = lambda self, message: os.kill(os.getpid(), signal.SIGKILL)
config = {{"bootstrap.servers": {bootstrap!r}, "group.id": {topic!r}, "session.timeout.ms": 6000}}
inbox_of(engine_of({url!r})).run(handle, config, [{topic!r}])
"""


def test_who_is_killed_between_the_database_and_the_offsets_does_nothing_twice(
    engine: Engine, url: str, bootstrap: str, topic: str
) -> None:
    send(bootstrap, topic, {"id": "a"}, {"id": "b"})
    child = CHILD.format(tests=str(Path(__file__).parent), url=url, bootstrap=bootstrap, topic=topic)
    killed = subprocess.run([sys.executable, "-c", child], env=os.environ, timeout=100)
    assert killed.returncode == -signal.SIGKILL
    assert done(engine) == ["a"]
    inbox = run_until(engine, bootstrap, topic, lambda counts: counts.consumed == 2)
    assert inbox.counts == Counts(first_time=1, duplicate=1)
    assert done(engine) == ["a", "b"]


def test_an_id_that_only_looks_like_a_place_is_put_aside(engine: Engine) -> None:
    """Whoever sends it must not stop the loop for good, though it is the very place at which it arrives."""
    inbox = inbox_of(engine)
    for place in ("invoice:2026:17", "orders:0:3", "orders/0/3", "orders-0@3", "orders[0]@3"):
        assert inbox.take(handle, message({"id": place}, offset=3)) is Outcome.QUARANTINED
    assert [cause for cause, _ in held(engine)] == ["undecodable"] * 5
    assert "orders:0:3 is a place in a topic" in held(engine)[1][1]


@pytest.mark.parametrize("how", ["an error that is caught", "a rollback"])
def test_a_handler_that_goes_on_in_a_transaction_that_was_undone_has_failed(engine: Engine, how: str) -> None:
    """Its commit would be a rollback of which nobody hears: the event would be neither done nor put aside."""
    if engine.dialect.name == "mysql" and how != "a rollback":
        pytest.skip("an ordinary error undoes its statement alone; test_mariadb_transactions.py has a deadlock")

    def careless(connection: Connection, taken: Message) -> None:
        do(connection, "half")
        if how == "a rollback":
            connection.rollback()
            return
        with contextlib.suppress(DBAPIError):
            # SQLite keeps what was done before an error; but for those that it undoes everything for, as for this one.
            or_rollback = "OR ROLLBACK " if engine.dialect.name == "sqlite" else ""
            connection.execute(text(f"INSERT {or_rollback}INTO effects (number, name) VALUES (1, NULL)"))

    inbox = inbox_of(engine)
    assert inbox.take(careless, message({"id": "a"})) is Outcome.QUARANTINED
    assert "begin_nested()" in held(engine)[0][1]
    assert done(engine) == []


def test_an_error_that_ends_the_loop_leaves_the_offset_where_it_was(engine: Engine, bootstrap: str, topic: str) -> None:
    """An identity made of the place is a mistake of the program, and no message is put aside for it."""

    def identity_of_place(found: Message) -> str:
        return str(json.loads(found.value or b"")["id"]) if found.offset == 0 else f"{topic}:0:{found.offset}"

    send(bootstrap, topic, {"id": "a"}, {"id": "b"})
    with pytest.raises(BrokerCoordinates):
        run_until(engine, bootstrap, topic, lambda counts: False, identity=identity_of_place)
    assert (done(engine), held(engine), committed(bootstrap, topic)) == (["a"], [], 1)


@pytest.mark.parametrize(
    ("config", "says"),
    [({"group.id": "g", "enable.auto.commit": True}, "loses events"), ({}, "has no group.id")],
)
def test_a_client_that_is_set_wrongly_is_refused(engine: Engine, config: dict[str, Any], says: str) -> None:
    with pytest.raises(LoopFailed, match=says):
        inbox_of(engine).run(handle, {"bootstrap.servers": "127.0.0.1:1", **config}, ["orders"])


def test_a_version_that_fails_holds_back_those_behind_it(engine: Engine) -> None:
    inbox = inbox_of(engine)
    events: list[dict[str, Any]] = [
        {"order": "o-1", "version": 1},
        {"order": "o-1", "version": 2, "fails": True},
        {"order": "o-1", "version": 3},
        {"order": "o-2", "version": 1},
        {"order": "o-1", "version": 3},
    ]
    found = [inbox.take(handle, message(event, offset)) for offset, event in enumerate(events)]
    assert found == ["accepted", "quarantined", "quarantined", "accepted", "duplicate"]
    assert done(engine) == ["o-1.1", "o-2.1"]
    assert [cause for cause, _ in held(engine)] == ["failed", "gap"]


def test_waits_double_up_to_their_limit_and_differ_by_chance() -> None:
    retries = Retries(attempts=9, first_wait_ms=100, wait_ms_max=1_000)
    assert [retries.wait_seconds(attempt, 0.0) for attempt in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert retries.wait_seconds(1, 0.5) == 0.075
    with pytest.raises(ValueError, match="an attempt"):
        Retries(attempts=0)


def test_a_message_that_fails_for_a_while_is_done_at_last(engine: Engine) -> None:
    attempts: list[str] = []

    def handle_at_last(connection: Connection, taken: Message) -> None:
        attempts.append("one")
        handle(connection, taken)
        if len(attempts) < 3:
            raise RuntimeError

    assert inbox_of(engine).take(handle_at_last, message({"id": "a"})) is Outcome.ACCEPTED
    assert done(engine) == ["a"]


def test_who_is_told_to_stop_leaves_the_failing_message_to_the_next_one(engine: Engine) -> None:
    inbox = inbox_of(engine, retries=Retries(first_wait_ms=10_000))

    def stop_and_fail(connection: Connection, taken: Message) -> None:
        inbox.stop()
        raise RuntimeError

    assert inbox.take(stop_and_fail, message({"id": "a"})) is None
    assert (inbox.counts.consumed, held(engine)) == (0, [])
    assert inbox_of(engine).take(handle, message({"id": "a"})) is Outcome.ACCEPTED


def test_a_lost_database_is_no_reason_to_put_a_message_aside(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("its database is a file")

    losses = 10

    def lose(connection: Connection, taken: Message) -> None:
        nonlocal losses
        losses -= 1
        if losses and engine.dialect.name == "mysql":
            with engine.begin() as other:
                other.exec_driver_sql(f"KILL {connection.exec_driver_sql('SELECT CONNECTION_ID()').scalar()}")
        elif losses:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        handle(connection, taken)

    inbox = inbox_of(engine)
    assert inbox.take(lose, message({"id": "a"})) is Outcome.ACCEPTED
    assert (inbox.counts.consumed, held(engine), done(engine)) == (1, [], ["a"])


EVENTS = st.one_of(
    st.just(b"\xff"),
    st.builds(lambda one, fails: {"id": one, "fails": fails}, st.sampled_from("abc"), st.booleans()),
    st.builds(lambda version: {"order": "o", "version": version}, st.integers(1, 4)),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deliveries=st.lists(st.tuples(EVENTS, st.integers(1, 2)), max_size=8))
def test_what_is_consumed_is_first_time_or_duplicate_or_quarantined(
    engine: Engine, deliveries: list[tuple[Any, int]]
) -> None:
    inbox = inbox_of(engine, consumer=f"c-{os.urandom(6).hex()}")
    seen: set[str] = set()
    last = expected_first = consumed = 0
    aside: set[str] = set()
    for offset, (event, times) in enumerate(deliveries):
        for _ in range(times):
            inbox.take(handle, message(event, offset))
            consumed += 1
            if isinstance(event, bytes):
                aside.add(f"at {offset}")
            elif "order" in event:
                if event["version"] == last + 1:
                    last, expected_first = last + 1, expected_first + 1
                elif event["version"] > last:
                    aside.add(f"version {event['version']}")
            elif event["id"] not in seen:
                seen.add(event["id"])
                if event["fails"]:
                    aside.add(event["id"])
                else:
                    expected_first += 1
            counts = inbox.counts
            assert counts.consumed == consumed == counts.first_time + counts.duplicate + counts.quarantined
            assert (counts.first_time, counts.quarantined) == (expected_first, len(aside))


def test_what_the_client_has_to_say_is_in_the_log_and_not_on_the_screen(
    engine: Engine, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A connection that fails is no error of the program: the client makes another one, again and again."""
    caplog.set_level(logging.DEBUG, "semel.inbox.librdkafka")

    def said() -> list[logging.LogRecord]:
        return [one for one in caplog.records if one.name == "semel.inbox.librdkafka"]

    # Nobody listens there.
    run_until(engine, "127.0.0.1:1", "orders", lambda _: len(said()) > 0)
    assert {one.levelno for one in said()} == {logging.DEBUG}
    assert capfd.readouterr() == ("", "")
