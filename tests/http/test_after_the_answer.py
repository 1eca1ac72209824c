"""What a request has worked on is refused after its answer: nothing would commit what is done then, and on SQLite the
session would keep the file locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from applications import payments, shop
from conftest_http import async_engine_of, caller
from fastapi import BackgroundTasks, FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask import Response as FlaskResponse
from flask import request as flask_request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import Response as LitestarResponse
from litestar import post as litestar_post
from litestar.background_tasks import BackgroundTask as LitestarTask
from litestar.testing import TestClient as LitestarClient
from sqlalchemy import Engine, insert, select
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.steps.transactions import Ended

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}


class Base(DeclarativeBase):
    metadata = shop


class Payment(Base):
    __table__ = payments


def booked(engine: Engine) -> list[str]:
    """As another connection sees it, which writes as well: nobody has kept the file locked."""
    with engine.begin() as connection:
        connection.execute(insert(payments), {"amount": "another"})
        return sorted(connection.scalars(select(payments.c.amount).where(payments.c.amount != "another")))


# What a task may try with the session of its request.
TRIES: list[Callable[[Session], object]] = [
    lambda session: session.add(Payment(amount="late")),
    lambda session: session.execute(insert(payments), {"amount": "late"}),
    lambda session: session.commit(),
    lambda session: session.begin(),
    lambda session: session.connection(),
    lambda session: session.scalars(select(payments.c.amount)),
]


def refusals(session: Session) -> int:
    refused = 0
    for attempt in TRIES:
        # Twice: the first refusal leaves nothing that the second one would go on with.
        for _ in range(2):
            with pytest.raises(Ended, match="this request has its answer"):
                attempt(session)
            refused += 1
    assert not session.in_transaction()
    return refused


def test_fastapi_refuses_the_session_in_a_background_task_of_a_thread(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app, refused = FastAPI(), []
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def pay(request: Any, tasks: Any) -> dict[str, str]:
        session = idempotency.connection(request)
        session.add(Payment(amount="in time"))
        tasks.add_task(lambda: refused.append(refusals(session)))
        return {}

    pay.__annotations__ |= {"request": Request, "tasks": BackgroundTasks, "return": dict[str, str]}
    app.post("/payments")(pay)
    with TestClient(app) as client:
        assert client.post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_fastapi_refuses_the_session_in_a_background_task_of_the_loop(engine: Engine, url: str) -> None:
    idempotency = Idempotency(async_sessionmaker(async_engine_of(url)), scope=caller)
    app, refused = FastAPI(), []
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    async def late(session: Any) -> None:
        refused.append(await session.run_sync(refusals))
        with pytest.raises(Ended):
            await session.execute(insert(payments), {"amount": "late"})
        with pytest.raises(Ended):
            await session.commit()

    async def pay(request: Any, tasks: Any) -> dict[str, str]:
        session = idempotency.connection(request)
        session.add(Payment(amount="in time"))
        tasks.add_task(late, session)
        return {}

    pay.__annotations__ |= {"request": Request, "tasks": BackgroundTasks, "return": dict[str, str]}
    app.post("/payments")(pay)
    with TestClient(app) as client:
        assert client.post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_what_comes_behind_the_yield_of_a_dependency_is_refused_after_the_answer(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app, refused = FastAPI(), []
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def session_of(request: Any) -> Iterator[Session]:
        session = idempotency.connection(request)
        yield session
        refused.append(refusals(session))

    session_of.__annotations__ |= {"request": Request}

    def pay(session: Any) -> dict[str, str]:
        session.add(Payment(amount="in time"))
        return {}

    from fastapi import Depends

    pay.__annotations__ |= {"session": Any, "return": dict[str, str]}
    pay.__defaults__ = (Depends(session_of),)
    app.post("/payments")(pay)
    with TestClient(app) as client:
        assert client.post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_starlette_refuses_session_and_request_in_a_background_task(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    refused = []

    async def pay(request: StarletteRequest) -> JSONResponse:
        session = idempotency.connection(request)
        session.add(Payment(amount="in time"))

        def late() -> None:
            refused.append(refusals(session))
            with pytest.raises(Ended):
                idempotency.connection(request)

        return JSONResponse({}, background=BackgroundTask(late))

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    with TestClient(app) as client:
        assert client.post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_litestar_refuses_the_session_in_a_background_task(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    refused = []

    async def pay(request: LitestarRequest[Any, Any, Any]) -> LitestarResponse[dict[str, str]]:
        session = idempotency.connection(request)
        session.add(Payment(amount="in time"))

        async def late() -> None:
            refused.append(refusals(session))

        return LitestarResponse({}, background=LitestarTask(late))

    app = AsgiIdempotency(Litestar([litestar_post("/payments")(pay)]), idempotency)
    with LitestarClient(app) as client:  # type: ignore[arg-type]
        assert client.post("/payments", headers=HEADERS).status_code == 201
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_flask_refuses_the_session_when_the_answer_is_closed(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app, refused = Flask("shop"), []

    @app.post("/payments")
    def pay() -> FlaskResponse:
        session = idempotency.connection(flask_request)
        session.add(Payment(amount="in time"))
        answer = FlaskResponse("{}")
        answer.call_on_close(lambda: refused.append(refusals(session)))
        return answer

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert app.test_client().post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_a_thread_without_the_context_of_the_request_is_refused_its_session_after_the_answer(engine: Engine) -> None:
    """What semel cannot see there is a session of the thread's own (ADR 0085)."""
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app = Flask("shop")
    answered = threading.Event()
    refused: list[int] = []

    def go_on(session: Session) -> None:
        answered.wait()
        refused.append(refusals(session))

    @app.post("/payments")
    def pay() -> str:
        session = idempotency.session(flask_request)
        session.add(Payment(amount="5"))
        threads.append(threading.Thread(target=go_on, args=(session,)))
        threads[-1].start()
        return ""

    threads: list[threading.Thread] = []
    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert app.test_client().post("/payments", headers=HEADERS).status_code == 200
    answered.set()
    for thread in threads:
        thread.join()
    assert (refused, booked(engine)) == ([2 * len(TRIES)], ["5"])


def test_a_step_that_has_ended_hands_over_no_connection(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller, steps=("*",))
    app, refused = Flask("shop"), []

    @app.post("/payments")
    def pay() -> str:
        with idempotency.key(flask_request).step("book") as step:
            session = step.connection()
            session.add(Payment(amount="in time"))
        refused.append(refusals(session))
        with pytest.raises(Ended):
            step.connection()
        return ""

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert app.test_client().post("/payments", headers=HEADERS).status_code == 200
    assert refused == [2 * len(TRIES)]
    assert booked(engine) == ["in time"]


def test_a_function_may_hand_the_same_session_over_again(engine: Engine) -> None:
    """It begins it for each request; between them nobody uses it."""
    session = Session(engine)

    @contextmanager
    def begin() -> Iterator[Session]:
        with session.begin():
            yield session

    idempotency = Idempotency(begin, scope=caller)
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> str:
        with idempotency.connection(flask_request).begin_nested():
            idempotency.connection(flask_request).add(Payment(amount="in time"))
        return ""

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    for key in ("k-1", "k-2"):
        answer = app.test_client().post("/payments", headers={**HEADERS, "Idempotency-Key": key})
        assert answer.status_code == 200
        refusals(session)
    session.close()
    assert booked(engine) == ["in time", "in time"]


def test_a_connection_is_refused_after_the_answer_as_well(engine: Engine, url: str) -> None:
    from sqlalchemy.exc import ResourceClosedError

    from semel.database import within

    kept: list[Any] = []

    async def run(idempotency: Idempotency) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            kept.append(idempotency.connection(scope))
            await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            with pytest.raises(Ended):
                idempotency.connection(scope)

        import httpx

        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            assert (await client.post("/payments", headers=HEADERS)).status_code == 201

    asyncio.run(run(Idempotency(engine, scope=caller)))
    with pytest.raises(ResourceClosedError), within(kept[0]):
        pass
