"""One dependency serves requests with a key and without: a GET reads, and others commit before their answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from applications import payments, shop
from conftest_http import async_engine_of, caller
from fastapi import Depends, FastAPI, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import Response as LitestarResponse
from litestar import route as litestar_route
from sqlalchemy import Connection, Engine, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from semel.database import CommitTooEarly, TransactionBroken
from semel.database.procedures import drive
from semel.http import AsgiIdempotency, Idempotency, NoMiddleware, OnlyReads, WsgiIdempotency
from semel.http.unkeyed import Unkeyed, reader_of
from semel.steps.transactions import Ended, Transaction, transactions_max

METHODS = ["GET", "POST", "PUT"]
Work = Callable[[Session], Any]


class Base(DeclarativeBase):
    metadata = shop


class Payment(Base):
    __table__ = payments


def booked(engine: Engine) -> list[str]:
    """As another connection sees it."""
    with engine.connect() as connection:
        return sorted(connection.scalars(select(payments.c.amount)))


def pay(session: Session) -> str:
    """As handlers do that know nothing of keys: with a savepoint, and never a commit."""
    session.add(Payment(amount="5"))
    with contextlib.suppress(IntegrityError), session.begin_nested():
        session.add(Payment(amount=None))
    return read(session)


def read(session: Session) -> str:
    return ",".join(session.scalars(select(payments.c.amount)))


class Asked:
    """One application on one sessionmaker, in which each method does what the test says."""

    def __init__(self, framework: str, engine: Engine, url: str) -> None:
        self.works: dict[str, Work] = {"GET": read, "POST": pay, "PUT": pay}
        self.status = 200
        self.sessions: list[Any] = []
        self.errors: list[Exception] = []
        self._engine = async_engine_of(url) if framework.startswith("async") else engine
        maker: Any = async_sessionmaker if framework.startswith("async") else sessionmaker
        self.idempotency = Idempotency(maker(self._engine), scope=caller, required=())
        self.app: Any = getattr(self, f"_{framework.removeprefix('async ')}")(framework.startswith("async"))
        self._runner = asyncio.Runner()

    def send(self, method: str, key: str | None = None) -> httpx.Response:
        headers = {"X-Caller": "anna"} | ({} if key is None else {"Idempotency-Key": key})
        if isinstance(self.app, Flask):
            transport = httpx.WSGITransport(self.app, raise_app_exceptions=False)
            with httpx.Client(transport=transport, base_url="http://shop") as client:
                try:
                    return client.request(method, "/payments", headers=headers)
                except (OnlyReads, TransactionBroken):
                    # What the middleware raises, a server answers so.
                    return httpx.Response(500)
        return self._runner.run(self._send(method, headers))

    async def _send(self, method: str, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.request(method, "/payments", headers=headers)

    def close(self) -> None:
        if not isinstance(self._engine, Engine):
            self._runner.run(self._engine.dispose())
        self._runner.close()

    def _worked(self, method: str, session: Session) -> Any:
        self.sessions.append(session)
        try:
            return self.works[method](session)
        except Exception as error:
            self.errors.append(error)
            raise

    async def _worked_async(self, method: str, session: Any) -> Any:
        return await session.run_sync(lambda sync: self._worked(method, sync))

    async def _worked_in_loop(self, request: Any) -> Any:
        if self.idempotency.is_asynchronous:
            return await self._worked_async(request.method, await self.idempotency.session(request))
        session = await asyncio.to_thread(self.idempotency.session, request)
        return await asyncio.to_thread(self._worked, request.method, session)

    def _fastapi(self, is_async: bool) -> FastAPI:
        app = FastAPI()
        app.add_middleware(AsgiIdempotency, idempotency=self.idempotency)

        def handler(method: str) -> Callable[..., Any]:
            if is_async:

                async def handle_async(session: Any) -> Response:
                    return Response(await self._worked_async(method, session), self.status)

                handle: Any = handle_async
            else:

                def handle_sync(session: Any) -> Response:
                    return Response(self._worked(method, session), self.status)

                handle = handle_sync
            handle.__annotations__ = {"session": Annotated[Any, Depends(self.idempotency.session)]}
            return handle

        for method in METHODS:
            app.api_route("/payments", methods=[method])(handler(method))
        return app

    def _starlette(self, is_async: bool) -> Starlette:
        async def handle(request: StarletteRequest) -> PlainTextResponse:
            return PlainTextResponse(await self._worked_in_loop(request), self.status)

        app = Starlette(routes=[Route("/payments", handle, methods=METHODS)])
        app.add_middleware(AsgiIdempotency, idempotency=self.idempotency)
        return app

    def _litestar(self, is_async: bool) -> Any:
        async def handle(request: LitestarRequest[Any, Any, Any]) -> LitestarResponse[str]:
            return LitestarResponse(
                await self._worked_in_loop(request), status_code=self.status, media_type="text/plain"
            )

        methods: Any = METHODS
        app = Litestar([litestar_route("/payments", http_method=methods)(handle)])
        return AsgiIdempotency(app, self.idempotency)  # type: ignore[arg-type]

    def _flask(self, is_async: bool) -> Flask:
        app = Flask("shop")

        @app.route("/payments", methods=METHODS)
        def handle() -> tuple[str, int]:
            return self._worked(flask_request.method, self.idempotency.session(flask_request)), self.status

        app.wsgi_app = WsgiIdempotency(app.wsgi_app, self.idempotency)  # type: ignore[method-assign]
        return app


@pytest.fixture(params=["fastapi", "async fastapi", "flask"])
def asked(request: pytest.FixtureRequest, engine: Engine, url: str) -> Any:
    made = Asked(request.param, engine, url)
    yield made
    made.close()


FRAMEWORKS = ["fastapi", "async fastapi", "starlette", "async starlette", "litestar", "async litestar", "flask"]


@pytest.mark.parametrize("asked", FRAMEWORKS, indirect=True)
def test_one_dependency_serves_a_get_and_every_other_method_with_a_key_and_without(
    asked: Asked, engine: Engine
) -> None:
    assert asked.send("GET").text == ""
    assert (asked.send("POST", "k-1").text, asked.send("POST", "k-1").text) == ("5", "5")
    assert asked.send("GET").text == "5"
    assert (asked.send("POST").text, asked.send("PUT").text) == ("5,5", "5,5,5")
    assert booked(engine) == ["5", "5", "5"]


@pytest.mark.parametrize("status", [402, 500])
def test_what_is_refused_or_fails_commits_nothing(asked: Asked, engine: Engine, status: int) -> None:
    asked.status = status
    assert asked.send("PUT").status_code == status

    def fail(session: Session) -> None:
        pay(session)
        raise ConnectionError

    asked.status, asked.works["PUT"] = 200, fail
    assert asked.send("PUT").status_code == 500
    assert booked(engine) == []


CHANGES: dict[str, Work] = {
    "an object that is added": lambda session: session.add(Payment(amount="5")) or "",
    "a flush": pay,
    "an insert": lambda session: session.execute(insert(payments), {"amount": "5"}) and "",
    "a text": lambda session: session.execute(text("INSERT INTO payments (amount) VALUES ('5')")) and "",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_get_that_changes_something_is_refused_and_blocks_nobody(asked: Asked, engine: Engine, change: str) -> None:
    asked.works["GET"] = CHANGES[change]
    assert asked.send("GET").status_code == 500
    if change != "an object that is added":
        assert isinstance(asked.errors[0], OnlyReads)
    assert asked.send("PUT").text == "5"
    assert booked(engine) == ["5"]


def test_a_get_that_deletes_an_object_is_refused(asked: Asked, engine: Engine) -> None:
    asked.send("PUT")
    asked.works["GET"] = lambda session: session.delete(session.scalars(select(Payment)).one()) or ""
    assert asked.send("GET").status_code == 500
    assert booked(engine) == ["5"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_a_method_that_is_safe_only_reads(method: str, engine: Engine) -> None:
    work = Unkeyed(method, reader_of(engine), lambda: Transaction(engine.begin))
    with pytest.raises(OnlyReads):
        work.session().execute(insert(payments), {"amount": "5"})
    drive(work.end())
    assert booked(engine) == []


def test_a_transaction_that_begins_when_the_request_has_ended_is_left_to_nobody(engine: Engine) -> None:
    """Its thread may have waited for a connection meanwhile."""

    class Slow(Transaction):
        def start(self, work: Callable[[Connection], Any]) -> Any:
            drive(asked.end())
            return super().start(work)

    slow = Slow(engine.begin)
    asked = Unkeyed("PUT", None, lambda: slow)
    with pytest.raises(Ended):
        asked.session()
    assert not slow.is_open


@pytest.mark.parametrize("key", ["k-1", None])
def test_a_handler_that_commits_is_refused_with_the_remedy(asked: Asked, engine: Engine, key: str | None) -> None:
    def commit(session: Session) -> None:
        pay(session)
        session.commit()

    asked.works["POST"] = commit
    assert asked.send("POST", key).status_code == 500
    assert isinstance(asked.errors[0], CommitTooEarly)
    assert booked(engine) == []


def test_what_cannot_commit_is_no_success(asked: Asked, engine: Engine) -> None:
    """The answer leaves after the commit."""

    def roll_back(session: Session) -> str:
        pay(session)
        session.rollback()
        return "done"

    asked.works["PUT"] = roll_back
    assert asked.send("PUT").status_code == 500
    assert booked(engine) == []


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_after_the_answer_the_session_is_refused(asked: Asked, method: str) -> None:
    asked.send(method)
    with pytest.raises(Ended):
        asked.sessions[0].execute(text("SELECT 1"))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_engine_hands_over_connections(engine: Engine, url: str, asynchronous: bool) -> None:
    own = async_engine_of(url) if asynchronous else engine
    idempotency = Idempotency(own, scope=caller, required=())

    async def handle(request: StarletteRequest) -> PlainTextResponse:
        if asynchronous:
            return answer(request.method, await (await idempotency.session(request)).run_sync(work(request.method)))
        connection = await asyncio.to_thread(idempotency.session, request)
        return answer(request.method, await asyncio.to_thread(work(request.method), connection))

    def work(method: str) -> Callable[[Connection], str]:
        def do(connection: Connection) -> str:
            if method != "GET":
                connection.execute(insert(payments), {"amount": "5"})
            return ",".join(connection.scalars(select(payments.c.amount)))

        return do

    def answer(method: str, seen: str) -> PlainTextResponse:
        # With HEAD, what the handler does is refused.
        return PlainTextResponse(f"{method} {seen}")

    app = Starlette(routes=[Route("/payments", handle, methods=METHODS)])
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    async def send_all() -> list[str]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answers = [(await client.request(method, "/payments")).text for method in ("GET", "PUT", "GET")]
            with pytest.raises(OnlyReads):
                await client.head("/payments")
            if asynchronous:
                await own.dispose()
            return answers

    assert asyncio.run(send_all()) == ["GET ", "PUT 5", "GET 5"]
    assert booked(engine) == ["5"]


def test_a_get_waits_for_no_request_with_a_key(engine: Engine, url: str) -> None:
    asked = Asked("flask", engine, url)

    def pay_and_look(session: Session) -> str:
        pay(session)
        return f"then {asked.send('GET').text!r}"

    asked.works["POST"] = pay_and_look
    assert asked.send("POST", "k-1").text == "then ''"
    assert asked.send("GET").text == "5"
    asked.close()


def test_a_stream_of_a_get_reads_to_its_end(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)

    def stream(session: Annotated[Any, Depends(idempotency.session)]) -> StreamingResponse:
        return StreamingResponse(read(session) or "nothing" for _ in range(2))

    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    stream.__annotations__ = {"session": Annotated[Any, Depends(idempotency.session)]}
    app.get("/payments")(stream)
    with TestClient(app) as client:
        assert client.get("/payments").text == "nothingnothing"


def test_an_answer_whose_handler_does_not_ask_is_handed_through(engine: Engine) -> None:
    pieces = [b"5"]

    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return pieces

    idempotency = Idempotency(engine, scope=caller)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.url_scheme": "http"}
    assert WsgiIdempotency(app, idempotency)(environ, lambda *_: lambda _: None) is pieces
    # And whoever asks once the answer has begun gets nothing that nobody would end.
    with pytest.raises(Ended):
        idempotency.session(environ)


def test_who_is_outside_of_the_middleware_or_would_hold_up_the_loop_is_told(engine: Engine) -> None:
    idempotency = Idempotency(engine, scope=caller)
    with pytest.raises(NoMiddleware, match="put AsgiIdempotency or WsgiIdempotency around"):
        idempotency.session({})

    async def handle(request: StarletteRequest) -> PlainTextResponse:
        idempotency.session(request)
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/payments", handle, methods=["PUT"])])
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)
    with TestClient(app) as client, pytest.raises(TypeError, match=r"asyncio\.to_thread"):
        client.put("/payments")


def test_requests_wait_for_their_turn_and_not_for_a_lock_where_a_database_has_one_writer(engine: Engine) -> None:
    """A lock is waited for only so long; then a request is told that the database is busy."""
    count = 1 if engine.dialect.name == "sqlite" else 10
    assert [transactions_max(database) for database in (engine, sessionmaker(engine))] == [count, count]
