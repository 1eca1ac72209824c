"""Half an answer is none, whoever stands between the handler and the middleware: nothing commits, and a retry executes.

Starlette's `@app.middleware("http")` ends an answer properly that the handler did not end: messages prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from applications import Gate, book, payments
from conftest_http import async_engine_of, caller, until_settled
from flask import Flask
from sqlalchemy import Engine, func, select
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from semel.database import within, within_async
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}
HALVES = b"first half, second half"

Handler = Callable[[Request], Awaitable[Response]]


async def pass_on(request: Request, call_next: Any) -> Response:
    """What most of the middleware that people write does to an answer: nothing."""
    response: Response = await call_next(request)
    return response


WRAPPED = Middleware(BaseHTTPMiddleware, dispatch=pass_on)
STACKS = {
    "bare": ((), ()),
    "inside": ((), (WRAPPED,)),
    "outside": ((WRAPPED,), ()),
    "both": ((WRAPPED,), (WRAPPED, WRAPPED)),
    "zipped": ((), (Middleware(GZipMiddleware, minimum_size=1), WRAPPED)),
}
IN_EACH_STACK = pytest.mark.parametrize("stack", STACKS)


class Shop:
    """One handler, with middleware outside and inside of ours, and how often it was entered."""

    def __init__(self, database: Any, stack: str, handler: Handler) -> None:
        self.idempotency = Idempotency(database, scope=caller)
        self.gate = Gate()
        self._handler = handler
        outside, inside = STACKS[stack]
        ours = Middleware(AsgiIdempotency, idempotency=self.idempotency)
        self.app = Starlette(
            routes=[Route("/payments", self._enter, methods=["POST"])], middleware=[*outside, ours, *inside]
        )

    async def _enter(self, request: Request) -> Response:
        self.gate.enter()
        connection = self.idempotency.connection(request)
        if self.idempotency.is_asynchronous:
            await within_async(connection, lambda given: book(given, {}))
        else:
            with within(connection) as given:
                book(given, {})
        return await self._handler(request)

    async def post(self) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/payments", headers=HEADERS)

    async def post_and_go(self, gone: asyncio.Event) -> None:
        """Ask as a client that goes at a moment of the test's choice; whatever comes of it, the server closes."""
        waiting = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await asyncio.sleep(0)

        scope = {"type": "http", "method": "POST", "path": "/payments", "query_string": b"", "http_version": "1.1"}
        scope |= {"asgi": {"version": "3.0", "spec_version": "2.3"}, "scheme": "http", "server": ("shop", 80)}
        scope |= {"headers": [(b"idempotency-key", b"k-1"), (b"x-caller", b"anna")]}
        # Starlette's middleware complains where there is no answer, and there is nobody who could get one.
        with contextlib.suppress(RuntimeError):
            await self.app(scope, receive, send)


def booked(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(payments)) or 0


@IN_EACH_STACK
@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_a_streaming_answer_that_raises_leaves_nothing_and_can_be_repeated(
    engine: Engine, stack: str, chunks: int
) -> None:
    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for number, piece in enumerate((b"first half, ", b"second half")):
                if shop.gate.executions == 1 and number == chunks:
                    raise ConnectionError
                yield piece
            if shop.gate.executions == 1:
                raise ConnectionError

        return StreamingResponse(pieces(), 201)

    shop = Shop(engine, stack, handler)
    with asyncio.Runner() as runner:
        assert runner.run(shop.post()).status_code == 500
        assert booked(engine) == 0
        assert [runner.run(shop.post()).content for _ in range(2)] == [HALVES, HALVES]
    assert (shop.gate.executions, booked(engine)) == (2, 1)


@IN_EACH_STACK
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_streaming_answer_that_is_cut_off_because_its_client_went_is_executed_again(
    url: str, engine: Engine, stack: str, asynchronous: bool
) -> None:
    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first half, "
            if shop.gate.executions == 1:
                gone.set()
                await asyncio.Event().wait()
            yield b"second half"

        return StreamingResponse(pieces(), 201)

    async def run() -> None:
        await shop.post_and_go(gone)
        assert booked(engine) == 0
        assert [(await shop.post()).content for _ in range(2)] == [HALVES, HALVES]
        if asynchronous:
            await database.dispose()

    gone = asyncio.Event()
    database = async_engine_of(url) if asynchronous else engine
    shop = Shop(database, stack, handler)
    asyncio.run(run())
    assert (shop.gate.executions, booked(engine)) == (2, 1)


# Each way to go in each stack, and each of both on either database.
@pytest.mark.parametrize(
    ("url", "stack", "goes"),
    [
        (("sqlite", "postgresql")[(row + column) % 2], stack, goes)
        for row, stack in enumerate(STACKS)
        for column, goes in enumerate(("cancelled", "disconnected"))
    ],
    indirect=["url"],
)
def test_wherever_a_request_is_broken_off_the_retry_gets_one_whole_answer_to_one_effect(
    url: str, engine: Engine, stack: str, goes: str
) -> None:
    """After each number of turns of the loop, until the request is through."""

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in (b"first half, ", b"second half"):
                await asyncio.sleep(0)
                yield piece

        return StreamingResponse(pieces(), 201)

    async def run() -> None:
        for rounds, turns in enumerate(range(0, 90, 3)):
            gone = asyncio.Event()
            asking = asyncio.create_task(shop.post_and_go(gone))
            for _ in range(turns):
                await asyncio.sleep(0)
            gone.set() if goes == "disconnected" else asking.cancel()
            await asyncio.wait([asking])
            assert (await until_settled(shop.post)).content == HALVES
            assert booked(engine) == rounds + 1
            with engine.begin() as connection:
                connection.exec_driver_sql("DELETE FROM semel_http_keys")
        await database.dispose()

    database = async_engine_of(url)
    shop = Shop(database, stack, handler)
    asyncio.run(run())


@pytest.mark.parametrize("stack", ["bare", "inside", "outside", "both"])
@pytest.mark.parametrize("status", [201, 204])
def test_an_answer_that_is_there_whole_does_not_wait_for_its_background_task(
    engine: Engine, stack: str, status: int
) -> None:
    """Which may need a transaction of its own, and on SQLite there is one at a time."""
    seen: list[int] = []

    async def handler(request: Request) -> Response:
        task = BackgroundTask(lambda: seen.append(booked(engine)))
        if status == 204:
            return Response(status_code=204, background=task)
        return JSONResponse({"paid": True}, status, background=task)

    shop = Shop(engine, stack, handler)
    with asyncio.Runner() as runner:
        assert [runner.run(shop.post()).status_code for _ in range(2)] == [status, status]
    assert (seen, shop.gate.executions) == ([1], 1)


def test_an_answer_that_is_there_whole_is_kept_though_its_client_went(engine: Engine) -> None:
    """Else a client that is more impatient than the handler would never get its payment made."""

    async def handler(request: Request) -> Response:
        await request.body()
        gone.set()
        assert await request.is_disconnected()
        return JSONResponse({"paid": True}, 201)

    async def run() -> None:
        await shop.post_and_go(gone)
        assert booked(engine) == 1
        assert (await shop.post()).json() == {"paid": True}

    gone = asyncio.Event()
    shop = Shop(engine, "bare", handler)
    asyncio.run(run())
    assert shop.gate.executions == 1


@pytest.mark.parametrize("stack", ["bare", "inside", "outside", "both"])
def test_an_answer_shorter_than_its_length_leaves_nothing_and_can_be_repeated(engine: Engine, stack: str) -> None:
    """As of a file that was cut off, or of another service that broke off."""

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first half, "
            if shop.gate.executions > 1:
                yield b"second half"

        return StreamingResponse(pieces(), 201, headers={"Content-Length": str(len(HALVES))})

    shop = Shop(engine, stack, handler)
    with asyncio.Runner() as runner:
        assert runner.run(shop.post()).status_code == 500
        assert booked(engine) == 0
        assert runner.run(shop.post()).content == HALVES
    assert (shop.gate.executions, booked(engine)) == (2, 1)


def test_an_application_that_goes_on_after_its_commit_failed_answers_nothing_of_it(engine: Engine) -> None:
    """Its client gets the problem, whatever it sends after that."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        connection = idempotency.connection(scope)
        with within(connection) as given:
            book(given, {})
        connection.connection.driver_connection.rollback()
        start = {"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"4")]}
        await send(start)
        await send({"type": "http.response.body", "body": b"done"})
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"sorry"})

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/payments", headers=HEADERS)

    idempotency = Idempotency(engine, scope=caller)
    answer = asyncio.run(post())
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:semel:problem:transaction-ended")
    assert booked(engine) == 0


def test_an_answer_of_wsgi_shorter_than_its_length_leaves_nothing_and_can_be_repeated(engine: Engine) -> None:
    executions: list[int] = []
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> Any:
        from flask import request

        with within(idempotency.connection(request)) as connection:
            book(connection, {})
        executions.append(1)

        def pieces() -> Iterator[bytes]:
            yield b"first half, "
            if len(executions) > 1:
                yield b"second half"

        return app.response_class(pieces(), 201, {"Content-Length": str(len(HALVES))})

    idempotency = Idempotency(engine, scope=caller)
    application = WsgiIdempotency(app.wsgi_app, idempotency)
    with httpx.Client(transport=httpx.WSGITransport(application), base_url="http://shop") as client:
        with pytest.raises(RuntimeError, match="12 of 23 bytes"):
            client.post("/payments", headers=HEADERS)
        assert booked(engine) == 0
        assert [client.post("/payments", headers=HEADERS).content for _ in range(2)] == [HALVES, HALVES]
    assert booked(engine) == 1


@pytest.mark.parametrize("has_left", [False, True])
def test_an_application_of_wsgi_that_fails_in_the_middle_answers_with_its_error_alone(
    engine: Engine, has_left: bool
) -> None:
    """It may replace its answer as long as none of it has left, as PEP 3333 has it."""
    started: list[str] = []

    def app(_environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("201 Created", [])
        yield b"first half"
        try:
            raise ConnectionError
        except ConnectionError:
            start_response("502 Bad Gateway", [("Content-Length", "5")], sys.exc_info())
        yield b"error"

    def start(status: str, headers: object, exc_info: object = None) -> None:
        started.append(status)

    idempotency = Idempotency(engine, scope=lambda request: "anna", answer_bytes_max=5 if has_left else 100)
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k-1", "wsgi.input": io.BytesIO()}
    pieces = WsgiIdempotency(app, idempotency)(environ, start)
    if has_left:
        with pytest.raises(ConnectionError):
            list(pieces)
        assert started == ["201 Created"]
    else:
        assert (started, list(pieces)) == (["502 Bad Gateway"], [b"error"])
