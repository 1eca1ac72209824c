"""One application in several event loops, a large body, a second connection of a handler: nobody waits for nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from applications import book, payments
from conftest_http import async_engine_of, caller
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask import request as flask_request
from sqlalchemy import Engine, NullPool, func, select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from semel.database import WaitsForItself, engine_of, read_only, within, within_async
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.http.idempotency import FINGERPRINT_HERE_BYTES_MAX
from semel.steps.slots import Slots

HEADERS = {"X-Caller": "anna", "Content-Type": "application/json"}
THREADS = 8


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(payments)) or 0


# -- several loops -----------------------------------------------------------------------------------------------------


def in_threads(app: Any, keys: list[str]) -> list[int]:
    """Each thread has a client of its own, and so a loop of its own; all ask at once."""
    together = threading.Barrier(len(keys))

    def ask(key: str) -> int:
        with TestClient(app) as client:
            together.wait()
            answer = client.post("/payments", json={"amount": 5}, headers={**HEADERS, "Idempotency-Key": key})
            return int(answer.status_code)

    with ThreadPoolExecutor(len(keys)) as threads:
        return list(threads.map(ask, keys))


@pytest.mark.parametrize("kind", ["threads", "sessions", "coroutines"])
def test_one_application_answers_in_several_event_loops(engine: Engine, url: str, kind: str) -> None:
    """As tests of concurrency have it: threads, with a client each."""
    database: Any = engine if kind == "threads" else sessionmaker(engine)
    if kind == "coroutines":
        made = async_engine_of(url)
        # A connection of asyncpg belongs to the loop in which it was made, so none may wait in a pool for another one.
        database = made if engine.dialect.name == "sqlite" else create_async_engine(made.url, poolclass=NullPool)
    idempotency = Idempotency(database, scope=caller)
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    async def pay(request: Any) -> dict[str, int]:
        given = idempotency.connection(request)
        if kind == "coroutines":
            await within_async(given, lambda connection: book(connection, {}))
        else:
            with within(given) as connection:
                book(connection, {})
        return {}

    pay.__annotations__ |= {"request": Request, "return": dict[str, int]}
    app.post("/payments")(pay)
    assert in_threads(app, [f"k-{number}" for number in range(THREADS)]) == [200] * THREADS
    assert count(engine) == THREADS
    statuses = in_threads(app, ["same"] * THREADS)
    assert set(statuses) <= {200, 409}
    assert 200 in statuses
    assert count(engine) == THREADS + 1


def test_a_place_is_handed_on_from_loop_to_loop_in_the_order_of_arrival() -> None:
    slots, order, waiting = Slots(1), [], threading.Semaphore(0)
    free = threading.Event()

    async def first() -> None:
        await slots.acquire()
        waiting.release()
        await asyncio.to_thread(free.wait)
        order.append(0)
        slots.release()

    async def later(number: int) -> None:
        acquiring = asyncio.create_task(slots.acquire())
        # After one turn of the loop the task has lined up.
        await asyncio.sleep(0)
        waiting.release()
        await acquiring
        order.append(number)
        slots.release()

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(asyncio.run, first())]
        waiting.acquire()
        for number in (1, 2, 3):
            running.append(threads.submit(asyncio.run, later(number)))
            waiting.acquire()
        free.set()
        for one in running:
            one.result()
    assert order == [0, 1, 2, 3]


def test_a_place_of_a_loop_that_was_closed_and_of_a_task_that_was_cancelled_is_free_again() -> None:
    slots = Slots(1)
    # It ends without giving the place back, as a test does that stops in the middle of a request.
    asyncio.run(slots.acquire())

    async def run() -> None:
        await slots.acquire()
        waiter = asyncio.create_task(slots.acquire())
        behind = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        slots.release()
        await behind
        slots.release()
        # Cancelled in the turn in which it gets the place.
        await slots.acquire()
        late = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.release()
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        await slots.acquire()
        slots.release()

    asyncio.run(run())


async def test_a_waiter_whose_loop_was_closed_is_passed_over() -> None:
    slots = Slots(1)
    loop = asyncio.new_event_loop()
    await slots.acquire()

    async def line_up() -> None:
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()

    await asyncio.to_thread(lambda: loop.run_until_complete(line_up()))
    await asyncio.to_thread(loop.close)
    slots.release()
    await slots.acquire()
    slots.release()


# -- a large body ------------------------------------------------------------------------------------------------------


def test_the_fingerprint_of_a_large_body_is_made_beside_the_loop(engine: Engine) -> None:
    """While a thread makes it, the loop goes on with other tasks."""

    class Noted(Idempotency):
        def fingerprint(self, *arguments: Any) -> str:
            threads.append(threading.current_thread() is threading.main_thread())
            return super().fingerprint(*arguments)

    threads: list[bool] = []
    idempotency = Noted(engine, scope=caller)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with within(idempotency.connection(scope)) as connection:
            book(connection, {})
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def ask(body: str) -> int:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {**HEADERS, "Idempotency-Key": "k-1"}
            return (await client.post("/payments", content=body, headers=headers)).status_code

    large = json.dumps({f"key {number}": [number] for number in range(20_000)})
    assert len(large) > FINGERPRINT_HERE_BYTES_MAX
    turned = json.dumps(dict(reversed(json.loads(large).items())), indent=1)
    assert [asyncio.run(ask(body)) for body in (large, turned, "{}")] == [201, 201, 422]
    assert threads == [False, False, True]
    assert count(engine) == 1


# -- a second connection on SQLite -------------------------------------------------------------------------------------


def second_of(engine: Engine, kind: str) -> Callable[[], Any]:
    def begin() -> None:
        with engine.begin() as connection:
            connection.execute(select(payments))

    def orm() -> None:
        with sessionmaker(engine)() as session:
            session.execute(select(payments))

    def another_engine() -> None:
        with engine_of(engine.url).begin():
            pass

    return {"begin": begin, "orm": orm, "another engine": another_engine}[kind]


def refused(second: Callable[[], Any], database: str) -> None:
    if database == "postgresql":
        second()
        return
    with pytest.raises(WaitsForItself, match="read_only"):
        second()


@pytest.mark.parametrize("kind", ["begin", "orm", "another engine"])
@pytest.mark.parametrize("steps", [(), ("*",)])
def test_a_second_transaction_of_a_handler_is_refused_at_once_on_sqlite(
    engine: Engine, kind: str, steps: tuple[str, ...]
) -> None:
    idempotency = Idempotency(engine, scope=caller, steps=steps)
    second = second_of(engine, kind)
    wsgi, asgi = Flask("shop"), FastAPI()

    def work(request: Any) -> None:
        if steps:
            with idempotency.key(request).step("book") as step:
                book(step.connection(), {})
                refused(second, engine.dialect.name)
            second()
            return
        book(idempotency.connection(request), {})
        refused(second, engine.dialect.name)
        # To read beside it is free.
        with read_only(engine).connect() as connection:
            connection.execute(select(payments))

    @wsgi.post("/payments")
    def pay() -> str:
        work(flask_request)
        return ""

    wsgi.wsgi_app = WsgiIdempotency(wsgi.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert wsgi.test_client().post("/payments", headers={**HEADERS, "Idempotency-Key": "k-1"}).status_code == 200

    def pay_in_thread(request: Any) -> None:
        work(request)

    async def pay_in_loop(request: Any) -> None:
        if not steps:
            work(request)

    asgi.add_middleware(AsgiIdempotency, idempotency=idempotency)
    for path, handler in (("/thread", pay_in_thread), ("/loop", pay_in_loop)):
        handler.__annotations__ |= {"request": Request, "return": None}
        asgi.post(path)(handler)
        with TestClient(asgi) as client:
            answer = client.post(path, headers={**HEADERS, "Idempotency-Key": path})
            assert answer.status_code == 200
    # After the request nothing is held.
    second()
    assert count(engine) == (2 if steps else 3)


def test_a_second_session_of_a_coroutine_is_refused_at_once_on_sqlite(url: str, engine: Engine) -> None:
    own = async_engine_of(url)
    sessions = async_sessionmaker(own)
    idempotency = Idempotency(sessions, scope=caller)
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    async def pay(request: Any) -> None:
        await within_async(idempotency.connection(request), lambda connection: book(connection, {}))
        async with sessions() as second:
            if engine.dialect.name == "postgresql":
                await second.execute(select(payments))
                return
            with pytest.raises(WaitsForItself):
                await second.execute(select(payments))
        async with read_only(own).connect() as reader:
            await reader.execute(select(payments))

    pay.__annotations__ |= {"request": Request, "return": None}
    app.post("/payments")(pay)
    with TestClient(app) as client:
        assert client.post("/payments", headers={**HEADERS, "Idempotency-Key": "k-1"}).status_code == 200
    assert count(engine) == 1


def test_a_task_beside_the_handler_that_gets_its_turn_after_the_answer_is_warned_of_and_waits(
    url: str, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    if engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL has many writers")
    own = async_engine_of(url)
    idempotency = Idempotency(own, scope=caller)
    begun: list[asyncio.Task[None]] = []
    told = asyncio.Event()

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def beside() -> None:
        async with own.begin() as connection:
            await connection.run_sync(lambda connection: book(connection, {}))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await within_async(idempotency.connection(scope), lambda connection: book(connection, {}))
        begun.append(asyncio.create_task(beside()))
        await told.wait()
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        await begun[0]

    async def ask() -> None:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            await client.post("/payments", headers={**HEADERS, "Idempotency-Key": "k-1"})
        await own.dispose()

    telling = Telling()
    logging.getLogger("semel.database").addHandler(telling)
    asyncio.run(ask())
    logging.getLogger("semel.database").removeHandler(telling)
    assert count(engine) == 2
    assert "holds the write lock" in caplog.text
