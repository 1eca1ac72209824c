"""An inbox through PgBouncer in transaction mode does each event once, and a connection that could execute the
statements of another client is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from effects import done, effects
from sqlalchemy import Engine, NullPool, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from test_loop import AT_ONCE, held, identity, run_until, send

from semel import schema
from semel.database import PreparesThroughPooler, engine_of
from semel.inbox import Counts, Inbox, Message, Outcome, once, once_async

ROUNDS = 12
"""More often than psycopg waits before it prepares a statement."""


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[Engine]:
    engine = engine_of(pooled_url)
    schema.make(engine)
    effects.metadata.create_all(engine)
    yield engine
    engine.dispose()


def test_the_loop_does_each_event_once_through_a_pooler(pooled: Engine, bootstrap: str, topic: str) -> None:
    numbers = [str(number) for number in range(ROUNDS)]
    events = [{"id": number} for number in numbers for _ in range(2)]
    send(bootstrap, topic, *events, {"id": "bad", "fails": True})
    inbox = run_until(pooled, bootstrap, topic, lambda counts: counts.consumed == len(events) + 1)
    assert done(pooled) == numbers
    assert inbox.counts == Counts(first_time=ROUNDS, duplicate=ROUNDS, quarantined=1)
    assert [cause for cause, _ in held(pooled)] == ["failed"]


def test_sessions_of_the_loop_work_through_a_pooler(pooled: Engine, bootstrap: str, topic: str) -> None:
    def handle(session: Session, message: Message) -> None:
        session.execute(text("INSERT INTO effects (name) VALUES (:id)"), json.loads(message.value or b""))

    send(bootstrap, topic, *({"id": str(number)} for number in range(ROUNDS)))
    inbox = Inbox(sessionmaker(pooled), consumer="billing", identity=identity, retries=AT_ONCE)

    def handle_and_stop(session: Session, message: Message) -> None:
        handle(session, message)
        if message.offset == ROUNDS - 1:
            inbox.stop()

    inbox.run(handle_and_stop, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    assert len(done(pooled)) == ROUNDS


def test_a_drivers_own_connection_works_through_a_pooler_and_leaves_nothing_there(
    pooled: Engine, pooled_url: str
) -> None:
    with psycopg.connect(pooled_url, prepare_threshold=None) as driver:
        for number in range(ROUNDS):
            for outcome in (Outcome.ACCEPTED, Outcome.DUPLICATE):
                with driver.transaction(), once(driver, consumer="billing", message_id=f"event {number}") as found:
                    assert found is outcome
            with (
                pytest.raises(psycopg.errors.UniqueViolation),
                driver.transaction(),
                pytest.raises(ZeroDivisionError),
                once(driver, consumer="billing", message_id=f"fails {number}"),
            ):
                raise ZeroDivisionError
    with pooled.connect() as connection:
        leftover = "SELECT count(*) FROM pg_class WHERE relname = 'semel_refuses_commit'"
        assert connection.scalar(text(leftover)) == 0
        assert connection.scalar(text("SELECT count(*) FROM semel_inbox")) == ROUNDS


def test_a_connection_of_psycopg_that_prepares_statements_is_refused_through_a_pooler(
    pooled: Engine, pooled_url: str, postgres_url: str
) -> None:
    own = create_engine(make_url(pooled_url).set(drivername="postgresql+psycopg"))
    refused = pytest.raises(PreparesThroughPooler, match=r"engine_of\(url\), set prepare_threshold=None on psycopg's")
    with own.connect() as connection, refused, once(connection, consumer="billing", message_id="a"):
        pass
    own.dispose()
    with psycopg.connect(pooled_url) as driver, refused, once(driver, consumer="billing", message_id="a"):
        pass
    with psycopg.connect(postgres_url) as driver, once(driver, consumer="billing", message_id="a") as outcome:
        assert outcome is Outcome.ACCEPTED


def asynchronous(url: str, **options: Any) -> AsyncEngine:
    return create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"), **options)


async def test_asyncpg_works_through_a_pooler_as_the_documents_say_and_is_refused_otherwise(
    pooled: Engine, pooled_url: str
) -> None:
    without_names = {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"semel_{uuid4()}",
    }
    engine = asynchronous(pooled_url, poolclass=NullPool, connect_args=without_names)
    for number in range(ROUNDS):
        async with engine.begin() as connection, once_async(connection, consumer="billing", message_id="a") as outcome:
            assert outcome is (Outcome.DUPLICATE if number else Outcome.ACCEPTED)
    own = asynchronous(pooled_url)
    with pytest.raises(PreparesThroughPooler, match="asyncpg"):
        async with own.begin() as connection, once_async(connection, consumer="billing", message_id="b"):
            pass
    await own.dispose()


def test_a_loop_on_an_engine_that_prepares_statements_ends_and_puts_nothing_aside(
    pooled: Engine, pooled_url: str, bootstrap: str, topic: str
) -> None:
    send(bootstrap, topic, {"id": "a"})
    own = create_engine(make_url(pooled_url).set(drivername="postgresql+psycopg"))
    with pytest.raises(Exception, match=r"engine_of\(url\)"):
        run_until(own, bootstrap, topic, lambda counts: counts.consumed == 1)
    own.dispose()
    assert (done(pooled), held(pooled)) == ([], [])
