"""The same small shop in each framework: POST /payments books a payment, and counts how often it was executed.

What it does is in the body: its status, how many bytes it answers, whether it fails, whom it waits for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import Response as LitestarResponse
from litestar import post as litestar_post
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse
from starlette.routing import Route

from semel.database import within, within_async
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency

shop = MetaData()
payments = Table(
    "payments", shop, Column("id", Integer, primary_key=True), Column("amount", String(200), nullable=False)
)


class Gate:
    """How often handlers were entered, and a hook for a test to hold one up."""

    def __init__(self) -> None:
        self.executions = 0
        self.inside: Callable[[], None] = lambda: None

    def enter(self) -> None:
        self.executions += 1
        self.inside()


class Failure(Exception):
    """What a handler dies of."""


def book(connection: Connection, asked: dict[str, Any]) -> None:
    connection.execute(insert(payments), {"amount": json.dumps(asked.get("amount"))})


def answer_to(asked: dict[str, Any], gate: Gate) -> tuple[int, dict[str, str], bytes]:
    headers = {"Location": f"/payments/{gate.executions}", "Set-Cookie": "session=secret", "X-Execution": "first"}
    headers |= asked.get("headers", {})
    body = json.dumps({"execution": gate.executions}).encode().ljust(asked.get("size", 0))
    return asked.get("status", 201), {**headers, "Content-Type": "application/json"}, body


def starlette(idempotency: Idempotency, gate: Gate) -> Any:
    async def pay(request: StarletteRequest) -> StarletteResponse:
        asked = await request.json()
        gate.enter()
        given = idempotency.connection(request)
        if idempotency.is_asynchronous:
            await within_async(given, lambda connection: book(connection, asked))
        else:
            with within(given) as connection:
                book(connection, asked)
        if asked.get("fails"):
            raise Failure
        status, headers, body = answer_to(asked, gate)
        return StarletteResponse(body, status, headers)

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    return app


def fastapi(idempotency: Idempotency, gate: Gate) -> Any:
    from fastapi import FastAPI
    from fastapi import Request as FastapiRequest
    from fastapi import Response as FastapiResponse

    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def pay(asked: dict[str, Any], request: FastapiRequest) -> FastapiResponse:
        gate.enter()
        with within(idempotency.connection(request)) as connection:
            book(connection, asked)
        if asked.get("fails"):
            raise Failure
        status, headers, body = answer_to(asked, gate)
        return FastapiResponse(body, status, headers)

    async def pay_async(asked: dict[str, Any], request: FastapiRequest) -> FastapiResponse:
        gate.enter()
        await within_async(idempotency.connection(request), lambda connection: book(connection, asked))
        if asked.get("fails"):
            raise Failure
        status, headers, body = answer_to(asked, gate)
        return FastapiResponse(body, status, headers)

    # The annotations are texts here, and name what is known in this function alone.
    for handler in (pay, pay_async):
        handler.__annotations__ |= {"asked": dict[str, Any], "request": FastapiRequest, "return": FastapiResponse}
    app.post("/payments")(pay_async if idempotency.is_asynchronous else pay)
    return app


def litestar(idempotency: Idempotency, gate: Gate) -> Any:
    async def pay(request: LitestarRequest[Any, Any, Any]) -> LitestarResponse[bytes]:
        asked = await request.json()
        gate.enter()
        given = idempotency.connection(request)
        if idempotency.is_asynchronous:
            await within_async(given, lambda connection: book(connection, asked))
        else:
            with within(given) as connection:
                book(connection, asked)
        if asked.get("fails"):
            raise Failure
        status, headers, body = answer_to(asked, gate)
        return LitestarResponse(body, status_code=status, headers=headers, media_type="application/json")

    return AsgiIdempotency(Litestar([litestar_post("/payments")(pay)]), idempotency)


def flask(idempotency: Idempotency, gate: Gate) -> Any:
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> tuple[bytes, int, dict[str, str]]:
        asked = flask_request.get_json()
        gate.enter()
        with within(idempotency.connection(flask_request)) as connection:
            book(connection, asked)
        if asked.get("fails"):
            raise Failure
        status, headers, body = answer_to(asked, gate)
        return body, status, headers

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    return app


def django(idempotency: Idempotency, gate: Gate) -> Any:
    """What differs stands in the module of the views."""
    from djangos import configure

    configure()
    import django_shop
    from django.core.wsgi import get_wsgi_application

    django_shop.parts = idempotency, gate
    return WsgiIdempotency(get_wsgi_application(), idempotency)
