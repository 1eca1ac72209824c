"""Whoever hands over another thing than an engine hears of it at once, with what to hand over instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from semel import outbox, schema
from semel.database import UnknownDatabase, begin_immediately, engine_of, read_only
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency, reap, reap_async
from semel.http.client import AsyncCaller, Caller
from semel.offsets import advance, seeking
from semel.outbox import Relay, RelayRefused
from semel.publish import Publisher, PublishRefused

SECRET = "postgresql://app:swordfish@db/app"
ENGINE = create_engine("sqlite://")
ASYNC_ENGINE = create_async_engine("sqlite+aiosqlite://")


def caller(_request: object) -> str:
    return "anna"


WRONG: list[tuple[Any, str]] = [
    (SECRET, "engine_of"),
    (SECRET.encode(), "engine_of"),
    (make_url(SECRET), "engine_of"),
    (Session(ENGINE), "sessionmaker or the engine"),
    (scoped_session(sessionmaker(ENGINE)), "sessionmaker or the engine"),
    (AsyncSession(ASYNC_ENGINE), "sessionmaker or the engine"),
    (async_scoped_session(async_sessionmaker(ASYNC_ENGINE), lambda: 1), "sessionmaker or the engine"),
    (ENGINE.connect(), "hand over its engine"),
    (ASYNC_ENGINE.connect(), "hand over its engine"),
    (None, "None"),
    (17, "int"),
    (object(), "object"),
    (Session, "type"),
    (sessionmaker(ENGINE, class_=AsyncSession), "async_sessionmaker"),  # type: ignore[type-var]
    (sessionmaker(ASYNC_ENGINE), "asynchronous engine"),  # type: ignore[arg-type]
    (async_sessionmaker(ENGINE), "synchronous engine"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("database", "told"), WRONG, ids=[type(one).__name__ for one, _ in WRONG])
def test_the_database_of_the_http_keys_is_checked_when_they_are_configured(database: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told) as refusal:
        Idempotency(database, scope=caller)
    assert "swordfish" not in str(refusal.value)


NO_ENGINES = [
    *[case for case in WRONG if not isinstance(case[0], sessionmaker | async_sessionmaker)],
    (sessionmaker(ENGINE), "hand over its engine"),
    (ASYNC_ENGINE, "asynchronous engine"),
]


@pytest.mark.parametrize(("engine", "told"), NO_ENGINES, ids=[type(one).__name__ for one, _ in NO_ENGINES])
def test_a_relay_a_reaper_and_a_seeker_take_engines_alone(engine: Any, told: str) -> None:
    for make in (
        lambda: Relay(engine, "127.0.0.1:9092"),
        lambda: seeking(engine, "consumer"),
        lambda: reap(engine),
    ):
        with pytest.raises((TypeError, RelayRefused)) as refusal:
            make()
        assert "swordfish" not in str(refusal.value)
    with pytest.raises(RelayRefused, match=told):
        Relay(engine, "127.0.0.1:9092")


@pytest.mark.parametrize("value", [SECRET, None, 17, Session(ENGINE), sessionmaker(ENGINE), ASYNC_ENGINE])
def test_tables_are_made_and_checked_on_an_engine_or_a_connection(value: Any) -> None:
    for call in (schema.check, schema.make):
        with pytest.raises(TypeError, match="has to be of the kind Engine or Connection") as refusal:
            call(value)
        assert "swordfish" not in str(refusal.value)


@pytest.mark.parametrize("value", [None, 17, ENGINE, b"sqlite://"])
def test_an_engine_is_made_of_a_url(value: Any) -> None:
    with pytest.raises(TypeError, match="the URL of a database"):
        engine_of(value)


@pytest.mark.parametrize("value", ["sqlite://", None, Session(ENGINE)])
def test_settings_of_an_engine_take_an_engine(value: Any) -> None:
    for call in (begin_immediately, read_only):
        with pytest.raises(TypeError, match="the engine has to be"):
            call(value)
    with pytest.raises(TypeError, match="sync_engine"):
        begin_immediately(ASYNC_ENGINE)  # type: ignore[arg-type]


def test_the_reaper_of_an_asynchronous_engine_takes_no_other() -> None:
    with pytest.raises(TypeError, match="synchronous engine"):
        asyncio.run(reap_async(ENGINE))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"scope": "anna"},
        {"scope": None},
        {"methods": "POST"},
        {"methods": (b"POST",)},
        {"paths": "/payments"},
        {"paths": (7,)},
        {"required": "*"},
        {"steps": "/charges"},
        {"commits": True},
        {"keeps": (402,)},
        {"clock": 17},
        {"lease_ms": "30000"},
        {"lease_ms": 1.5},
        {"result_ttl_ms": None},
        {"request_bytes_max": True},
        {"answer_bytes_max": "1 MiB"},
    ],
)
def test_an_option_of_another_kind_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Idempotency(ENGINE, **{"scope": caller, **options})


def test_methods_may_be_written_in_lower_case() -> None:
    assert Idempotency(ENGINE, scope=caller, methods=("post",)).concerns("POST", "/payments")


async def asgi(_scope: Any, _receive: Any, _send: Any) -> None:
    pass


def wsgi(_environ: Any, _start_response: Any) -> list[bytes]:
    return []


def test_a_middleware_refuses_an_application_or_a_configuration_of_the_other_kind() -> None:
    with pytest.raises(TypeError, match="asynchronous one"):
        WsgiIdempotency(wsgi, Idempotency(ASYNC_ENGINE, scope=caller))
    with pytest.raises(TypeError, match="take AsgiIdempotency"):
        WsgiIdempotency(asgi, Idempotency(ENGINE, scope=caller))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="take AsgiIdempotency"):
        WsgiIdempotency(FastAPI(), Idempotency(ENGINE, scope=caller))  # type: ignore[arg-type]
    for middleware, app in ((WsgiIdempotency, wsgi), (AsgiIdempotency, asgi)):
        for wrong in (None, ENGINE, SECRET):
            with pytest.raises(TypeError, match="has to be of the kind Idempotency"):
                middleware(app, wrong)
        with pytest.raises(TypeError, match="the application has to be a function"):
            middleware(None, Idempotency(ENGINE, scope=caller))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((None,), {}),
        ((9092,), {}),
        (("127.0.0.1:9092",), {"name": 5}),
        (("127.0.0.1:9092",), {"shards": "2"}),
        (("127.0.0.1:9092",), {"shards": True}),
        (("127.0.0.1:9092",), {"batch_rows": 1.5}),
        (("127.0.0.1:9092",), {"timeout_seconds": "10"}),
        (("127.0.0.1:9092",), {"budget": 5}),
        (("127.0.0.1:9092",), {"clock": None}),
    ],
)
def test_a_relay_refuses_options_of_another_kind(arguments: Any, options: dict[str, Any]) -> None:
    with pytest.raises(RelayRefused):
        Relay(ENGINE, *arguments, **options)


@pytest.mark.parametrize(
    ("bootstrap", "name", "options"),
    [
        (None, "orders", {}),
        ("", "orders", {}),
        ({"bootstrap.servers": "127.0.0.1:9092"}, "orders", {}),
        ("127.0.0.1:9092", None, {}),
        ("127.0.0.1:9092", 5, {}),
        ("127.0.0.1:9092", "orders", {"timeout_seconds": "60"}),
        ("127.0.0.1:9092", "orders", {"timeout_seconds": True}),
        ("127.0.0.1:9092", "orders", {"gaps": True}),
        ("127.0.0.1:9092", "orders", {"cursor_topic": 5}),
        ("127.0.0.1:9092", "orders", {"client": "127.0.0.1:9092"}),
        ("127.0.0.1:9092", "orders", {"client": [("linger.ms", 5)]}),
    ],
)
def test_a_publisher_refuses_arguments_of_another_kind(bootstrap: Any, name: Any, options: dict[str, Any]) -> None:
    with pytest.raises(PublishRefused):
        Publisher(bootstrap, name, **options)


def test_a_caller_refuses_a_client_of_the_other_kind() -> None:
    import httpx

    for kind, wrong in ((Caller, httpx.AsyncClient()), (AsyncCaller, httpx.Client())):
        for client in (wrong, None, "https://shop"):
            with pytest.raises(TypeError, match="hand over"):
                kind(client)


@pytest.mark.parametrize("place", [(5, "orders", 0, 0), ("c", b"orders", 0, 0), ("c", "o", "0", 0), ("c", "o", 0, "0")])
def test_an_offset_of_another_kind_is_refused(place: Any) -> None:
    with pytest.raises(TypeError):
        advance(ENGINE.connect(), *place)


def test_an_engine_for_another_database_is_refused() -> None:
    class Dialect:
        name = "oracle"

    other = create_engine("sqlite://")
    other.dialect = Dialect()  # type: ignore[assignment]
    with pytest.raises(UnknownDatabase, match="oracle is no database"):
        Idempotency(other, scope=caller)
    with pytest.raises(RelayRefused, match="oracle"):
        outbox.Relay(other, "127.0.0.1:9092")
