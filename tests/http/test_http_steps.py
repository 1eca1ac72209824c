"""Recovery points: what a step has done is not done again, and whoever is late writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from applications import book, payments
from conftest_http import async_engine_of, caller
from sqlalchemy import Engine, NullPool, func, select
from sqlalchemy.ext.asyncio import create_async_engine

from semel.database import within, within_async
from semel.database.keys import derived_key
from semel.database.procedures import drive
from semel.http import AsgiIdempotency, Fate, Fenced, Idempotency, Request, WsgiIdempotency
from semel.http.claims import Accepted, Running, Term, claim, name_of
from semel.http.holders import Leased, claimed, settled
from semel.http.tables import keys
from semel.testing.clock import Clock

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna", "Content-Type": "application/json"}


def count(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(payments)) or 0


class Service:
    """A synchronous handler of steps behind the middleware of WSGI."""

    def __init__(self, database: Any, handler: Callable[[Any], bytes], **options: Any) -> None:
        self.idempotency = Idempotency(database, scope=caller, steps=("/charges*",), **options)
        self.handler = handler
        self.app = WsgiIdempotency(self._app, self.idempotency)

    def _app(self, environ: Any, start_response: Any) -> list[bytes]:
        answer = self.handler(self.idempotency.key(environ))
        start_response("201 Created", [("Content-Type", "text/plain")])
        return [answer]

    def _server(self, environ: Any, start_response: Any) -> Any:
        """Answers for an application that dies, as every server does."""
        try:
            return self.app(environ, start_response)
        except (ConnectionError, Fenced):
            start_response("500 Internal Server Error", [])
            return []

    def post(self, content: bytes = b"{}") -> httpx.Response:
        transport = httpx.WSGITransport(self._server)
        with httpx.Client(transport=transport, base_url="http://shop") as client:
            return client.post("/charges", content=content, headers=HEADERS)


def test_a_finished_step_is_not_executed_again(engine: Engine) -> None:
    calls: list[tuple[str, str]] = []
    dies_in = "mail"

    def handler(key: Any) -> bytes:
        with key.step("charge") as step:
            if step.first:
                calls.append(("charge", step.derived_key))
                with within(step.connection()) as connection:
                    book(connection, {})
                step.result = {"charge": "ch_1"}
        charged = step.result
        with key.step("mail") as step:
            if step.first:
                calls.append(("mail", step.derived_key))
                if dies_in == "mail":
                    raise ConnectionError
        return str(charged["charge"]).encode()

    service = Service(engine, handler)
    assert service.post().status_code == 500
    dies_in = ""
    assert service.post().content == service.post().content == b"ch_1"
    assert [name for name, _ in calls] == ["charge", "mail", "mail"]
    assert calls[1] == calls[2]
    assert calls[0][1] != calls[1][1]
    # The hash that the inbox has, so that another program can derive it.
    assert calls[0][1] == derived_key(name_of("anna", "k-1").scope, "k-1", "charge")
    assert count(engine) == 1


def test_a_finished_step_is_kept_as_long_as_an_answer_however_long_its_request_ran(engine: Engine) -> None:
    clock, calls = Clock(), []

    def handler(key: Any) -> bytes:
        clock.ms += 100_000
        with key.step("charge") as step:
            if step.first:
                calls.append("charge")
        if not died:
            died.append(True)
            raise ConnectionError
        return b"done"

    died: list[bool] = []
    service = Service(engine, handler, clock=clock, result_ttl_ms=60_000)
    assert service.post().status_code == 500
    assert (service.post().content, calls) == (b"done", ["charge"])


def test_a_request_that_runs_longer_than_an_answer_is_kept_is_executed_once(engine: Engine) -> None:
    """A claim would expire while its holder still calls the other system, and the retry would call it, too."""
    name, term = name_of("anna", "k"), Term(ttl_ms=100, lease_ms=1000, now_ms=0)
    with engine.begin() as connection:
        assert claim(connection, name, "f", term) == Accepted(0)
        for now_ms in (100, 999):
            assert isinstance(claim(connection, name, "f", replace(term, now_ms=now_ms)), Running)
        assert claim(connection, name, "f", replace(term, now_ms=1000)) == Accepted(1)


def test_a_step_of_one_caller_is_not_taken_for_that_of_another_with_the_same_key(engine: Engine) -> None:
    """Keys are chosen by callers, who know nothing of each other."""
    idempotency = Idempotency(engine, scope=caller, steps=("/charges",))
    results = []
    for name in ("anna", "bert"):
        lease = new_lease(idempotency, name)
        assert drive(claimed(lease)) is None
        with lease.steps.step("charge") as step:  # type: ignore[union-attr]
            assert step.first
            step.result = name
        results.append(step.result)
    assert results == ["anna", "bert"]


def test_a_finished_step_refuses_to_be_done_again(engine: Engine) -> None:
    tries = 0

    def handler(key: Any) -> bytes:
        nonlocal tries
        tries += 1
        with key.step("charge") as step:
            if tries == 1:
                step.result = 1
            else:
                with pytest.raises(RuntimeError, match=r"step\.first"):
                    step.result = 2
                with pytest.raises(RuntimeError, match=r"step\.first"):
                    step.connection()
            with pytest.raises(RuntimeError, match="inside of step 'charge'"), key.step("other"):
                pass
        if tries == 1:
            raise ConnectionError
        return str(step.result).encode()

    service = Service(engine, handler)
    assert service.post().status_code == 500
    assert service.post().content == b"1"


def test_a_second_step_of_the_same_name_is_refused_and_not_skipped(engine: Engine) -> None:
    """A loop over the items of an order would book the first one, and answer that it has booked them all."""

    def handler(key: Any) -> bytes:
        for item in json.loads(body):
            with key.step(f"book {item}" if is_mended else "book") as step:
                if step.first:
                    with within(step.connection()) as connection:
                        book(connection, {"amount": item})
        return b"booked"

    body, is_mended = '["pen", "ink"]', False
    service = Service(engine, handler)
    # In the first try the step was done here, and in the second one by an earlier try.
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"has a step 'book' already.*'book-2'.*id of the item"):
            service.post()
        assert count(engine) == 1
    is_mended = True
    assert service.post().content == service.post().content == b"booked"
    assert count(engine) == 3


def test_a_step_that_has_failed_may_be_tried_again_in_the_same_request(engine: Engine) -> None:
    calls: list[int] = []

    def handler(key: Any) -> bytes:
        for number in range(3):
            with contextlib.suppress(ConnectionError), key.step("charge") as step:
                calls.append(number)
                if number < 2:
                    raise ConnectionError
        return str(step.first).encode()

    assert Service(engine, handler).post().content == b"True"
    assert calls == [0, 1, 2]


def test_whoever_is_late_is_fenced_and_writes_nothing(engine: Engine) -> None:
    clock, inside, go_on = Clock(1_000_000), threading.Event(), threading.Event()
    late: list[Exception] = []

    def handler(key: Any) -> bytes:
        mine = key.token - 1_000_000
        try:
            with key.step("charge") as step:
                if mine == 0:
                    inside.set()
                    assert go_on.wait(30)
                with within(step.connection()) as connection:
                    book(connection, {})
                step.result = mine
        except Fenced as error:
            late.append(error)
            raise
        return str(mine).encode()

    service = Service(engine, handler, clock=clock, lease_ms=10_000)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(service.post)
        assert inside.wait(30)
        clock.ms += 7500
        running = service.post()
        assert (running.status_code, running.headers["retry-after"]) == (409, "3")
        assert service.post(b"[]").json()["type"] == "urn:semel:problem:payload-differs"
        clock.ms += 2500
        assert service.post().content == b"1"
        go_on.set()
        assert first.result(30).status_code == 500
    assert len(late) == 1
    assert count(engine) == 1
    assert service.post().content == b"1"


def test_an_answer_of_whoever_is_late_is_not_sent(engine: Engine) -> None:
    clock, inside, go_on = Clock(1_000_000), threading.Event(), threading.Event()

    def handler(key: Any) -> bytes:
        if not inside.is_set():
            inside.set()
            assert go_on.wait(30)
        return str(key.token - 1_000_000).encode()

    service = Service(engine, handler, clock=clock)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(service.post)
        assert inside.wait(30)
        clock.ms += service.idempotency.lease_ms
        assert service.post().content == b"1"
        go_on.set()
        assert first.result(30).json()["type"] == "urn:semel:problem:still-running"


def test_the_heart_beats_while_the_handler_runs(engine: Engine) -> None:
    def handler(key: Any) -> bytes:
        def lease() -> int:
            with engine.connect() as connection:
                return int(connection.scalar(select(keys.c.lease_until_ms)) or 0)

        began = lease()
        while lease() == began:
            pass
        return b"alive"

    assert Service(engine, handler, lease_ms=300).post().content == b"alive"


def new_lease(idempotency: Idempotency, caller: str = "anna") -> Leased:
    """Of another request with the same key."""
    request = Request("POST", "/charges", {}, {})
    return Leased(idempotency, request, name_of(caller, "k-1"), "fingerprint", idempotency.transaction)


@pytest.mark.parametrize("is_next_one_there", [True, False])
def test_whoever_is_late_does_not_begin_the_call_of_a_step(engine: Engine, is_next_one_there: bool) -> None:
    """The next holder makes that call, at the same time. While nobody has taken the key over, it is not late yet."""
    clock, calls = Clock(1_000_000), []
    idempotency = Idempotency(engine, scope=caller, steps=("/charges",), clock=clock, lease_ms=10_000)
    late, next_one = new_lease(idempotency), new_lease(idempotency)
    assert drive(claimed(late)) is None
    clock.ms += 10_000
    if is_next_one_there:
        assert drive(claimed(next_one)) is None

    def charge(lease: Leased) -> None:
        with lease.steps.step("charge") as step:  # type: ignore[union-attr]
            if step.first:
                calls.append(lease)

    if is_next_one_there:
        with pytest.raises(Fenced):
            charge(late)
        charge(next_one)
        assert calls == [next_one]
    else:
        charge(late)
        assert calls == [late]


def test_a_beat_that_comes_after_the_release_does_not_take_the_key_back(engine: Engine) -> None:
    """The heart beats until the application returns, and its background tasks may run for long after its answer."""
    idempotency = Idempotency(engine, scope=caller, steps=("/charges",))
    first, second = new_lease(idempotency), new_lease(idempotency)
    assert drive(claimed(first)) is None
    assert drive(settled(first, Fate.FORGOTTEN, 503, None)) is None
    with pytest.raises(Fenced):
        drive(first.lease.beat())
    assert drive(claimed(second)) is None


def test_in_coroutines_on_an_asynchronous_engine(url: str, engine: Engine) -> None:
    """The first try is cancelled in its second step; the lease is let go of, and the next try goes on there."""
    calls: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        key = idempotency.key(scope)
        async with key.step("charge") as step:
            if step.first:
                calls.append("charge")
                await within_async(await step.connection(), lambda connection: book(connection, {}))
                step.result = "ch_1"
        charged = step.result
        with pytest.raises(RuntimeError, match="has a step 'charge' already"):
            async with key.step("charge"):
                """It was done above, or by the try before."""
        async with key.step("mail") as step:
            calls.append("mail")
            if len(calls) == 2:
                reached.set()
                await asyncio.Event().wait()
        with pytest.raises(RuntimeError, match=r"step\.connection"):
            idempotency.connection(scope)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": charged.encode()})

    async def run() -> None:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            asking = asyncio.create_task(client.post("/charges", headers=HEADERS))
            await reached.wait()
            asking.cancel()
            await asyncio.wait([asking])
            for _ in range(2):
                assert (await client.post("/charges", headers=HEADERS)).content == b"ch_1"
        await database.dispose()

    database, reached = async_engine_of(url), asyncio.Event()
    idempotency = Idempotency(database, scope=caller, steps=("/charges",))
    asyncio.run(run())
    assert (calls, count(engine)) == (["charge", "mail", "mail"], 1)


# Each two of the three together.
@pytest.mark.parametrize(
    ("url", "asynchronous", "again"),
    [
        *(("sqlite", False, True), ("sqlite", True, False)),
        *(("postgresql", False, False), ("postgresql", True, True)),
        *(("mariadb", False, True), ("mariadb", True, False)),
    ],
    indirect=["url"],
)
def test_a_request_with_steps_that_is_cancelled_lets_go_of_its_key_wherever_that_hits(
    url: str, engine: Engine, asynchronous: bool, again: bool
) -> None:
    """After each number of turns of the loop; `again` as anyio does it: while it cleans up, too."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def post(client: httpx.AsyncClient, key: str) -> httpx.Response:
        return await client.post("/charges", headers={**HEADERS, "Idempotency-Key": key})

    async def run() -> None:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            for turns in range(0, 120, 5):
                asking = asyncio.create_task(post(client, f"k-{turns}"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                for _ in range(1000 if again else 0):
                    await asyncio.sleep(0)
                    asking.cancel()
                await asyncio.wait([asking])
                assert (await post(client, f"k-{turns}")).content == b"done", turns
        if asynchronous:
            await database.dispose()

    database: Any = async_engine_of(url) if asynchronous else engine
    idempotency = Idempotency(database, scope=caller, steps=("/charges",))
    asyncio.run(run())


def test_a_beat_that_finds_no_connection_is_followed_by_the_next(url: str, engine: Engine) -> None:
    """asyncpg says so by an error of the operating system's."""
    if "mysql" in url:
        pytest.skip("the pool of this test is one of asyncpg")
    if engine.dialect.name == "sqlite":
        pytest.skip("its database is a file")
    refusals: list[ConnectionRefusedError] = []

    async def connect() -> Any:
        if inside.is_set() and len(refusals) < 2:
            refusals.append(ConnectionRefusedError("nobody listens"))
            raise refusals[-1]
        return await asyncpg.connect(url.replace("+psycopg", ""))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        began = lease()
        inside.set()
        await asyncio.to_thread(wait_for_beat, began)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"alive"})

    def lease() -> int:
        with engine.connect() as connection:
            return int(connection.scalar(select(keys.c.lease_until_ms)) or 0)

    def wait_for_beat(began: int) -> None:
        until = time.monotonic() + 30
        while lease() == began:
            assert time.monotonic() < until

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/charges", headers=HEADERS)

    inside = asyncio.Event()
    database = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
    idempotency = Idempotency(database, scope=caller, steps=("/charges",), lease_ms=300)
    assert asyncio.run(run()).content == b"alive"
    assert len(refusals) == 2


def test_leases_go_by_the_clock_of_the_database(url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is two hours ahead does not take over from those who live, on PostgreSQL."""
    if engine.dialect.name == "sqlite":
        pytest.skip("it is used on one machine")
    inside, go_on = threading.Event(), threading.Event()

    def handler(key: Any) -> bytes:
        if not inside.is_set():
            inside.set()
            assert go_on.wait(30)
        return b"mine"

    service = Service(engine, handler)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(service.post)
        assert inside.wait(30)
        ahead_ns = time.time_ns() + 2 * 60 * 60 * 1_000_000_000
        try:
            with monkeypatch.context() as patch:
                patch.setattr("time.time_ns", lambda: ahead_ns)
                assert service.post().status_code == 409
        finally:
            go_on.set()
        assert first.result(30).content == b"mine"


def test_a_step_that_would_hold_up_the_loop_is_refused(engine: Engine) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(RuntimeError, match="AsyncEngine"), idempotency.key(scope).step("charge"):
            pass
        refused.append(True)

    async def run() -> None:
        transport = httpx.ASGITransport(AsgiIdempotency(app, idempotency), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            with pytest.raises(AssertionError):
                await client.post("/charges", headers=HEADERS)

    refused: list[bool] = []
    idempotency = Idempotency(engine, scope=caller, steps=("/charges",))
    asyncio.run(run())
    assert refused == [True]
