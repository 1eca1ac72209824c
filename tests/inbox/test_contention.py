"""Contention is not poison: whoever is in the way, or away, is waited for, and no good event is put aside for it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from effects import done, effects
from sqlalchemy import Connection, Engine, insert, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection
from test_async_loop import asynchronous
from test_async_loop import handle as handle_async
from test_async_loop import inbox_of as async_inbox_of
from test_loop import AT_ONCE, committed, handle, held, identity, inbox_of, message, send
from test_quarantine import retry, waiting

from semel import database
from semel.database import engine_of
from semel.database.procedures import drive
from semel.inbox import Counts, Message, Outcome, Retries, is_passing, metadata
from semel.inbox.retries import Outage
from semel.retries import RetryBudget
from semel.testing.clock import Clock

# More than the attempts that a message has.
HINDRANCES = AT_ONCE.attempts * 3 + 1


class Hindered:
    """Is in the way so often, and then no more."""

    def __init__(self, hinder: Callable[[Connection], object], times: int = HINDRANCES) -> None:
        self._hinder = hinder
        self.left = times

    def __call__(self, connection: Connection, taken: Message) -> None:
        if self.left:
            self.left -= 1
            self._hinder(connection)
        handle(connection, taken)

    async def in_a_coroutine(self, connection: AsyncConnection, taken: Message) -> None:
        if self.left:
            self.left -= 1
            await connection.run_sync(self._hinder)
        await handle_async(connection, taken)


def locked(url: str, engine: Engine) -> Callable[[Connection], object]:
    """A statement that finds a lock of somebody else's, as this database says it."""
    if engine.dialect.name == "sqlite":

        def write_elsewhere(_connection: Connection) -> None:
            with contextlib.closing(sqlite3.connect(engine.url.database or "", timeout=0)) as other:
                other.execute("INSERT INTO effects (name) VALUES ('elsewhere')")

        return write_elsewhere

    def wait_for_lock(connection: Connection) -> None:
        with engine.begin() as other:
            other.exec_driver_sql("LOCK TABLE effects")
            connection.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
            connection.exec_driver_sql("SELECT * FROM effects")

    return wait_for_lock


@pytest.mark.parametrize("asynchronously", [False, True])
def test_a_lock_of_somebody_else_is_waited_for(engine: Engine, url: str, asynchronously: bool) -> None:
    hindered = Hindered(locked(url, engine))
    assert take(engine, url, hindered, asynchronously) is Outcome.ACCEPTED
    assert (done(engine), held(engine), hindered.left) == (["a"], [], 0)


@pytest.mark.parametrize("asynchronously", [False, True])
@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "57014", "57P01", "53300", "25006", "08006"])
def test_what_postgresql_says_of_others_is_waited_for(
    engine: Engine, url: str, asynchronously: bool, sqlstate: str
) -> None:
    """Serialization failures, deadlocks, locks, limits of time and connections, a restart, a standby."""
    if engine.dialect.name == "sqlite":
        pytest.skip("it has its own words")
    raises = text(f"DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '{sqlstate}'; END $$")
    hindered = Hindered(lambda connection: connection.execute(raises))
    assert take(engine, url, hindered, asynchronously) is Outcome.ACCEPTED
    assert (done(engine), held(engine)) == (["a"], [])


def raise_it(error: Exception) -> Callable[[Connection], object]:
    def hinder(_connection: object) -> None:
        raise error

    return hinder


class PaymentFailed(Exception):
    """As an application wraps what its client said."""


def wrapped(cause: Exception) -> Exception:
    try:
        raise PaymentFailed from cause
    except PaymentFailed as error:
        return error


# aiohttp's error for an answer that breaks off, by its name, because aiohttp is not installed here.
BROKEN_PAYLOAD = type("ClientPayloadError", (Exception,), {"__module__": "aiohttp.client_exceptions"})

OUTAGES = [
    ConnectionRefusedError(),
    TimeoutError(),
    OSError(errno.EHOSTUNREACH, "no route to host"),
    httpx.ConnectError("refused"),
    httpx.ReadTimeout("slow"),
    httpx.RemoteProtocolError("closed without an answer"),
    BROKEN_PAYLOAD("the response payload is not completed"),
    psycopg.OperationalError("connection refused"),
    psycopg.errors.DeadlockDetected("deadlock"),
    PoolExhausted("QueuePool limit reached"),
    wrapped(ConnectionResetError()),
    wrapped(psycopg.errors.LockNotAvailable("locked")),
    # As an asyncio.TaskGroup of the handler's raises them.
    ExceptionGroup("two calls", [ConnectionRefusedError(), ExceptionGroup("", [wrapped(TimeoutError())])]),
    wrapped(ExceptionGroup("two calls", [psycopg.errors.DeadlockDetected("deadlock")])),
]


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("asynchronously", [False, True])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_outage_of_something_that_is_called_is_waited_for(
    engine: Engine, url: str, outage: Exception, asynchronously: bool
) -> None:
    assert take(engine, url, Hindered(raise_it(outage)), asynchronously) is Outcome.ACCEPTED
    assert (done(engine), held(engine)) == (["a"], [])


@pytest.mark.parametrize("asynchronously", [False, True])
def test_an_identity_that_cannot_be_found_for_a_while_is_waited_for(
    engine: Engine, url: str, asynchronously: bool
) -> None:
    """It may ask a registry of schemas, say."""
    left = HINDRANCES

    def identity_at_last(found: Message) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise ConnectionError
        return identity(found)

    assert take(engine, url, Hindered(lambda _: None, 0), asynchronously, identity=identity_at_last) is Outcome.ACCEPTED
    assert (done(engine), held(engine)) == (["a"], [])


POISON = [
    ValueError("never"),
    FileNotFoundError("never"),
    httpx.UnsupportedProtocol("the address in the event has none"),
    psycopg.errors.UniqueViolation("never"),
    psycopg.errors.ObjectNotInPrerequisiteState("currval is not yet defined"),
    psycopg.DataError("never"),
    sqlite3.IntegrityError("never"),
    sqlite3.InterfaceError("a type that is not supported"),
    InterfaceError("INSERT ...", {}, Exception("a value that does not fit")),
    ExceptionGroup("one of two", [ConnectionRefusedError(), ValueError("never")]),
]


def test_errors_of_a_database_that_came_together_pass_only_if_each_of_them_does() -> None:
    deadlock = psycopg.errors.DeadlockDetected("deadlock")
    assert database.is_passing(ExceptionGroup("two calls", [deadlock, deadlock]))
    assert not database.is_passing(ExceptionGroup("two calls", [deadlock, ValueError("never")]))


@pytest.mark.parametrize("poison", POISON, ids=lambda error: type(error).__name__)
def test_what_never_passes_is_put_aside(engine: Engine, url: str, poison: Exception) -> None:
    hindered = Hindered(raise_it(poison), HINDRANCES)
    assert take(engine, url, hindered, asynchronously=False) is Outcome.QUARANTINED
    assert hindered.left == HINDRANCES - AT_ONCE.attempts


def test_a_value_that_does_not_fit_is_put_aside_also_where_asyncpg_says_so(engine: Engine, url: str) -> None:
    """By an error that other drivers have for lost connections."""

    async def misfit(connection: AsyncConnection, taken: Message) -> None:
        await connection.execute(insert(effects), {"number": object(), "name": "a"})

    async def work() -> Outcome | None:
        made = asynchronous(url)
        try:
            return await async_inbox_of(made).take(misfit, message({"id": "a"}))
        finally:
            await made.dispose()

    assert asyncio.run(work()) is Outcome.QUARANTINED


def test_a_statement_that_can_never_be_sent_is_put_aside(engine: Engine, url: str) -> None:
    """psycopg says of too many values what it says of a lost connection, and the connection is there."""
    if engine.dialect.name == "sqlite":
        pytest.skip("it takes more")
    values = (1,) * 65_536
    statement = f"SELECT 1 WHERE 1 IN ({','.join(['%s'] * len(values))})"
    hindered = Hindered(lambda connection: connection.exec_driver_sql(statement, values))
    assert take(engine, url, hindered, asynchronously=False) is Outcome.QUARANTINED
    assert hindered.left == HINDRANCES - AT_ONCE.attempts


def test_what_is_waited_for_is_said_in_a_line_that_can_be_read(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLAlchemy's errors hold the whole statement, and its values."""
    with caplog.at_level(logging.WARNING, "semel.inbox"):
        inbox_of(engine).take(Hindered(raise_it(ConnectionError("\x1b[2J" + "v" * 100_000))), message({"id": "a"}))
    [waiting_for, _] = [record.getMessage() for record in caplog.records if record.name == "semel.inbox"]
    assert (len(waiting_for) < 600, "\x1b" in waiting_for) == (True, False)


def test_an_application_says_itself_what_passes(engine: Engine, url: str) -> None:
    def passing(error: BaseException) -> bool:
        return isinstance(error, PaymentFailed) or (is_passing(error) and not isinstance(error, TimeoutError))

    for error, outcome in ((PaymentFailed(), "accepted"), (TimeoutError(), "quarantined")):
        hindered = Hindered(raise_it(error))
        event = message({"id": type(error).__name__})
        assert inbox_of(engine, passing=passing).take(hindered, event) == outcome


def test_what_passes_does_not_count_among_the_attempts_and_is_said_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [RuntimeError("poison"), ConnectionError("away")] * 6

    def handler(connection: Connection, taken: Message) -> None:
        raise errors.pop(0)

    inbox = inbox_of(engine, retries=Retries(attempts=4, first_wait_ms=1, wait_ms_max=1))
    with caplog.at_level(logging.WARNING, "semel.inbox"):
        assert inbox.take(handler, message({"id": "a"})) is Outcome.QUARANTINED
    [(_, reason)] = held(engine)
    assert (reason, waiting(engine)[0].attempts) == ("RuntimeError: poison", 4)
    told = [record.getMessage() for record in caplog.records if record.name == "semel.inbox"]
    assert [line.split(" of ")[0] for line in told] == [
        *(f"attempt {number}" for number in range(1, 5)),
        "put aside event a at offset 0",
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "semel.inbox"):
        inbox.take(Hindered(raise_it(ConnectionError("away\nfor now"))), message({"id": "b"}))
    assert [record.getMessage() for record in caplog.records if record.name == "semel.inbox"] == [
        "waiting: ConnectionError: away for now",
        "going on: the error has passed",
    ]


def test_a_probe_is_told_the_kind_of_an_error_and_no_text_that_may_have_rows_or_passwords(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(Retries(attempts=1))
    with caplog.at_level(logging.WARNING, "semel.inbox"):
        outage.wait_seconds(OperationalError("INSERT INTO payments", ("4111111111111111",), Exception("locked")), 0.5)
    assert outage.why == "OperationalError"
    assert caplog.messages == ["waiting: OperationalError: locked"]
    try:
        raise ConnectionError("https://user:s3cret@pay.example")
    except ConnectionError as error:
        outage.wait_seconds(error, 0.5)
    assert re.fullmatch(r"ConnectionError at test_contention.py:\d+", str(outage.why))


def test_an_outage_that_an_idle_loop_has_met_is_over_when_its_next_look_succeeds(tmp_path: Path) -> None:
    clock = Clock()
    engine = engine_of(f"sqlite:///{tmp_path}/app.db")
    quick = Retries(attempts=1, first_wait_ms=1, wait_ms_max=1)
    inbox = inbox_of(engine, retries=quick, passing=lambda error: True, clock=clock)
    drive(inbox._look_after(None))
    assert str(inbox._outage.why).startswith("OperationalError")
    metadata.create_all(engine)
    # Nothing was due, so nobody has looked.
    drive(inbox._look_after(None))
    assert inbox._outage.why is not None
    clock.ms += 1000
    drive(inbox._look_after(None))
    assert inbox._outage.why is None


def test_who_is_told_to_stop_during_an_outage_leaves_the_message_to_the_next_one(engine: Engine) -> None:
    inbox = inbox_of(engine, retries=Retries(first_wait_ms=10_000))

    def stop_and_fail(connection: Connection, taken: Message) -> None:
        inbox.stop()
        raise ConnectionError

    assert inbox.take(stop_and_fail, message({"id": "a"})) is None
    assert (inbox.counts.consumed, held(engine)) == (0, [])


@pytest.mark.parametrize("asynchronously", [False, True])
def test_what_is_tried_again_during_an_outage_stays_due(engine: Engine, url: str, asynchronously: bool) -> None:
    inbox_of(engine).take(handle, message({"id": "bad", "fails": True}))
    inbox_of(engine).take(handle, message({"id": "worse", "fails": True}))
    retry(engine)
    hindered = Hindered(raise_it(ConnectionError()), 1)

    async def retry_due() -> None:
        made = asynchronous(url)
        await async_inbox_of(made).retry_due(hindered.in_a_coroutine)
        await made.dispose()

    if asynchronously:
        asyncio.run(retry_due())
    else:
        inbox_of(engine).retry_due(hindered)
    assert [(entry.state, entry.attempts) for entry in waiting(engine)] == [("due", 3), ("due", 3)]


@pytest.mark.parametrize("asynchronously", [False, True])
def test_during_an_outage_the_loop_keeps_its_partitions_and_their_order(
    engine: Engine, url: str, bootstrap: str, topic: str, asynchronously: bool
) -> None:
    """It reads the message again and again, and so is a member of its group for however long it has to wait."""
    send(bootstrap, topic, *({"id": name} for name in "abc"))
    seen: list[tuple[int, int]] = []
    times = Clock()
    hindered = Hindered(raise_it(ConnectionError()))

    def clock() -> int:
        if inbox.counts.consumed == 3:
            inbox.stop()
        times.ms += 1_000
        return times.ms

    def noting(found: Message) -> Any:
        seen.append((found.offset, hindered.left))
        return identity(found)

    async def run() -> None:
        await inbox.run(hindered.in_a_coroutine, {"bootstrap_servers": bootstrap, "group_id": topic}, [topic])
        await made.dispose()

    made = asynchronous(url)
    inbox: Any = (
        async_inbox_of(made, clock=clock, identity=noting)
        if asynchronously
        else inbox_of(engine, clock=clock, identity=noting)
    )
    if asynchronously:
        asyncio.run(run())
    else:
        inbox.run(hindered, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    assert (done(engine), held(engine), committed(bootstrap, topic)) == (["a", "b", "c"], [], 3)
    assert [offset for offset, _ in seen] == [0] * (HINDRANCES + 1) + [1, 2]


@pytest.mark.parametrize("asynchronously", [False, True])
def test_the_loop_reads_its_topic_though_much_is_to_be_tried_again(
    engine: Engine, url: str, bootstrap: str, topic: str, asynchronously: bool
) -> None:
    """Who does not poll for too long loses its partitions."""
    for number in range(10):
        inbox_of(engine).take(handle, message({"id": f"bad-{number}", "fails": True}, number))
    retry(engine)
    send(bootstrap, topic, {"id": "new"})
    times = Clock()
    order: list[str] = []

    def clock() -> int:
        if len(order) == 11:
            inbox.stop()
        times.ms += 4_000
        return times.ms

    def do_it(_connection: object, taken: Message) -> None:
        order.append(str(identity(taken)))

    async def do_it_in_a_coroutine(connection: object, taken: Message) -> None:
        do_it(connection, taken)

    async def run() -> None:
        await inbox.run(do_it_in_a_coroutine, {"bootstrap_servers": bootstrap, "group_id": topic}, [topic])
        await made.dispose()

    made = asynchronous(url)
    inbox: Any = async_inbox_of(made, clock=clock) if asynchronously else inbox_of(engine, clock=clock)
    if asynchronously:
        asyncio.run(run())
    else:
        inbox.run(do_it, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    assert sorted(order) == sorted(["new", *(f"bad-{number}" for number in range(10))])
    assert [name for name in order if name != "new"] == [f"bad-{number}" for number in range(10)]
    assert inbox.counts == Counts(first_time=1, retried=10)


def take(engine: Engine, url: str, hindered: Hindered, asynchronously: bool, **options: Any) -> Outcome | None:
    async def work() -> Outcome | None:
        made = asynchronous(url)
        try:
            inbox = async_inbox_of(made, **options)
            return await inbox.take(hindered.in_a_coroutine, message({"id": "a"}))
        finally:
            await made.dispose()

    if asynchronously:
        return asyncio.run(work())
    return inbox_of(engine, **options).take(hindered, message({"id": "a"}))


def test_retries_are_taken_out_of_the_budget_that_the_process_shares(engine: Engine) -> None:
    """The retries of one inbox are missed by the callers beside it; a message that is done earns a share of one."""
    budget = RetryBudget(0.5, per_second=1e-3, reserve=10, clock=Clock())
    errors: list[Exception] = [ConnectionError("away")] * 4

    def handler(connection: Connection, taken: Message) -> None:
        if errors:
            raise errors.pop()

    assert inbox_of(engine, budget=budget).take(handler, message({"id": "a"})) is Outcome.ACCEPTED
    assert budget.tokens == 10 - 4 + 0.5
