"""A request under a key whose database does not answer is told to come again, and is executed once when it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from conftest_http import caller
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import create_async_engine

from semel.database import engine_of
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}
# Nobody listens there.
NOWHERE = "127.0.0.1:1/app"


@pytest.mark.parametrize("steps", [(), ("*",)], ids=["transaction", "steps"])
def test_who_finds_the_database_away_comes_again_and_is_executed_once(
    engine: Engine, steps: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    databases = [engine_of(f"postgresql+psycopg://anna:secret@{NOWHERE}")]
    executed: list[str] = []

    @contextmanager
    def begin() -> Iterator[Connection]:
        with (databases[0] if databases else engine).begin() as connection:
            yield connection

    def app(environ: Any, start_response: Any) -> list[bytes]:
        executed.append("done")
        start_response("201 Created", [])
        return [b"done"]

    around = WsgiIdempotency(app, Idempotency(begin, scope=caller, steps=steps))
    with httpx.Client(transport=httpx.WSGITransport(around), base_url="http://shop") as client:
        away = client.post("/payments", headers=HEADERS)
        databases.clear()
        answers = [client.post("/payments", headers=HEADERS).status_code for _ in range(2)]
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
    assert away.json()["type"] == "urn:semel:problem:database-away"
    assert (answers, executed) == ([201, 201], ["done"])
    [line] = [record.getMessage() for record in caplog.records if "could not be claimed" in record.getMessage()]
    assert line.startswith("POST /payments was not executed")
    assert "secret" not in line


async def test_a_coroutine_that_finds_the_database_away_is_told_to_come_again() -> None:
    database = create_async_engine(f"postgresql+asyncpg://anna:secret@{NOWHERE}")
    around = AsgiIdempotency(lambda *_: pytest.fail("it was executed"), Idempotency(database, scope=caller))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(around), base_url="http://shop") as client:
        away = await client.post("/payments", headers=HEADERS)
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")


def test_an_error_that_does_not_pass_is_the_servers(engine: Engine) -> None:
    @contextmanager
    def begin() -> Iterator[Connection]:
        raise RuntimeError("wrongly configured")
        yield

    around = WsgiIdempotency(lambda *_: pytest.fail("it was executed"), Idempotency(begin, scope=caller))
    with (
        httpx.Client(transport=httpx.WSGITransport(around), base_url="http://shop") as client,
        pytest.raises(RuntimeError, match="wrongly"),
    ):
        client.post("/payments", headers=HEADERS)
