"""An answer that says nothing of the effect does not use up the key: whoever logs in, or waits, is executed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from conftest_http import NewShop, caller
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from test_frameworks import IN_EACH

from semel.http import AsgiIdempotency, Fate, Idempotency, Request

NOT_OF_THE_EFFECT = [401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426, 428, 429, 431]


@IN_EACH
def test_who_was_told_to_log_in_or_to_wait_is_executed_when_he_comes_again(
    new_shop: NewShop, framework: str, asynchronous: bool
) -> None:
    shop = new_shop(framework, asynchronous=asynchronous)
    for number, status in enumerate(NOT_OF_THE_EFFECT):
        for times in (1, 2):
            refused = shop.post(amount=5, status=status)
            assert (refused.status_code, refused.headers.get("idempotency-replayed")) == (status, None)
            assert shop.gate.executions == 2 * number + times
    for number, status in enumerate((409, 422)):
        for _ in (1, 2):
            refused = shop.post(amount=5, status=status, headers={"Retry-After": "1"})
            assert refused.headers.get("idempotency-replayed") is None
        assert shop.gate.executions == 2 * (len(NOT_OF_THE_EFFECT) + number + 1)
    assert shop.booked() == []
    assert shop.keys() == 0
    # What was accepted and is to be asked for later is an effect, and is kept.
    for _ in (1, 2):
        accepted = shop.post("k-2", amount=5, status=202, headers={"Retry-After": "1"})
    assert accepted.headers["idempotency-replayed"] == "true"
    assert shop.booked() == ["5"]


@pytest.mark.parametrize("framework", ["starlette", "flask"])
def test_an_application_may_have_an_answer_forgotten_or_kept_against_the_rule(
    new_shop: NewShop, framework: str
) -> None:
    fates = {402: Fate.FORGOTTEN, 403: Fate.KEPT, 404: Fate.UNDONE, 200: False, 429: True}
    shop = new_shop(framework, commits=lambda status: fates[status])
    executions = {402: 2, 403: 1, 404: 1, 200: 1, 429: 2}
    for status, expected in executions.items():
        before = shop.gate.executions
        for _ in (1, 2):
            shop.post(f"k-{status}", amount=status, status=status)
        assert shop.gate.executions - before == expected
    assert shop.booked() == ["403"]


def test_a_step_that_is_done_stays_done_where_its_answer_was_forgotten(engine: Engine) -> None:
    calls: list[int] = []
    statuses = [429, 201]

    async def charge(request: StarletteRequest) -> Response:
        key = idempotency.key(request)
        await asyncio.to_thread(call_once, key)
        return Response(status_code=statuses.pop(0))

    def call_once(key: Any) -> None:
        with key.step("charge") as step:
            if step.first:
                calls.append(1)

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/charges", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"})

    idempotency = Idempotency(engine, scope=caller, steps=("/charges",))
    app = AsgiIdempotency(Starlette(routes=[Route("/charges", charge, methods=["POST"])]), idempotency)
    with asyncio.Runner() as runner:
        assert [runner.run(post()).status_code for _ in range(3)] == [429, 201, 201]
    assert (calls, statuses) == ([1], [])


class Tokens(AuthenticationBackend):
    """Who is known by a token, until it is taken away."""

    def __init__(self) -> None:
        self.users = {"token-of-anna": "anna"}

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        user = self.users.get(conn.headers.get("authorization", ""))
        if user is None:
            raise AuthenticationError
        return AuthCredentials(), SimpleUser(user)


def test_behind_authentication_a_stranger_costs_no_transaction_and_hears_no_replay(engine: Engine) -> None:
    """The order that the guide shows: authentication outside, and the scope from who was authenticated."""

    async def pay(_request: StarletteRequest) -> Response:
        return JSONResponse({"paid": True}, 201)

    def name(request: Request) -> str:
        scopes.append(request.native["user"].username)
        return scopes[-1]

    async def post(token: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {"Idempotency-Key": "k-1", "Authorization": token}
            return await client.post("/payments", headers=headers)

    scopes: list[str] = []
    tokens = Tokens()
    authentication = Middleware(
        AuthenticationMiddleware, backend=tokens, on_error=lambda _request, _error: Response(status_code=401)
    )
    idempotency = Idempotency(engine, scope=name)
    app = Starlette(
        routes=[Route("/payments", pay, methods=["POST"])],
        middleware=[authentication, Middleware(AsgiIdempotency, idempotency=idempotency)],
    )
    with asyncio.Runner() as runner:
        assert runner.run(post("stranger")).status_code == 401
        assert scopes == []
        assert [runner.run(post("token-of-anna")).status_code for _ in range(2)] == [201, 201]
        tokens.users.clear()
        assert runner.run(post("token-of-anna")).status_code == 401
    assert scopes == ["anna", "anna"]
