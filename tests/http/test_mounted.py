"""Patterns of paths are written as the application's routes are, wherever it is mounted; and a request can read."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from applications import Gate, book, payments
from applications import fastapi as shop_of_fastapi
from applications import flask as shop_of_flask
from applications import starlette as shop_of_starlette
from conftest_http import async_engine_of, caller
from fastapi import Depends, FastAPI, Request
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from semel.database import NotImmediate, read_only, within
from semel.http import AsgiIdempotency, Idempotency

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna", "Content-Type": "application/json"}


def idempotency_of(engine: Engine) -> Idempotency:
    return Idempotency(engine, scope=caller, paths=("/payments*",), required=("/payments",))


@pytest.mark.parametrize("make", [shop_of_starlette, shop_of_fastapi])
@pytest.mark.parametrize("where", ["", "/api", "/payments", "proxy"])
def test_a_pattern_matches_wherever_an_asgi_application_is_mounted(engine: Engine, make: Any, where: str) -> None:
    async def post(headers: dict[str, str]) -> httpx.Response:
        path = "/api/payments" if where == "proxy" else f"{where}/payments"
        transport = httpx.ASGITransport(app, root_path="/api" if where == "proxy" else "")
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post(path, json={"amount": 5}, headers=headers)

    gate = Gate()
    app = make(idempotency_of(engine), gate)
    if where.startswith("/"):
        app = Starlette(routes=[Mount(where, app)])
    with asyncio.Runner() as runner:
        assert [runner.run(post(HEADERS)).status_code for _ in range(2)] == [201, 201]
        without_key = {name: value for name, value in HEADERS.items() if name != "Idempotency-Key"}
        assert runner.run(post(without_key)).json()["type"] == "urn:semel:problem:key-missing"
    assert gate.executions == 1


@pytest.mark.parametrize("where", ["", "/api"])
def test_a_pattern_matches_wherever_a_wsgi_application_is_mounted(engine: Engine, where: str) -> None:
    gate = Gate()
    app = shop_of_flask(idempotency_of(engine), gate)
    mounted = DispatcherMiddleware(lambda _environ, _start: [], {where: app}) if where else app
    with httpx.Client(transport=httpx.WSGITransport(mounted), base_url="http://shop") as client:
        for _ in range(2):
            assert client.post(f"{where}/payments", json={"amount": 5}, headers=HEADERS).status_code == 201
    assert gate.executions == 1


def test_a_request_reads_beside_its_own_transaction(engine: Engine) -> None:
    """By a dependency on the same engine, as most applications have one for each request."""
    reader = read_only(engine)

    def read() -> Any:
        with reader.connect() as connection:
            yield connection

    app = FastAPI()
    idempotency = idempotency_of(engine)
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def pay(request: Request, seen: Connection = Depends(read)) -> dict[str, int]:  # noqa: B008
        with within(idempotency.connection(request)) as connection:
            book(connection, {})
        return {"before": seen.scalar(select(func.count()).select_from(payments)) or 0}

    pay.__annotations__ = {"request": Request, "seen": Connection, "return": dict[str, int]}
    app.post("/payments")(pay)

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/payments", headers=HEADERS)

    assert asyncio.run(post()).json() == {"before": 0}


def test_an_engine_that_reads_is_refused_where_a_claim_is_written(url: str, engine: Engine) -> None:
    refused = pytest.raises((NotImmediate, DBAPIError))
    with refused, read_only(engine).begin() as connection, within(connection) as given:
        book(given, {})

    async def read() -> Any:
        database = async_engine_of(url)
        async with read_only(database).connect() as connection:
            count = await connection.scalar(select(func.count()).select_from(payments))
        await database.dispose()
        return count

    assert asyncio.run(read()) == 0
