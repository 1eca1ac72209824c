"""What the middleware promises whatever the framework: bounds, streams, scopes, cancellation, a failing database."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from applications import book, payments
from conftest_http import NewShop, async_engine_of, caller, until_settled
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session, sessionmaker

from semel.database import within, within_async
from semel.http import AsgiIdempotency, Idempotency, NoKey, WsgiIdempotency
from semel.testing.clock import Clock

Handler = Callable[[Any, Any], Awaitable[None]]


def asgi(handler: Handler) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await handler(scope, send)

    return app


def booked(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(payments)) or 0


def start(status: int = 201, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(content: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


class Asked:
    """Requests of one caller against an ASGI application."""

    def __init__(self, engine: Engine, handler: Handler, **options: Any) -> None:
        self.idempotency = Idempotency(engine, **{"scope": caller, **options})
        self.app = AsgiIdempotency(asgi(handler), self.idempotency)

    async def post(
        self, key: str = "k-1", content: bytes = b"{}", path: str = "/payments", **headers: str
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            sent = {"Idempotency-Key": key, "X-Caller": "anna", "Content-Type": "application/json", **headers}
            return await client.post(path, content=content, headers=sent, follow_redirects=True)


@pytest.mark.parametrize("status", [307, 308])
def test_who_is_sent_elsewhere_may_take_the_key_there(engine: Engine, status: int) -> None:
    """As frameworks do for a slash at the end of a path; the second request has another path, and so another print."""

    async def handler(scope: Any, send: Any) -> None:
        if scope["path"] == "/payments/":
            await send(start(status, (b"location", b"/payments")))
        else:
            with within(asked.idempotency.connection(scope)) as connection:
                book(connection, {})
            await send(start(201))
        await send(body(b""))

    asked = Asked(engine, handler)
    with asyncio.Runner() as runner:
        answers = [runner.run(asked.post(path="/payments/")) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert booked(engine) == 1


@pytest.mark.parametrize("kind", [b"text/event-stream", b"Text/Event-Stream", b"application/octet-stream"])
def test_a_stream_passes_as_it_comes_and_its_effect_stays_single(engine: Engine, kind: bytes) -> None:
    seen: list[int] = []

    async def handler(scope: Any, send: Any) -> None:
        with within(asked.idempotency.connection(scope)) as connection:
            book(connection, {})
        await send(start(200, (b"content-type", kind)))
        await send(body(b"x" * 20, more=True))
        # What the client has seen by now was committed before.
        seen.append(booked(engine))
        await send(body(b"y"))

    asked = Asked(engine, handler, answer_bytes_max=10)
    first = asyncio.run(asked.post())
    assert (first.status_code, first.content, seen) == (200, b"x" * 20 + b"y", [1])
    again = asyncio.run(asked.post())
    assert (again.status_code, again.json()["type"]) == (409, "urn:semel:problem:answer-not-kept")
    assert "retry-after" not in again.headers
    assert booked(engine) == 1


def test_an_answer_in_pieces_is_kept_whole(engine: Engine) -> None:
    async def handler(scope: Any, send: Any) -> None:
        await send(start())
        for piece in (b"one ", b"two ", b"three"):
            await send(body(piece, more=True))
        await send(body(b""))

    asked = Asked(engine, handler)
    assert asyncio.run(asked.post()).content == asyncio.run(asked.post()).content == b"one two three"


def test_a_cancelled_request_leaves_nothing_and_can_be_repeated(url: str, engine: Engine) -> None:
    entered = 0

    async def handler(scope: Any, send: Any) -> None:
        nonlocal entered
        entered += 1
        await within_async(asked.idempotency.connection(scope), lambda connection: book(connection, {}))
        if entered == 1:
            reached.set()
            await asyncio.Event().wait()
        await send(start())
        await send(body(b"done"))

    async def run() -> None:
        asking = asyncio.create_task(asked.post())
        await reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await until_settled(asked.post)).content == b"done"
        await database.dispose()

    database, reached = async_engine_of(url), asyncio.Event()
    asked = Asked(database, handler)
    asyncio.run(run())
    assert (entered, booked(engine)) == (2, 1)


def test_a_request_that_is_cancelled_while_it_commits_has_its_effect_and_its_answer_or_neither(
    url: str, engine: Engine
) -> None:
    """Cancelled after each number of turns of the loop: wherever it hits, the next try gives one effect."""

    async def handler(scope: Any, send: Any) -> None:
        await within_async(asked.idempotency.connection(scope), lambda connection: book(connection, {}))
        await send(start())
        await send(body(b"done"))

    async def run() -> None:
        for turns in range(0, 60, 4):
            asking = asyncio.create_task(asked.post(f"k-{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert (await until_settled(partial(asked.post, f"k-{turns}"))).content == b"done"
        await database.dispose()

    database = async_engine_of(url)
    asked = Asked(database, handler)
    asyncio.run(run())
    assert booked(engine) == 15


def test_a_client_that_goes_before_its_end_of_the_body_executes_nothing(engine: Engine) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def handler(scope: Any, send: Any) -> None:
        raise AssertionError("executed")

    scope = {"type": "http", "method": "POST", "path": "/payments", "headers": []}
    scope["headers"] = [(b"idempotency-key", b"k"), (b"x-caller", b"anna")]
    asyncio.run(Asked(engine, handler).app(scope, receive, handler))  # type: ignore[arg-type]


def test_bodies_are_bounded_and_keys_checked_before_anything_runs(new_shop: NewShop) -> None:
    for framework in ("starlette", "flask"):
        shop = new_shop(framework, request_bytes_max=20)
        for answer, status, name in (
            (shop.send("x" * 21), 413, "body-too-large"),
            (shop.post("a b"), 400, "key-malformed"),
            (shop.post(None), 400, "key-missing"),
            (shop.post(caller=None), 400, "caller-unknown"),
            (shop.post(caller=""), 400, "caller-unknown"),
        ):
            assert (answer.status_code, answer.json()["type"]) == (status, f"urn:semel:problem:{name}")
            assert answer.json()["status"] == status
        assert shop.gate.executions == shop.keys() == 0


async def test_where_no_key_is_required_a_request_without_one_passes(engine: Engine) -> None:
    async def handler(scope: Any, send: Any) -> None:
        with pytest.raises(NoKey, match="carries no Idempotency-Key"):
            asked.idempotency.connection(scope)
        await send(start())
        await send(body(b"done"))

    asked = Asked(engine, handler, required=())
    transport = httpx.ASGITransport(asked.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        assert (await client.post("/payments")).content == b"done"
        assert (await client.get("/payments", headers={"Idempotency-Key": "k"})).content == b"done"


def test_the_scope_may_be_a_coroutine_and_is_not_stored_as_it_is(new_shop: NewShop) -> None:
    async def scope(request: Any) -> str:
        return "Bearer a-secret"

    shop = new_shop(scope=scope)
    assert shop.post().json() == shop.post().json()
    with shop.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM semel_http_keys").all()
    assert "a-secret" not in str(rows)


def test_a_refusal_may_keep_its_effect_where_it_is_configured(new_shop: NewShop) -> None:
    shop = new_shop("flask", commits=lambda status: status != 409)
    shop.post("k-1", status=402)
    shop.post("k-2", status=409)
    assert len(shop.booked()) == 1
    assert shop.post("k-2", status=409).headers["idempotency-replayed"] == "true"


def test_a_handler_may_work_on_a_session(url: str, engine: Engine) -> None:
    async def handler(scope: Any, send: Any) -> None:
        session = asked.idempotency.connection(scope)
        session.connection().execute(payments.insert().values(amount="1"))
        await send(start())
        await send(body(b"done"))

    asked = Asked(sessionmaker(engine), handler)  # type: ignore[arg-type]
    for _ in range(2):
        assert asyncio.run(asked.post()).content == b"done"
    assert booked(engine) == 1


def test_an_effect_that_cannot_commit_is_answered_by_an_error_and_can_be_repeated(engine: Engine) -> None:
    """A transaction that fails at its end: the handler has answered 201, and nobody sees that answer."""
    broken = True

    async def handler(scope: Any, send: Any) -> None:
        given = asked.idempotency.connection(scope)
        with within(given) as connection:
            book(connection, {})
        if broken:
            given.connection.driver_connection.rollback()
            given.close()
        await send(start())
        await send(body(b"done"))

    asked = Asked(engine, handler)
    assert asyncio.run(asked.post()).status_code == 500
    broken = False
    assert asyncio.run(asked.post()).content == b"done"
    assert booked(engine) == 1


def test_a_handler_that_ends_the_transaction_itself_commits_nothing(engine: Engine) -> None:
    async def handler(scope: Any, send: Any) -> None:
        given = asked.idempotency.connection(scope)
        with within(given) as connection:
            book(connection, {})
        given.commit()
        await send(start())
        await send(body(b"done"))

    asked = Asked(engine, handler)
    assert asyncio.run(asked.post()).status_code == 500
    # Nothing of it was committed, so the next try executes, and fails in the same way.
    assert asyncio.run(asked.post()).status_code == 500
    assert booked(engine) == 0


def test_a_result_expires_and_the_key_is_free_again(new_shop: NewShop) -> None:
    clock = Clock()
    shop = new_shop(clock=clock, result_ttl_ms=1000)
    assert shop.post().json() == {"execution": 1}
    clock.ms += 999
    assert shop.post().json() == {"execution": 1}
    clock.ms += 1
    assert shop.post(amount=2).json() == {"execution": 2}
    assert shop.post(amount=2).headers["idempotency-replayed"] == "true"


def test_a_key_is_kept_by_the_clock_of_the_database(
    engine: Engine, new_shop: NewShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is off by more than a key is kept neither executes again nor has others do so."""
    if engine.dialect.name == "sqlite":
        pytest.skip("it is used on one machine")
    shop = new_shop()
    real_ns, day_ns = time.time_ns, 24 * 60 * 60 * 1_000_000_000
    for off_ns in (-2 * day_ns, 0, 2 * day_ns):
        with monkeypatch.context() as patch:
            patch.setattr("time.time_ns", lambda off_ns=off_ns: real_ns() + off_ns)
            assert shop.post().json() == {"execution": 1}
    assert booked(engine) == 1


def test_a_stream_of_a_wsgi_application_passes_and_is_closed(engine: Engine) -> None:
    closed: list[bool] = []

    class Pieces:
        def __iter__(self) -> Iterator[bytes]:
            yield from (b"x" * 8, b"y" * 8)
            # Whoever reads the rest reads after the commit.
            yield str(booked(engine)).encode()

        def close(self) -> None:
            closed.append(True)

    def app(environ: Any, start_response: Any) -> Any:
        with within(idempotency.connection(environ)) as connection:
            book(connection, {})
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Pieces()

    idempotency = Idempotency(engine, scope=caller, answer_bytes_max=10)
    transport = httpx.WSGITransport(WsgiIdempotency(app, idempotency))
    headers = {"Idempotency-Key": "k-1", "X-Caller": "anna"}
    with httpx.Client(transport=transport, base_url="http://shop") as client:
        assert client.post("/payments", headers=headers).content == b"x" * 8 + b"y" * 8 + b"1"
        assert client.post("/payments", headers=headers).json()["type"] == "urn:semel:problem:answer-not-kept"
    assert closed == [True]


@pytest.mark.parametrize("length", ["3", "-1", "many"])
def test_a_body_that_is_cut_short_takes_no_key(engine: Engine, length: str) -> None:
    """Else the half would be executed, and the whole that the client sends next would be another payload."""
    executed: list[bytes] = []
    started: list[str] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        executed.append(environ["wsgi.input"].read())
        start_response("201 Created", [])
        return []

    idempotency = Idempotency(engine, scope=lambda request: "anna")
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/payments", "HTTP_IDEMPOTENCY_KEY": "k-1"}
    for sent, sent_length in ((b"{}", length), (b"{} ", "3")):
        given = {**environ, "CONTENT_LENGTH": sent_length, "wsgi.input": io.BytesIO(sent)}
        list(WsgiIdempotency(app, idempotency)(given, lambda status, headers, exc_info=None: started.append(status)))
    assert (started, executed) == (["400 Bad Request", "201 Created"], [b"{} "])


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_a_function_that_begins_no_transaction_is_refused(engine: Engine, kind: str) -> None:
    """It would end without a commit, behind an answer that says that all is well."""
    database = engine.connect if kind == "connection" else lambda: Session(engine)
    idempotency = Idempotency(database, scope=lambda request: "anna")
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k-1", "wsgi.input": io.BytesIO()}
    with pytest.raises(TypeError, match=r"as engine\.begin does"):
        WsgiIdempotency(lambda _environ, _start: pytest.fail("it is not to be executed"), idempotency)(environ, print)


@pytest.mark.parametrize("method", ["POST", "post"])
def test_a_method_is_the_same_in_small_letters(engine: Engine, method: str) -> None:
    """To Flask and Django it is, so it must not lead around the key."""
    started: list[str] = []
    app = WsgiIdempotency(lambda _environ, _start: pytest.fail("it has no key"), Idempotency(engine, scope=caller))
    app({"REQUEST_METHOD": method, "PATH_INFO": "/"}, lambda status, headers, exc_info=None: started.append(status))
    assert started == ["400 Bad Request"]


@pytest.mark.parametrize("method", ["POST", "post"])
def test_a_method_is_the_same_in_small_letters_to_an_application_of_asgi(engine: Engine, method: str) -> None:
    """uvicorn passes on what the client has sent, and Django and Quart read it in capital letters."""
    messages: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pytest.fail("it has no key")

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": "/", "headers": []}
    asyncio.run(AsgiIdempotency(app, Idempotency(engine, scope=caller))(scope, receive, send))
    assert messages[0]["status"] == 400


def test_wrong_options_are_named(engine: Engine) -> None:
    with pytest.raises(TypeError, match=r"paths=\('/payments',\)"):
        Idempotency(engine, scope=caller, paths="/payments")
    with pytest.raises(ValueError, match="lease_ms is 0"):
        Idempotency(engine, scope=caller, lease_ms=0)
