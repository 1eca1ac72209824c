"""What would lose events without a word behind an inbox is refused when the loop begins, or at the first event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer
from effects import done
from sqlalchemy import Engine
from test_loop import committed, inbox_of, message, send
from test_own_ends import asynchronous, held

from semel.inbox import AsyncInbox, Inbox, LoopFailed, Outcome, Retries, UnusableId, once
from semel.inbox.aiokafka import for_aiokafka
from semel.inbox.confluent import for_confluent
from semel.inbox.loop import WITHOUT_IDENTITY_MAX


@pytest.mark.parametrize("value", [True, "true", "True", "TRUE", "1", 1, "t"])
@pytest.mark.parametrize("name", ["enable.auto.commit", "auto.commit.enable"])
def test_a_client_that_commits_by_itself_is_refused_however_it_is_written(name: str, value: Any) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", name: value}
    if not isinstance(value, int) or value is True:
        # This is what librdkafka takes for true.
        Consumer({**settings, "log_level": 0}).close()
    with pytest.raises(LoopFailed, match=f"{name}=true would commit offsets before their effects"):
        for_confluent(settings, lambda _: None)


def test_so_is_one_of_aiokafka() -> None:
    for value in (True, 1, "true"):
        with pytest.raises(LoopFailed, match="enable_auto_commit=true"):
            for_aiokafka({"group_id": "billing", "enable_auto_commit": value})
    assert for_aiokafka({"group_id": "billing"})["enable_auto_commit"] is False
    assert for_confluent({"group.id": "billing"}, lambda _: None)["enable.auto.commit"] is False


# -- a handler that does nothing ---------------------------------------------------------------------------------------


async def coroutine(_connection: Any, _message: object) -> None:
    raise AssertionError


def generator(_connection: Any, _message: object) -> Any:
    yield


@pytest.mark.parametrize("handler", [coroutine, generator, None])
def test_a_handler_of_which_no_line_would_run_is_refused(engine: Engine, handler: Any) -> None:
    """Its claim would commit, and the event would be lost."""
    inbox = inbox_of(engine)
    calls: list[Callable[[], object]] = [
        lambda: inbox.take(handler, message({"id": "e-1"})),
        lambda: inbox.run(handler, {"group.id": "billing"}, ["orders"]),
        lambda: inbox.retry_due(handler),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="the handler of an Inbox"):
            call()


def test_a_handler_that_returns_a_coroutine_has_failed(engine: Engine) -> None:
    inbox = inbox_of(engine)
    assert inbox.take(lambda *given: coroutine(*given), message({"id": "e-1"})) is Outcome.QUARANTINED
    assert "run an AsyncInbox" in held(engine)[0]


def test_a_handler_of_coroutines_has_to_be_one(engine: Engine) -> None:
    async def take() -> Outcome | None:
        database = asynchronous(engine)
        try:
            retries = Retries(attempts=1, first_wait_ms=1, wait_ms_max=1)
            inbox = AsyncInbox(database, consumer="billing", identity=lambda _: "e-1", retries=retries)
            handler: Any = lambda *_: None  # noqa: E731
            return await inbox.take(handler, message({"id": "e-1"}))
        finally:
            await database.dispose()

    assert asyncio.run(take()) is Outcome.QUARANTINED
    assert "write `async def`" in held(engine)[0]


# -- without an identity -----------------------------------------------------------------------------------------------


async def awaited(_message: object) -> str:
    return "e-1"


@pytest.mark.parametrize("identity", [None, "id", awaited, generator])
def test_an_inbox_without_an_identity_is_refused_when_it_is_made(engine: Engine, identity: Any) -> None:
    """Every message would be put aside, as one that nobody can decode."""
    with pytest.raises(TypeError, match="identity"):
        Inbox(engine, consumer="billing", identity=identity)
    with pytest.raises(TypeError, match="identity"):
        AsyncInbox(asynchronous(engine), consumer="billing", identity=identity)


@pytest.mark.parametrize("option", ["passing", "clock", "chance"])
def test_the_other_functions_of_a_loop_are_not_awaited_either(engine: Engine, option: str) -> None:
    """Every error would pass by itself, and be waited for without end."""
    wrong: Callable[..., Awaitable[str]] = awaited
    with pytest.raises(TypeError, match=option):
        inbox_of(engine, **{option: wrong})


def test_an_event_without_an_id_is_refused_with_the_remedy(engine: Engine) -> None:
    nobody: Any = None
    with engine.begin() as connection, pytest.raises(UnusableId, match="that the producer gave the event"):
        once(connection, consumer="billing", message_id=nobody).__enter__()
    inbox = inbox_of(engine, identity=lambda _: None)
    assert inbox.take(lambda *_: None, message({"id": "e-1"})) is Outcome.QUARANTINED
    assert "that the producer gave the event" in held(engine)[0]


def test_a_loop_on_a_topic_without_ids_ends_and_says_why(engine: Engine, bootstrap: str, topic: str) -> None:
    """It would put the whole topic aside, message by message."""
    send(bootstrap, topic, *({"name": number} for number in range(WITHOUT_IDENTITY_MAX + 10)))
    inbox = inbox_of(engine)
    with pytest.raises(LoopFailed, match=r"KeyError: 'id'.*let the producer add one"):
        inbox.run(lambda *_: None, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    # What it has put aside is done: a loop that is started again goes on behind it.
    assert inbox.counts.quarantined == committed(bootstrap, topic) == WITHOUT_IDENTITY_MAX
    assert done(engine) == []


def test_messages_without_ids_after_one_with_an_id_end_nothing(engine: Engine, bootstrap: str, topic: str) -> None:
    """A stranger could end the loop with them."""
    strangers = [{"name": number} for number in range(WITHOUT_IDENTITY_MAX + 1)]
    send(bootstrap, topic, {"id": "a"}, *strangers, {"id": "b"})

    def handle(_connection: Any, taken: Any) -> None:
        if b'"b"' in taken.value:
            inbox.stop()

    inbox = inbox_of(engine)
    inbox.run(handle, {"bootstrap.servers": bootstrap, "group.id": topic}, [topic])
    assert (inbox.counts.first_time, inbox.counts.quarantined) == (2, len(strangers))
