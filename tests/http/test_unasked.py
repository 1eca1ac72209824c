"""A handler that works on a connection of its own commits beside its key: semel tells of it, or refuses the answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from applications import payments
from conftest_http import NewShop, async_engine_of, caller
from fastapi import FastAPI
from fastapi.testclient import TestClient
from flask import Flask
from litestar import Litestar
from litestar import post as litestar_post
from litestar.testing import TestClient as LitestarClient
from sqlalchemy import Engine, func, insert, select
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route
from test_frameworks import IN_EACH

from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.http.idempotency import TOLD_PATHS_MAX
from semel.http.tables import keys

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}


def count(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


Post = Callable[[str], Any]
"""Sends a request under a key, and returns its answer."""


def fastapi(idempotency: Idempotency) -> Post:
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    @app.post("/orders/{number}/payments", status_code=201)
    async def pay(number: int) -> dict[str, int]:
        return {}

    client = TestClient(app)
    return lambda key: client.post("/orders/7/payments", headers={**HEADERS, "Idempotency-Key": key})


def starlette(idempotency: Idempotency) -> Post:
    async def pay(_request: StarletteRequest) -> JSONResponse:
        return JSONResponse({}, 201)

    app = Starlette(routes=[Route("/orders/7/payments", pay, methods=["POST"])])
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    client = TestClient(app)
    return lambda key: client.post("/orders/7/payments", headers={**HEADERS, "Idempotency-Key": key})


def litestar(idempotency: Idempotency) -> Post:
    async def pay() -> dict[str, int]:
        return {}

    app = AsgiIdempotency(Litestar([litestar_post("/orders/7/payments")(pay)], logging_config=None), idempotency)
    client: Any = LitestarClient(app)  # type: ignore[arg-type]
    return lambda key: client.post("/orders/7/payments", headers={**HEADERS, "Idempotency-Key": key})


def flask(idempotency: Idempotency) -> Post:
    app = Flask("shop")

    @app.post("/orders/7/payments")
    def pay() -> tuple[str, int]:
        return "", 201

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    client = app.test_client()
    return lambda key: client.post("/orders/7/payments", headers={**HEADERS, "Idempotency-Key": key})


FRAMEWORKS = pytest.mark.parametrize("framework", [fastapi, starlette, litestar, flask])


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "semel.http" and one.levelno == level]


@FRAMEWORKS
def test_a_handler_that_never_asks_for_the_connection_is_told_of_once_for_each_path(
    engine: Engine, framework: Callable[[Idempotency], Post], caplog: pytest.LogCaptureFixture
) -> None:
    post = framework(Idempotency(engine, scope=caller))
    for number in range(3):
        assert post(f"k-{number}").status_code == 201
    [one] = told(caplog, logging.WARNING)
    path = "/orders/{number}/payments" if framework is fastapi else "/orders/7/payments"
    assert re.search(rf"POST {re.escape(path)} \([\w.<>]*pay\) answered 201", one)
    way = "Depends(idempotency.session)" if framework is fastapi else "idempotency.session(request)"
    assert f"did not ask for {way}:" in one


@FRAMEWORKS
def test_where_semel_is_strict_such_an_answer_is_refused_and_nothing_is_kept(
    engine: Engine, framework: Callable[[Idempotency], Post], caplog: pytest.LogCaptureFixture
) -> None:
    post = framework(Idempotency(engine, scope=caller, strict=True))
    for _ in range(2):
        answer = post("k-1")
        assert answer.status_code == 500
        problem = answer.get_json(force=True) if framework is flask else answer.json()
        assert problem["type"] == "urn:semel:problem:connection-not-used"
    assert len(told(caplog, logging.ERROR)) == 2
    assert count(engine, keys) == 0


@pytest.mark.parametrize("strict", [False, True])
@IN_EACH
def test_of_a_handler_that_asks_nothing_is_told(
    new_shop: NewShop, framework: str, asynchronous: bool, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shop = new_shop(framework, asynchronous=asynchronous, strict=strict)
    assert shop.post(amount=5).status_code == shop.post(amount=5).status_code == 201
    # A refusal has no effect that could be lost.
    assert shop.post("k-2", status=404).status_code == 404
    assert told(caplog, logging.WARNING) == []
    assert shop.booked() == ["5"]


def test_a_session_of_the_handlers_own_is_told_of(engine: Engine, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It commits by itself behind the answer: whatever becomes of it, the key says that it was done. If semel sees it
    write, it is refused."""
    from sqlalchemy.ext.asyncio import async_sessionmaker

    own = async_sessionmaker(async_engine_of(url))
    idempotency = Idempotency(async_sessionmaker(async_engine_of(url)), scope=caller)
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    async def get_session() -> Any:
        async with own() as session:
            yield session
            raise ConnectionError

    async def pay(session: Any) -> dict[str, str]:
        if engine.dialect.name == "postgresql":
            await session.execute(insert(payments), {"amount": "5"})
        return {}

    from fastapi import Depends

    pay.__annotations__ |= {"session": Any, "return": dict[str, str]}
    pay.__defaults__ = (Depends(get_session),)
    app.post("/payments")(pay)
    with TestClient(app, raise_server_exceptions=False) as client:
        first, second = (client.post("/payments", headers=HEADERS) for _ in range(2))
    assert count(engine, payments) == 0
    if engine.dialect.name == "postgresql":
        # It is seen to write.
        assert (first.status_code, second.status_code, count(engine, keys)) == (500, 500, 0)
        return
    assert (first.status_code, second.headers["idempotency-replayed"]) == (200, "true")
    [one] = told(caplog, logging.WARNING)
    assert "POST /payments" in one


@pytest.mark.parametrize("strict", [False, True])
def test_a_request_with_steps_that_makes_none_is_told_of(
    engine: Engine, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = Flask("shop")

    @app.post("/charges")
    def charge() -> str:
        return ""

    idempotency = Idempotency(engine, scope=caller, steps=("*",), strict=strict)
    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    answer = app.test_client().post("/charges", headers=HEADERS)
    assert answer.status_code == (500 if strict else 200)
    [one] = told(caplog, logging.ERROR if strict else logging.WARNING)
    assert "idempotency.key(request)" in one


def test_paths_with_ids_in_them_do_not_fill_memory_or_log(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    from semel.http import Request as Asked

    idempotency = Idempotency(engine, scope=caller)
    for number in range(TOLD_PATHS_MAX + 5):
        idempotency.tell_of_unasked(Asked("POST", f"/orders/{number}", {}, {}), 201)
    assert len(told(caplog, logging.WARNING)) == TOLD_PATHS_MAX


def test_a_function_that_is_the_database_may_be_used_unasked_unless_semel_is_strict(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what the framework does with its transaction."""
    begin = lambda: engine.begin()  # noqa: E731
    assert flask(Idempotency(begin, scope=caller))("k-1").status_code == 201
    assert told(caplog, logging.WARNING) == []
    assert flask(Idempotency(begin, scope=caller, strict=True))("k-2").status_code == 500
