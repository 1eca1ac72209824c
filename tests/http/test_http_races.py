"""Two requests with one key at once, in one process or in two: exactly one effect, and nobody waits for long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from conftest_http import NewShop, caller
from sqlalchemy import Connection, Engine, event, select, text
from test_http_steps import Service

from eventually import eventually
from semel.database import engine_of
from semel.database.clock import database_now_ms
from semel.http import Idempotency, WsgiIdempotency, metadata
from semel.http.claims import NO_LEASE, Accepted, Duplicate, Running, Term, claim, hold, name_of
from semel.http.tables import keys
from semel.steps.records import finish_step, noted_step
from semel.testing.clock import Clock
from semel.testing.postgres import PostgresServer

ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


def test_many_at_once_have_one_effect(url: str, engine: Engine, new_shop: NewShop) -> None:
    """Two instances, each with an engine of its own, as two processes have."""
    other = engine_of(url)
    shops = [new_shop("flask"), new_shop("flask", database=other)]
    with ThreadPoolExecutor(6) as threads:
        for round_ in range(4):
            answers = list(threads.map(lambda number: shops[number % 2].post(f"k-{round_}"), range(6)))  # noqa: B023
            assert {answer.status_code for answer in answers} <= {201, 409}
            assert [answer.status_code for answer in answers].count(201) >= 1
            assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert len(shops[0].booked()) == shops[0].gate.executions + shops[1].gate.executions == 4
    other.dispose()


def test_a_claim_that_was_committed_without_its_answer_is_not_executed_again(engine: Engine) -> None:
    """By a COMMIT below SQLAlchemy, say: what the handler had written until then is there."""
    name, term = name_of("anna", "k-1"), Term(ttl_ms=1000, lease_ms=NO_LEASE, now_ms=0)
    with engine.begin() as connection:
        assert isinstance(claim(connection, name, "print", term), Accepted)
    with engine.begin() as connection:
        assert isinstance(claim(connection, name, "print", term), Duplicate)


def test_who_is_late_to_take_an_expired_key_over_takes_no_step_from_the_other(postgres: PostgresServer) -> None:
    """On SQLite there is one writer, and nobody is late."""
    url = postgres.new_database()
    engine, late = engine_of(url), engine_of(url)
    metadata.create_all(engine)
    name, again = name_of("anna", "k-1"), Term(ttl_ms=1000, lease_ms=500, now_ms=2000)
    with engine.begin() as connection:
        claim(connection, name, "print", Term(ttl_ms=1000, lease_ms=500, now_ms=0))
    with engine.connect() as first:
        assert isinstance(claim(first, name, "print", again), Accepted)

        @event.listens_for(late, "after_cursor_execute")
        def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            # It has seen the key of the former life; now the first one goes on.
            if statement.startswith("SELECT") and first.in_transaction():
                first.commit()
                with engine.begin() as connection:
                    finish_step(connection, name, "charge", "1")

        with late.begin() as connection:
            assert isinstance(claim(connection, name, "print", again), Running)
    with engine.connect() as connection:
        assert noted_step(connection, name, "charge") == "1"
    late.dispose()
    engine.dispose()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_more_at_once_than_there_are_transactions_wait_in_order(new_shop: NewShop, asynchronous: bool) -> None:
    """Neither threads nor connections run out: who holds a transaction never waits for those who wait for one."""
    shop = new_shop("fastapi", asynchronous=asynchronous)

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(shop.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = [{"Idempotency-Key": f"k-{number // 2}", "X-Caller": "anna"} for number in range(60)]
            return await asyncio.gather(*(client.post("/payments", json={}, headers=each) for each in headers))

    answers = shop.runner.run(run())
    assert {answer.status_code for answer in answers} == {201, 409}
    assert len(shop.booked()) == shop.gate.executions == 30


def test_who_comes_while_it_runs_is_told_so_and_not_kept_waiting(url: str, engine: Engine, new_shop: NewShop) -> None:
    inside, go_on = threading.Event(), threading.Event()
    shop = new_shop("flask")
    shop.gate.inside = lambda: inside.set() or go_on.wait(30)  # type: ignore[func-returns-value]
    other = engine_of(url)
    second = new_shop("flask", database=other)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shop.post)
        assert inside.wait(30)
        running = shop.post()
        assert (running.status_code, running.headers["retry-after"]) == (409, "1")
        elsewhere = threads.submit(second.post)
        if "postgresql" in url:
            assert elsewhere.result(30).json()["type"] == "urn:semel:problem:still-running"
        go_on.set()
        assert first.result(30).status_code == 201
    if "sqlite" in url:
        # There the other process waits for the one writer, and has its answer then.
        assert elsewhere.result(30).headers["idempotency-replayed"] == "true"
    assert (len(shop.booked()), second.gate.executions) == (1, 0)
    other.dispose()


def waits_for_lock(engine: Engine) -> bool:
    with engine.connect() as connection:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return bool(connection.scalar(text(f"{waiting} AND datname = current_database()")))


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("by", ["database", "clock"])
def test_who_comes_while_a_step_is_open_is_told_so_and_not_kept_waiting(
    postgres: PostgresServer, isolation: str, by: str
) -> None:
    """Who waits for a lock here fails, because the one who has it waits for the answer. On SQLite there is one writer,
    and a repetition waits for it."""
    options = {"isolation_level": isolation, "connect_args": {"options": "-c lock_timeout=2000"}}
    engine = engine_of(postgres.new_database(), **options)
    metadata.create_all(engine)
    came: list[tuple[int, str]] = []

    def come() -> None:
        answer = service.post()
        came.append((answer.status_code, answer.json()["type"]))

    def handler(key: Any) -> bytes:
        with key.step("book") as step:
            step.connection().execute(text("SELECT 1"))
            come()
            clock.ms += service.idempotency.lease_ms
            # Its lease has run out by now, if that clock counts; it still has the key open.
            come()
        return b"done"

    clock = Clock()
    service = Service(engine, handler, **({"clock": clock} if by == "clock" else {}))
    assert service.post().content == b"done"
    assert came == [(409, "urn:semel:problem:still-running")] * 2
    engine.dispose()


@pytest.mark.parametrize("isolation", ISOLATIONS[1:])
@pytest.mark.parametrize("at", ["its claim", "its refusal"])
def test_a_claim_that_postgresql_cannot_serialize_is_told_to_come_again(
    postgres: PostgresServer, isolation: str, at: str
) -> None:
    """Its transaction sees the database as it was before another request had the key. For a refusal, whose effect is
    rolled back, the key is claimed a second time."""
    engine = engine_of(postgres.new_database(), isolation_level=isolation)
    metadata.create_all(engine)
    others: list[Idempotency] = [Idempotency(engine, scope=caller)]
    executed: list[str] = []

    @contextmanager
    def begin() -> Iterator[Connection]:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            if others and (at == "its claim" or executed):
                post(others.pop())
            yield connection

    def app(environ: Any, start_response: Any) -> list[bytes]:
        executed.append("done")
        start_response("402 Payment Required", [])
        return [b"done"]

    def post(idempotency: Idempotency) -> httpx.Response:
        transport = httpx.WSGITransport(WsgiIdempotency(app, idempotency))
        with httpx.Client(transport=transport, base_url="http://shop") as client:
            return client.post("/payments", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"})

    idempotency = Idempotency(begin, scope=caller)
    refused = post(idempotency)
    problem = (503, "database-busy") if at == "its claim" else (409, "still-running")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == problem
    assert refused.headers["retry-after"] == "1"
    assert post(idempotency).headers["idempotency-replayed"] == "true"
    assert len(executed) == (1 if at == "its claim" else 2)
    engine.dispose()


def test_the_heart_waits_for_no_step_with_a_transaction_of_its_own(postgres: PostgresServer) -> None:
    """Of ten transactions it would hold one for as long as the step works, and others would wait for it. It beats when
    the step is over."""
    engine = engine_of(postgres.new_database(), connect_args={"options": "-c lock_timeout=30000"})
    metadata.create_all(engine)
    waiting: list[bool] = []

    def lease() -> int:
        with engine.connect() as connection:
            return int(connection.scalar(select(keys.c.lease_until_ms)) or 0)

    def handler(key: Any) -> bytes:
        with suppress(ZeroDivisionError), key.step("book") as step:
            step.connection()
            # The first beat is due after a second, and the lease is over after three.
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                waiting.append(waits_for_lock(engine))
            raise ZeroDivisionError
        began = lease()
        while lease() == began:
            pass
        return b"alive"

    assert Service(engine, handler, lease_ms=3000).post().content == b"alive"
    assert not any(waiting)
    engine.dispose()


def test_a_beat_that_had_to_wait_for_a_step_gives_a_whole_lease(postgres: PostgresServer) -> None:
    """The step is rolled back. A lease that began when the beat began to wait could have run out already."""
    engine, name, lease = engine_of(postgres.new_database()), name_of("anna", "k-1"), Term(86_400_000, 60_000)
    metadata.create_all(engine)

    def beat() -> None:
        with engine.begin() as connection:
            hold(connection, name, token, lease)

    with engine.begin() as connection:
        accepted = claim(connection, name, "print", lease)
    assert isinstance(accepted, Accepted)
    token = accepted.token
    with ThreadPoolExecutor(1) as threads, engine.connect() as step:
        hold(step, name, token, lease)
        beats = threads.submit(beat)
        assert eventually(lambda: waits_for_lock(engine)), "the beat does not wait"
        ended_ms = database_now_ms(step)
        step.rollback()
        beats.result(30)
    with engine.connect() as connection:
        assert connection.scalar(select(keys.c.lease_until_ms)) >= ended_ms + 60_000
    engine.dispose()
