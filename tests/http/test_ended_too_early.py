"""A transaction that ends before its answer commits nothing: neither key nor effect nor what comes after."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from applications import book, payments
from conftest_http import async_engine_of, caller
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import post as litestar_post
from litestar.testing import TestClient as LitestarClient
from sqlalchemy import Connection, Engine, NullPool, func, select, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from semel.database import within, within_async
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.http.tables import keys
from semel.steps.tables import steps

HEADERS = {"X-Caller": "anna", "Idempotency-Key": "k-1"}


def counts(engine: Engine) -> tuple[int, int, int]:
    with engine.connect() as connection:
        payment, key, step = (
            connection.scalar(select(func.count()).select_from(table)) or 0 for table in (payments, keys, steps)
        )
    return payment, key, step


def in_sql(word: str) -> Callable[[Connection], None]:
    def end(connection: Connection) -> None:
        connection.execute(text(word))

    return end


def in_driver(name: str) -> Callable[[Connection], None]:
    def end(connection: Connection) -> None:
        getattr(connection.connection, name)()

    return end


def by_trigger(connection: Connection) -> None:
    connection.execute(text("INSERT INTO explosives VALUES (1)"))


ENDS: dict[str, Callable[[Connection], None]] = {
    "COMMIT": in_sql("COMMIT"),
    "ROLLBACK": in_sql("ROLLBACK"),
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "driver's rollback": in_driver("rollback"),
    "trigger": by_trigger,
}


@pytest.fixture
def mined(engine: Engine) -> Engine:
    """A database in which writing to one table undoes the transaction; on PostgreSQL it fails it."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE explosives (number integer)"))
        if engine.dialect.name == "sqlite":
            connection.execute(
                text("CREATE TRIGGER boom BEFORE INSERT ON explosives BEGIN SELECT RAISE(ROLLBACK, 'boom'); END")
            )
        else:
            connection.execute(text("ALTER TABLE explosives ADD CONSTRAINT boom CHECK (number > 1)"))
    return engine


def work(connection: Connection, end: Callable[[Connection], None]) -> None:
    """As a handler that goes on whatever happens."""
    book(connection, {"amount": "before"})
    for step in (end, lambda connection: book(connection, {"amount": "after"})):
        try:
            step(connection)
        except Exception:
            continue


# Each end in each kind, and each of both on either database.
@pytest.mark.parametrize(
    ("url", "kind", "how"),
    [
        (("sqlite", "postgresql")[(row + column) % 2], kind, how)
        for row, kind in enumerate(["engine", "session", "coroutine", "async session", "steps"])
        for column, how in enumerate(ENDS)
    ],
    indirect=["url"],
)
def test_what_ends_before_the_answer_commits_nothing(mined: Engine, url: str, kind: str, how: str) -> None:
    end = ENDS[how]
    app: Any
    if kind in ("coroutine", "async session"):
        own = async_engine_of(url)
        if mined.dialect.name == "postgresql":
            # Each client has a loop of its own, and a connection of asyncpg belongs to one.
            own = create_async_engine(own.url, poolclass=NullPool)
        idempotency = Idempotency(own if kind == "coroutine" else async_sessionmaker(own), scope=caller)
        app = FastAPI()
        app.add_middleware(AsgiIdempotency, idempotency=idempotency)

        async def pay_async(request: Any) -> None:
            await within_async(idempotency.connection(request), lambda connection: work(connection, end))

        pay_async.__annotations__ |= {"request": Request, "return": None}
        app.post("/payments")(pay_async)

        def post() -> int:
            with TestClient(app, raise_server_exceptions=False) as client:
                return int(client.post("/payments", headers=HEADERS).status_code)

    else:
        database: Any = {"session": sessionmaker(mined)}.get(kind, mined)
        idempotency = Idempotency(database, scope=caller, steps=("*",) if kind == "steps" else ())
        app = Flask("shop")

        @app.post("/payments")
        def pay() -> str:
            if kind == "steps":
                with idempotency.key(flask_request).step("book") as step:
                    work(step.connection(), end)
                return ""
            with within(idempotency.connection(flask_request)) as connection:
                work(connection, end)
            return ""

        app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)

        def post() -> int:
            try:
                return int(app.test_client().post("/payments", headers=HEADERS).status_code)
            except Exception:
                # A server answers 500 where the middleware raises.
                return 500

    for _ in range(2):
        status = post()
        paid, key, step = counts(mined)
        if how in ("COMMIT", "ROLLBACK") and status == 200:
            # It was refused before it was sent, so everything is in the transaction still.
            assert (paid, key) == (2, 1)
            continue
        assert status == 500
        assert (paid, step) == (0, 0)
        assert key == (1 if kind == "steps" else 0)


@pytest.mark.parametrize("kind", ["engine", "session"])
def test_what_sqlalchemy_refuses_after_a_rollback_is_told_with_what_the_rollback_means(
    engine: Engine, kind: str
) -> None:
    idempotency = Idempotency(engine if kind == "engine" else sessionmaker(engine), scope=caller)
    app = Flask("shop")
    app.testing = True

    @app.post("/payments")
    def pay() -> str:
        given = idempotency.connection(flask_request)
        given.rollback()
        given.execute(text("SELECT 1"))
        return ""

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    problem = app.test_client().post("/payments", headers=HEADERS).json
    assert problem["type"] == "urn:semel:problem:transaction-ended"
    assert "by a rollback" in problem["detail"]


def ends_early(given: Any, is_caught: bool) -> None:
    """What handlers do that have their own way with a session."""
    with contextlib.suppress(*([Exception] if is_caught else [])):
        given.commit()


def in_flask(idempotency: Idempotency, is_caught: bool) -> Any:
    app = Flask("shop")

    @app.post("/payments/<number>")
    def pay(number: str) -> str:
        ends_early(idempotency.connection(flask_request), is_caught)
        return number

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    return app.test_client().post("/payments/7", headers=HEADERS)


def in_fastapi(idempotency: Idempotency, is_caught: bool) -> Any:
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    @app.post("/payments/{number}")
    def pay(number: str, given: Any = Depends(idempotency.session)) -> str:  # noqa: B008
        ends_early(given, is_caught)
        return number

    with TestClient(app, raise_server_exceptions=False) as client:
        return client.post("/payments/7", headers=HEADERS)


def in_fastapi_async(idempotency: Idempotency, is_caught: bool) -> Any:
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    @app.post("/payments/{number}")
    async def pay(number: str, given: Any = Depends(idempotency.session)) -> str:  # noqa: B008
        with contextlib.suppress(*([Exception] if is_caught else [])):
            await given.commit()
        return number

    with TestClient(app, raise_server_exceptions=False) as client:
        return client.post("/payments/7", headers=HEADERS)


def in_litestar(idempotency: Idempotency, is_caught: bool) -> Any:
    @litestar_post("/payments/{number:str}", sync_to_thread=True)
    def pay(request: LitestarRequest[Any, Any, Any], number: str) -> str:
        ends_early(idempotency.session(request), is_caught)
        return number

    app = Litestar([pay], middleware=[lambda app: AsgiIdempotency(app, idempotency)], logging_config=None)
    with LitestarClient(app, raise_server_exceptions=False) as client:
        return client.post("/payments/7", headers=HEADERS)


IN: dict[str, tuple[Callable[[Idempotency, bool], Any], str]] = {
    "flask": (in_flask, "POST /payments/<number> (pay)"),
    "fastapi": (in_fastapi, f"POST /payments/{{number}} ({__name__}.in_fastapi.<locals>.pay)"),
    "coroutine": (in_fastapi_async, f"POST /payments/{{number}} ({__name__}.in_fastapi_async.<locals>.pay)"),
    "litestar": (in_litestar, f"POST /payments/{{number}} ({__name__}.in_litestar.<locals>.pay)"),
}


@pytest.mark.parametrize("is_caught", [True, False], ids=["caught", "raised"])
@pytest.mark.parametrize("framework", IN)
@pytest.mark.parametrize("kind", ["engine", "session"])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_handler_that_ends_its_transaction_is_named_with_its_path_and_the_remedy_to_its_client_and_in_the_log(
    engine: Engine, url: str, kind: str, framework: str, is_caught: bool, caplog: pytest.LogCaptureFixture
) -> None:
    post, place = IN[framework]
    own: Any = async_engine_of(url) if framework == "coroutine" else engine
    makes: Any = async_sessionmaker if framework == "coroutine" else sessionmaker
    answer = post(Idempotency(own if kind == "engine" else makes(own), scope=caller), is_caught)
    problem = answer.json if framework == "flask" else answer.json()
    assert (answer.status_code, problem["type"]) == (500, "urn:semel:problem:transaction-ended")
    said = [one.getMessage() for one in caplog.records if one.name == "semel.http"]
    for line in (problem["detail"], *said):
        assert line.startswith(place), line
        assert "leave out commit()" in line
    assert len(said) == 1
    assert counts(engine) == (0, 0, 0)


def test_a_handler_that_rolls_back_because_it_fails_has_its_own_answer(engine: Engine) -> None:
    """A dependency that undoes its session when the handler raises is right, and its error says what happened."""
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> str:
        idempotency.connection(flask_request).rollback()
        raise ConnectionError

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    answer = app.test_client().post("/payments", headers=HEADERS)
    assert (answer.status_code, answer.content_type) == (500, "text/html; charset=utf-8")


def test_the_error_of_a_handler_under_a_key_carries_its_path_and_its_name(engine: Engine) -> None:
    """A server of ASGI logs the traceback, and not which request it was."""
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=Idempotency(engine, scope=caller))

    @app.post("/payments/{number}")
    def pay(number: str) -> str:
        raise ConnectionError(number)

    with TestClient(app) as client, pytest.raises(ConnectionError) as raised:
        client.post("/payments/7", headers=HEADERS)
    [note] = raised.value.__notes__
    assert note.startswith("semel: this was POST /payments/{number} (")
    assert note.endswith(".<locals>.pay)")


def test_who_repeats_hears_that_the_handler_has_committed_the_key_itself(engine: Engine) -> None:
    idempotency = Idempotency(engine, scope=caller)
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> str:
        given = idempotency.connection(flask_request)
        book(given, {"amount": 5})
        given.connection.commit()
        raise ConnectionError

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert app.test_client().post("/payments", headers=HEADERS).status_code == 500
    again = app.test_client().post("/payments", headers=HEADERS)
    assert (again.status_code, again.json["type"]) == (409, "urn:semel:problem:answer-not-kept")
    assert "committed the transaction of the key itself" in again.json["detail"]
