"""A `scope` that several callers share, or that changes, is refused when it is configured or at the first request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.test import RequestFactory
from fastapi import FastAPI
from fastapi import Request as FastapiRequest
from fastapi.testclient import TestClient
from flask import Flask
from flask import request as flask_request
from sqlalchemy import Engine
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from djangos import configure
from semel.http import AsgiIdempotency, Idempotency, Request, WsgiIdempotency
from semel.http.callers import UnusableScope

Scope = Callable[[Request], Any]
PROXIED = {"X-Forwarded-For": "203.0.113.7"}


def fastapi(engine: Engine, scope: Scope) -> Callable[[dict[str, str]], Any]:
    app = FastAPI()
    idempotency = Idempotency(engine, scope=scope)
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def pay(request: Any) -> dict[str, str]:
        idempotency.connection(request)
        return {}

    pay.__annotations__ |= {"request": FastapiRequest, "return": dict[str, str]}
    app.post("/payments")(pay)
    client = TestClient(app, client=("10.0.0.1", 50123))
    return lambda headers: client.post("/payments", headers={"Idempotency-Key": "k-1", **headers})


def flask(engine: Engine, scope: Scope) -> Callable[[dict[str, str]], Any]:
    app = Flask("shop")
    idempotency = Idempotency(engine, scope=scope)

    @app.post("/payments")
    def pay() -> str:
        idempotency.connection(flask_request)
        return "{}"

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    environ = {"REMOTE_ADDR": "10.0.0.1", "REMOTE_PORT": "50123"}
    client = app.test_client()
    return lambda headers: client.post(
        "/payments", headers={"Idempotency-Key": "k-1", **headers}, environ_overrides=environ
    )


FRAMEWORKS = pytest.mark.parametrize("framework", [fastapi, flask])


def address(request: Request) -> str:
    client = request.native.get("client") or (request.native["REMOTE_ADDR"], request.native["REMOTE_PORT"])
    return str(client[0])


def address_and_port(request: Request) -> str:
    client = request.native.get("client") or (request.native["REMOTE_ADDR"], request.native["REMOTE_PORT"])
    return f"{client[0]}:{client[1]}"


@FRAMEWORKS
@pytest.mark.parametrize(
    "headers", [PROXIED, {"Via": "1.1 proxy"}, {"Forwarded": "for=203.0.113.7"}, {"X-Real-IP": "203.0.113.7"}]
)
def test_the_address_of_a_proxy_is_no_caller(engine: Engine, framework: Any, headers: dict[str, str]) -> None:
    """All callers behind it would get each other's answers."""
    with pytest.raises(UnusableScope, match=r"address of a proxy.*authenticated"):
        framework(engine, address)(headers)


@FRAMEWORKS
@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({"X-Forwarded-For": value} for value in ("203.0.113.7, 10.0.0.1", "10.0.0.1:40000")),
        {"Forwarded": "for=10.0.0.1"},
    ],
)
def test_an_address_that_no_proxy_hides_is_the_applications_choice(
    engine: Engine, framework: Any, headers: dict[str, str]
) -> None:
    assert framework(engine, address)(headers).status_code == 200


@pytest.mark.parametrize("trusted", ["*", "192.0.2.1"])
def test_a_server_that_trusts_its_proxy_has_put_the_callers_own_address_there(engine: Engine, trusted: str) -> None:
    """As uvicorn does with --proxy-headers."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        idempotency.connection(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask() -> int:
        server: Any = ProxyHeadersMiddleware(AsgiIdempotency(app, idempotency), trusted_hosts=trusted)
        transport = httpx.ASGITransport(server, client=("10.0.0.1", 50123))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.post("/payments", headers={"Idempotency-Key": "k-1", **PROXIED})).status_code

    idempotency = Idempotency(engine, scope=address)
    if trusted == "*":
        assert asyncio.run(ask()) == 200
    else:
        with pytest.raises(UnusableScope):
            asyncio.run(ask())


@FRAMEWORKS
@pytest.mark.parametrize("header", ["x-forwarded-for", "x-real-ip", "cf-connecting-ip"])
def test_an_address_that_any_client_can_send_is_no_caller(engine: Engine, framework: Any, header: str) -> None:
    scope: Scope = lambda request: request.headers[header].split(",")[0]  # noqa: E731
    with pytest.raises(UnusableScope, match="from a header"):
        framework(engine, scope)({header: "203.0.113.7, 10.0.0.1"})


@FRAMEWORKS
def test_a_tenant_that_a_proxy_names_is_the_applications_choice(engine: Engine, framework: Any) -> None:
    post = framework(engine, lambda request: request.headers["x-forwarded-host"])
    assert post({"X-Forwarded-Host": "anna.shop.example"}).status_code == 200


@FRAMEWORKS
def test_an_address_with_its_port_is_no_caller(engine: Engine, framework: Any) -> None:
    """A client that repeats its request over a new connection has another port, and would be executed again."""
    scopes: tuple[Scope, ...] = (address_and_port, lambda request: str(request.native.get("client") or _pair(request)))
    for scope in scopes:
        with pytest.raises(UnusableScope, match="port"):
            framework(engine, scope)({})


def _pair(request: Request) -> tuple[str, str]:
    return request.native["REMOTE_ADDR"], request.native["REMOTE_PORT"]


@FRAMEWORKS
@pytest.mark.parametrize("name", ["None", "null", " undefined ", "AnonymousUser"])
def test_the_text_of_nobody_is_no_caller(engine: Engine, framework: Any, name: str) -> None:
    with pytest.raises(UnusableScope, match="all strangers would be one caller"):
        framework(engine, lambda _: name)({})


def test_djangos_user_that_is_not_logged_in_is_no_caller(engine: Engine) -> None:
    configure()
    from django.contrib.auth.models import AnonymousUser

    request: Any = RequestFactory().post("/payments")
    request.user = AnonymousUser()
    for scope in (lambda _: str(request.user), lambda _: str(request.user.pk)):
        with pytest.raises(UnusableScope):
            flask(engine, scope)({})


@FRAMEWORKS
def test_a_caller_is_text(engine: Engine, framework: Any) -> None:
    for wrong in (17, b"anna", ("anna",), True):
        with pytest.raises(TypeError, match="scope has to return text"):
            framework(engine, lambda _, wrong=wrong: wrong)({})


@FRAMEWORKS
def test_a_scope_that_returns_nothing_is_told_of_once(
    engine: Engine, framework: Any, caplog: pytest.LogCaptureFixture
) -> None:
    post = framework(engine, lambda request: request.headers.get("x-caller"))
    for _ in range(2):
        assert post({}).status_code == 400
    assert post({"X-Caller": "anna"}).status_code == 200
    [told] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "POST /payments" in told
    assert "scope has returned None" in told


def test_a_scope_that_has_to_be_awaited_is_refused_where_nobody_awaits_it(engine: Engine) -> None:
    async def scope(_request: Request) -> str:
        return "anna"

    with pytest.raises(TypeError, match="scope is a coroutine function"):
        WsgiIdempotency(Flask("shop"), Idempotency(engine, scope=scope))
    assert fastapi(engine, scope)({}).status_code == 200


@pytest.mark.parametrize("name", ["commits", "keeps", "clock"])
def test_a_function_whose_result_nobody_awaits_is_refused_when_it_is_configured(engine: Engine, name: str) -> None:
    """A coroutine counts as true: every refusal would keep its effect."""

    async def function(*_: object) -> bool:
        return False

    def generator(*_: object) -> Any:
        yield False

    for wrong in (function, generator):
        options: dict[str, Any] = {name: wrong}
        with pytest.raises(TypeError, match=name):
            Idempotency(engine, scope=lambda _: "anna", **options)


@pytest.mark.parametrize("name", ["commits", "keeps"])
def test_a_function_that_forgets_to_return_whether_the_effect_counts_is_refused(engine: Engine, name: str) -> None:
    """The effect of a success would be rolled back, and its answer kept."""
    app = Flask("shop")
    options: dict[str, Any] = {name: lambda _status: None}
    idempotency = Idempotency(engine, scope=lambda _: "anna", **options)

    @app.post("/payments")
    def pay() -> tuple[str, int]:
        idempotency.connection(flask_request)
        return "", 201 if name == "commits" else 402

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    with pytest.raises(TypeError, match=f"{name} has to return .* and has returned None"):
        app.test_client().post("/payments", headers={"Idempotency-Key": "k-1"})
