"""The asynchronous loop keeps the promises of the other one, on aiokafka and an AsyncEngine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from effects import do, done
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from test_loop import AT_ONCE, committed, held, identity, message, send, send_unreadable
from test_quarantine import retry, waiting

from semel.database import begin_immediately
from semel.inbox import AsyncInbox, Counts, LoopFailed, Message, Outcome
from semel.testing.clock import Clock


def asynchronous(url: str) -> AsyncEngine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return create_async_engine(parsed.set(drivername="postgresql+asyncpg"))
    engine = create_async_engine(parsed.set(drivername="sqlite+aiosqlite"))
    begin_immediately(engine.sync_engine)
    return engine


async def handle(connection: AsyncConnection, taken: Message) -> None:
    event = json.loads(taken.value or b"")
    await connection.run_sync(do, event.get("id") or f"{event['order']}.{event['version']}")
    if event.get("fails"):
        raise RuntimeError(f"cannot book {event}")


def inbox_of(engine: AsyncEngine, **options: Any) -> AsyncInbox:
    return AsyncInbox(engine, **{"consumer": "billing", "identity": identity, "retries": AT_ONCE, **options})


def run_until(url: str, bootstrap: str, topic: str, is_done: Callable[[Counts], bool]) -> Counts:
    times = Clock()

    async def run() -> Counts:
        def clock() -> int:
            if is_done(inbox.counts):
                inbox.stop()
            times.ms += 1_000
            return times.ms

        engine = asynchronous(url)
        inbox = inbox_of(engine, clock=clock)
        try:
            await inbox.run(handle, {"bootstrap_servers": bootstrap, "group_id": topic}, [topic])
        finally:
            await engine.dispose()
        return inbox.counts

    return asyncio.run(run())


def test_the_asynchronous_loop_does_each_event_once(engine: Engine, url: str, bootstrap: str, topic: str) -> None:
    events = [{"id": "a"}, b"\xff", {"id": "a"}, {"id": "bad", "fails": True}, {"id": "b"}, {"id": "bad"}]
    send(bootstrap, topic, *events)
    counts = run_until(url, bootstrap, topic, lambda counts: counts.consumed == 6)
    assert counts == Counts(first_time=2, duplicate=2, quarantined=2)
    assert done(engine) == ["a", "b"]
    assert [cause for cause, _ in held(engine)] == ["undecodable", "failed"]
    assert committed(bootstrap, topic) == 6


def test_a_coroutine_that_goes_on_in_a_transaction_that_was_undone_has_failed(engine: Engine, url: str) -> None:
    async def careless(connection: AsyncConnection, taken: Message) -> None:
        await connection.run_sync(do, "half")
        with contextlib.suppress(DBAPIError):
            or_rollback = "OR ROLLBACK " if engine.dialect.name == "sqlite" else ""
            await connection.execute(text(f"INSERT {or_rollback}INTO effects (number, name) VALUES (1, NULL)"))

    async def take() -> Outcome | None:
        asynchronously = asynchronous(url)
        try:
            return await inbox_of(asynchronously).take(careless, message({"id": "a"}))
        finally:
            await asynchronously.dispose()

    assert asyncio.run(take()) is Outcome.QUARANTINED
    assert "begin_nested()" in held(engine)[0][1]
    assert done(engine) == []


def test_what_was_put_aside_is_tried_again_asynchronously(engine: Engine, url: str) -> None:
    async def work() -> Counts:
        made = asynchronous(url)
        inbox = inbox_of(made)
        found = [await inbox.take(handle, message({"order": "o", "version": version})) for version in (2, 1, 2)]
        assert found == [Outcome.QUARANTINED, Outcome.ACCEPTED, Outcome.ACCEPTED]
        await inbox.take(handle, message({"order": "o", "version": 4}))
        await inbox.take(handle, message({"order": "o", "version": 3}))
        retry(engine)
        await inbox.retry_due(handle)
        await inbox.take(handle, message({"id": "bad", "fails": True}))
        retry(engine)
        await inbox.retry_due(handle)
        await made.dispose()
        return inbox.counts

    assert asyncio.run(work()) == Counts(first_time=3, quarantined=3, retried=2)
    assert done(engine) == ["o.1", "o.2", "o.3", "o.4"]
    assert [(entry.state, entry.attempts) for entry in waiting(engine)] == [("held", 4)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"group_id": "g", "enable_auto_commit": True}, "loses events"),
        ({}, "has no group_id"),
        ({"group_id": "g", "value_deserializer": json.loads}, "decode in identity"),
        ({"group_id": "g", "bootstrap_servers": "127.0.0.1:1"}, "refuses to be read"),
    ],
)
def test_an_asynchronous_client_that_is_set_wrongly_is_refused(
    engine: Engine, url: str, config: dict[str, Any], says: str
) -> None:
    async def work() -> None:
        made = asynchronous(url)
        try:
            await inbox_of(made).run(handle, config, ["orders"])
        finally:
            await made.dispose()

    with pytest.raises(LoopFailed, match=says):
        asyncio.run(work())


def test_a_header_that_aiokafka_cannot_read_is_named_with_the_way_on(
    engine: Engine, url: str, bootstrap: str, topic: str
) -> None:
    """It decodes what was written together, and cannot be told to begin behind a record of that."""
    send_unreadable(bootstrap, topic, {"id": "a"})
    with pytest.raises(LoopFailed, match="run Inbox, which puts it aside"):
        run_until(url, bootstrap, topic, lambda counts: counts.consumed == 1)
    assert (done(engine), held(engine)) == ([], [])
