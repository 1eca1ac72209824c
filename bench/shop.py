"""A small web application that books payments, in a process of its own: as its framework has it, or with the middleware
for `Idempotency-Key`. Handler, effect and transaction are the same in both; it must never do for one of them what it
does not do for the other.

Run as `python shop.py KIND DATABASE PORT`, and with the word `keys` after that for one with keys."""

import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from fastapi import FastAPI
from fastapi import Request as FastapiRequest
from flask import Flask
from flask import request as flask_request
from sqlalchemy import Column, Integer, MetaData, Table, bindparam, insert, update
from sqlalchemy.ext.asyncio import create_async_engine

from semel.database import begin_immediately, engine_of
from semel.http import AsgiIdempotency, Idempotency, Request, WsgiIdempotency

HOST: Final = "127.0.0.1"
PATH: Final = "/payments"
CALLER_HEADER: Final = "x-api-key"
KEEP_ALIVE_SECONDS: Final = 600
DRIVERS: Final = {"sqlite:": "sqlite+aiosqlite:", "postgresql:": "postgresql+asyncpg:"}

tables: Final = MetaData()
accounts: Final = Table("accounts", tables, Column("id", Integer, primary_key=True), Column("balance", Integer))
payments: Final = Table(
    "payments",
    tables,
    Column("id", Integer, primary_key=True),
    Column("account", Integer, nullable=False),
    Column("amount", Integer, nullable=False),
)
# A payment: its amount leaves an account, and a row says so.
pay_out: Final = (
    update(accounts)
    .where(accounts.c.id == bindparam("account"))
    .values(balance=accounts.c.balance - bindparam("amount"))
)
book: Final = insert(payments).returning(payments.c.id)


def main() -> None:
    kind, url, port, *rest = sys.argv[1:]
    KINDS[kind](url, int(port), has_keys=rest == ["keys"])


def idempotency_of(engine: Any) -> Idempotency:
    return Idempotency(engine, scope=caller)


def caller(request: Request) -> str | None:
    return request.headers.get(CALLER_HEADER)


def fastapi_threads(url: str, port: int, *, has_keys: bool) -> None:
    """A handler that is a function, which FastAPI runs in a thread, on a synchronous engine."""
    app, engine = FastAPI(), engine_of(url)
    idempotency = idempotency_of(engine)

    @app.post(PATH, status_code=201)
    def pay(payment: dict[str, int], request: FastapiRequest) -> dict[str, int]:
        with nullcontext(idempotency.connection(request)) if has_keys else engine.begin() as connection:
            connection.execute(pay_out, payment)
            number = connection.scalar(book, payment)
        return {"payment": number}

    serve_asgi(app, idempotency if has_keys else None, port)


def fastapi_async(url: str, port: int, *, has_keys: bool) -> None:
    """A handler that is a coroutine, on an asynchronous engine."""
    begin, rest = url.split("//", 1)
    app, engine = FastAPI(), create_async_engine(f"{DRIVERS[begin]}//{rest}")
    if engine.dialect.name == "sqlite":
        begin_immediately(engine.sync_engine)
    idempotency = idempotency_of(engine)

    @app.post(PATH, status_code=201)
    async def pay(payment: dict[str, int], request: FastapiRequest) -> dict[str, int]:
        async with nullcontext(idempotency.connection(request)) if has_keys else engine.begin() as connection:
            await connection.execute(pay_out, payment)
            number = await connection.scalar(book, payment)
        return {"payment": number}

    serve_asgi(app, idempotency if has_keys else None, port)


def flask(url: str, port: int, *, has_keys: bool) -> None:
    """On a synchronous engine, behind the server of `flask run`: each request has a connection and a thread."""
    app, engine = Flask("shop"), engine_of(url)
    idempotency = idempotency_of(engine)

    @app.post(PATH)
    def pay() -> tuple[dict[str, int], int]:
        with nullcontext(idempotency.connection(flask_request)) if has_keys else engine.begin() as connection:
            connection.execute(pay_out, flask_request.json)
            number = connection.scalar(book, flask_request.json)
        return {"payment": number}, 201

    if has_keys:
        app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app.run(HOST, port, threaded=True)


def serve_asgi(app: FastAPI, idempotency: Idempotency | None, port: int) -> None:
    import uvicorn

    if idempotency is not None:
        app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    # A client whose turn it is not keeps its connection.
    uvicorn.run(app, host=HOST, port=port, log_level="warning", timeout_keep_alive=KEEP_ALIVE_SECONDS)


KINDS: Final[dict[str, Callable[..., None]]] = {
    "fastapi_threads": fastapi_threads,
    "fastapi_async": fastapi_async,
    "flask": flask,
}

if __name__ == "__main__":
    main()
