"""A shop behind the middleware, in each framework, on each database, and somebody who asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import applications
import httpx
import pytest
from applications import Gate, payments, shop
from sqlalchemy import Engine, select
from sqlalchemy.ext.asyncio import AsyncEngine

from databases import async_engine_of
from semel.database import engine_of
from semel.http import Idempotency, Request, metadata
from semel.http.tables import keys


def caller(request: Request) -> str | None:
    return request.headers.get("x-caller")


@dataclass
class Shop:
    """One running application; `post` sends a payment as curl would."""

    app: Any
    is_asgi: bool
    gate: Gate
    engine: Engine
    runner: asyncio.Runner

    def post(self, key: str | None = "k-1", caller: str | None = "anna", **asked: Any) -> httpx.Response:
        return self.send(json.dumps(asked), key, caller)

    def send(self, body: str | bytes, key: str | None = "k-1", caller: str | None = "anna") -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        headers |= {} if key is None else {"Idempotency-Key": key}
        headers |= {} if caller is None else {"X-Caller": caller}
        if self.is_asgi:
            return self.runner.run(self._send(body, headers))
        transport = httpx.WSGITransport(self.app, raise_app_exceptions=False)
        with httpx.Client(transport=transport, base_url="http://shop") as client:
            return client.post("/payments", content=body, headers=headers)

    async def _send(self, body: str | bytes, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/payments", content=body, headers=headers)

    def booked(self) -> list[str]:
        """The amounts that are in the database, as another connection sees it."""
        with self.engine.connect() as connection:
            return sorted(connection.scalars(select(payments.c.amount)))

    def keys(self) -> int:
        with self.engine.connect() as connection:
            return len(connection.execute(select(keys)).all())


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine on a database that has the tables."""
    made = engine_of(url)
    shop.create_all(made)
    metadata.create_all(made)
    yield made
    made.dispose()


NewShop = Callable[..., Shop]


@pytest.fixture
def new_shop(url: str, engine: Engine) -> Iterator[NewShop]:
    """A shop in the framework and with the options that a test asks for."""
    databases: list[Any] = []

    def new(framework: str = "starlette", *, asynchronous: bool = False, **options: Any) -> Shop:
        database = options.pop("database", None) or (async_engine_of(url) if asynchronous else engine)
        databases.append(database)
        idempotency = Idempotency(database, **{"scope": caller, **options})
        gate = Gate()
        app = getattr(applications, framework)(idempotency, gate)
        return Shop(app, framework not in ("flask", "django"), gate, engine, runner)

    with asyncio.Runner() as runner:
        yield new
        for database in databases:
            if isinstance(database, AsyncEngine):
                runner.run(database.dispose())


async def until_settled(post: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """Ask again while another request with the key is running: on a busy machine, PostgreSQL may notice late that the
    connection of a request that was broken off is gone. If it never lets go of the key, this does not end.
    """
    while (answer := await post()).status_code == 409:
        assert "retry-after" in answer.headers
    return answer
