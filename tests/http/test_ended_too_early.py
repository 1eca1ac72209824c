"""A transaction that ends before its answer commits nothing: neither key nor effect nor what comes after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from applications import book, payments
from conftest_http import async_engine_of, caller
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask import request as flask_request
from sqlalchemy import Connection, Engine, NullPool, func, select, text
from sqlalchemy.exc import InvalidRequestError
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
def test_the_error_of_sqlalchemy_after_a_rollback_says_what_the_rollback_means(engine: Engine, kind: str) -> None:
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
    with pytest.raises(InvalidRequestError, match="closed transaction") as raised:
        app.test_client().post("/payments", headers=HEADERS)
    assert "by a rollback" in raised.value.__notes__[0]


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
