"""What a handler writes on another connection than that of its key is refused at the first request, with the remedy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from applications import payments
from conftest_http import async_engine_of, caller
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from flask import Flask
from litestar import Litestar
from litestar import post as litestar_post
from litestar.testing import TestClient as LitestarClient
from sqlalchemy import Engine, create_engine, func, insert, select
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from test_django import ours, plain, post, routed

from djangos import alias_of, model_on
from semel import outbox
from semel.database import WrittenElsewhere, elsewhere, engine_of
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.http.tables import keys


@pytest.fixture
def alias(engine: Engine) -> Iterator[str]:
    with alias_of(engine) as name:
        yield name


def count(engine: Engine, table: Any = payments) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def paid() -> Any:
    from django.http import HttpResponse

    return HttpResponse("paid", status=201)


def django_logs(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(str(one.exc_info[1]) for one in caplog.records if one.exc_info is not None)


# -- Django ------------------------------------------------------------------------------------------------------------


def test_the_orm_of_django_beside_an_engine_of_sqlalchemy_is_refused_with_the_way_on(
    engine: Engine, alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The payment would be committed, and the request executed again after a crash before the commit of its key."""
    payment = model_on(alias)

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        return paid()

    idempotency = Idempotency(engine, scope=caller)
    assert post(idempotency, view)[0].startswith("500")
    assert f"the connection {alias!r} of Django" in django_logs(caplog)
    assert "semel.http.django.transactions" in django_logs(caplog)
    assert (count(engine), count(engine, keys)) == (0, 0)
    assert post(Idempotency(ours(alias), scope=caller), view) == ("201 Created", b"paid")
    assert count(engine) == 1


def test_a_view_that_catches_the_refusal_has_not_succeeded(engine: Engine, alias: str) -> None:
    payment = model_on(alias)

    def view(_request: Any) -> Any:
        with contextlib.suppress(Exception):
            payment.create(amount="5")
        return paid()

    status, problem = post(Idempotency(engine, scope=caller), view)
    assert (status[:3], json.loads(problem)["type"]) == ("500", "urn:semel:problem:written-elsewhere")
    assert "semel.http.django.transactions" in json.loads(problem)["detail"]
    assert (count(engine), count(engine, keys)) == (0, 0)


def test_every_way_to_write_with_the_orm_is_seen_and_every_way_to_read_is_let_through(
    engine: Engine, alias: str
) -> None:
    from django.db import connections

    payment = model_on(alias)
    payment.create(amount="1")
    writes: list[Callable[[], object]] = [
        lambda: payment.bulk_create([payment.model(amount="5"), payment.model(amount="6")]),
        lambda: payment.update(amount="7"),
        lambda: payment.filter(amount="1").delete(),
        lambda: payment.get_or_create(amount="8"),
        lambda: connections[alias].cursor().execute("/* by hand */ insert into payments (amount) values ('9')"),
        lambda: connections[alias].cursor().executemany("INSERT INTO payments (amount) VALUES (%s)", [("9",)]),
        lambda: connections[alias].cursor().execute("WITH one AS (SELECT 1) DELETE FROM payments WHERE amount = '1'"),
    ]
    refusals = []

    def view(request: Any) -> Any:
        assert [one.amount for one in payment.filter(amount="1")] == ["1"]
        for write in writes:
            try:
                write()
            except WrittenElsewhere as error:
                refusals.append(error)
        return paid()

    assert post(Idempotency(engine, scope=caller), view)[0].startswith("500")
    assert len(refusals) == len(writes)
    with engine.connect() as connection:
        assert list(connection.scalars(select(payments.c.amount))) == ["1"]


def test_another_alias_than_that_of_the_key_is_refused(engine: Engine, alias: str, tmp_path: Any) -> None:
    """Two databases commit apart from each other, also if both are Django's."""
    other = engine_of(f"sqlite:///{tmp_path}/other.db")
    payments.create(other)
    with alias_of(other) as second:
        own, others = model_on(alias), model_on(second)

        def view(_request: Any) -> Any:
            own.create(amount="5")
            if is_meant:
                with elsewhere():
                    others.create(amount="5")
            else:
                others.create(amount="5")
            return paid()

        is_meant = False
        idempotency = Idempotency(ours(alias), scope=caller)
        assert post(idempotency, view)[0].startswith("500")
        assert (count(engine), count(other)) == (0, 0)
        is_meant = True
        assert post(idempotency, view) == post(idempotency, view) == ("201 Created", b"paid")
        assert (count(engine), count(other)) == (1, 1)
    other.dispose()


async def ask_django(idempotency: Idempotency, view: Any) -> int:
    from django.core.asgi import get_asgi_application

    app: Any = AsgiIdempotency(get_asgi_application(), idempotency)
    with routed(view):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            answer = await client.post("/payments", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"})
            return answer.status_code


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize("kind", ["engine", "function"])
def test_a_view_under_asgi_is_refused_in_whichever_thread_it_writes(
    engine: Engine, alias: str, kind: str, is_coroutine: bool
) -> None:
    """Django has another connection in each thread, so it cannot be that of the key, whoever made that one."""
    payment = model_on(alias)

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        return paid()

    async def coroutine(_request: Any) -> Any:
        await payment.acreate(amount="5")
        return paid()

    idempotency = Idempotency(engine if kind == "engine" else plain(alias), scope=caller)
    assert asyncio.run(ask_django(idempotency, coroutine if is_coroutine else view)) == 500
    assert (count(engine), count(engine, keys)) == (0, 0)


@pytest.mark.parametrize("kind", ["engine", "ours"])
def test_in_a_step_the_orm_works_on_the_connection_of_the_step_or_not_at_all(
    engine: Engine, alias: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    payment = model_on(alias)

    def view(request: Any) -> Any:
        with idempotency.key(request).step("book") as step:
            if step.first:
                if is_mended:
                    step.connection()
                payment.create(amount="5")
        return paid()

    database = engine if kind == "engine" else ours(alias)
    idempotency = Idempotency(database, scope=caller, steps=("/charges",))
    is_mended = False
    assert post(idempotency, view, "/charges")[0].startswith("500")
    assert "step.connection()" in django_logs(caplog)
    assert count(engine) == 0
    is_mended = True
    for _ in range(2):
        expected = ("201 Created", b"paid") if kind == "ours" else ("500 Internal Server Error", None)
        status, body = post(idempotency, view, "/charges")
        assert (status, expected[1] and body) == expected
    assert count(engine) == (1 if kind == "ours" else 0)


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


class Handler:
    """A handler of WSGI that does `work` with the connection of its key, and says in public why it has failed."""

    def __init__(self, database: Any, work: Callable[[Any], object]) -> None:
        self.idempotency = Idempotency(database, scope=caller)
        self._work = work
        self._app = WsgiIdempotency(self._handle, self.idempotency)
        self.refused = ""

    def _handle(self, environ: Any, start_response: Any) -> list[bytes]:
        try:
            self._work(self.idempotency.connection(environ))
        except WrittenElsewhere as error:
            self.refused = str(error)
            raise
        start_response("201 Created", [])
        return [b"paid"]

    def post(self) -> int:
        with httpx.Client(transport=httpx.WSGITransport(self._app), base_url="http://shop") as client:
            return client.post("/payments", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"}).status_code


def test_a_session_on_another_engine_may_read_and_is_refused_when_it_writes(engine: Engine, tmp_path: Any) -> None:
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    payments.create(other)

    def write(connection: Any) -> None:
        connection.execute(insert(payments), {"amount": "5"})
        with Session(other) as session:
            assert session.scalar(select(func.count()).select_from(payments)) == 0
            session.execute(insert(payments), [{"amount": "5"}, {"amount": "6"}])
            session.commit()

    def mean_it(connection: Any) -> None:
        with elsewhere():
            write(connection)

    handler = Handler(engine, write)
    assert handler.post() == 500
    assert re.search(r"INSERT INTO payments .*idempotency\.session", handler.refused)
    assert (count(engine), count(engine, keys), count(other)) == (0, 0, 0)
    assert Handler(engine, mean_it).post() == Handler(engine, mean_it).post() == 201
    assert (count(engine), count(other)) == (1, 2)
    other.dispose()


def test_a_second_session_on_the_same_postgresql_is_refused(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("there it would wait for the first one, which is refused as well")

    def write(_connection: Any) -> None:
        with Session(engine) as session, session.begin():
            session.execute(insert(payments), {"amount": "5"})

    assert Handler(engine, write).post() == 500
    assert count(engine) == 0


def test_a_message_for_the_outbox_is_refused_on_a_connection_of_its_own(engine: Engine, tmp_path: Any) -> None:
    """It would be sent although the request was undone."""
    other = engine_of(f"sqlite:///{tmp_path}/other.db")
    outbox.metadata.create_all(other)

    def send(_connection: Any) -> None:
        with other.begin() as connection:
            outbox.add(connection, "payments", b"k", b"v")

    handler = Handler(engine, send)
    assert handler.post() == 500
    assert re.search("INSERT INTO semel_outbox", handler.refused)
    other.dispose()


def test_a_coroutine_with_a_session_of_its_own_is_refused(engine: Engine, url: str, tmp_path: Any) -> None:
    """As a dependency hands it over that many services have."""
    own_url = url if engine.dialect.name == "postgresql" else f"sqlite:///{tmp_path}/other.db"
    if own_url != url:
        payments.create(engine_of(own_url))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with async_sessionmaker(own)() as session:
            await session.execute(insert(payments), {"amount": "5"})
            await session.commit()
        await answer(send)

    async def answer(send: Callable[[Any], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({}).encode()})

    async def ask() -> None:
        transport = httpx.ASGITransport(AsgiIdempotency(app, Idempotency(async_engine_of(url), scope=caller)))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            with pytest.raises(WrittenElsewhere):
                await client.post("/payments", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"})
        await own.dispose()

    own = async_engine_of(own_url)
    asyncio.run(ask())
    assert (count(engine), count(engine, keys)) == (0, 0)


def test_a_service_in_the_same_process_may_have_a_key_of_its_own(engine: Engine, tmp_path: Any) -> None:
    """Its effect commits with its own claim, so a repetition of the outer request does not repeat it."""
    other = engine_of(f"sqlite:///{tmp_path}/other.db")
    from semel.http import metadata

    payments.create(other)
    metadata.create_all(other)
    inner = Handler(other, lambda connection: connection.execute(insert(payments), {"amount": "5"}))
    outer = Handler(engine, lambda _connection: inner.post())
    assert outer.post() == outer.post() == 201
    assert (count(other), count(other, keys)) == (1, 1)
    other.dispose()


# -- the session of a dependency, as most services have it -------------------------------------------------------------


def of_fastapi(idempotency: Idempotency, book: Callable[[Session], None], sessions: Any) -> Any:
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def get_db() -> Iterator[Session]:
        with sessions.begin() as session:
            yield session

    def pay(session: Any) -> dict[str, str]:
        book(session)
        return {}

    pay.__annotations__ |= {"session": Any, "return": dict[str, str]}
    pay.__defaults__ = (Depends(get_db),)
    app.post("/payments")(pay)
    return TestClient(app, raise_server_exceptions=False)


def of_litestar(idempotency: Idempotency, book: Callable[[Session], None], sessions: Any) -> Any:
    def pay() -> dict[str, str]:
        with sessions.begin() as session:
            book(session)
        return {}

    # Litestar calls it in a thread.
    route = litestar_post("/payments", sync_to_thread=True)(pay)
    app: Any = AsgiIdempotency(Litestar([route], logging_config=None), idempotency)
    return LitestarClient(app, raise_server_exceptions=False)


def of_flask(idempotency: Idempotency, book: Callable[[Session], None], sessions: Any) -> Any:
    app = Flask("shop")

    @app.post("/payments")
    def pay() -> str:
        with sessions.begin() as session:
            book(session)
        return ""

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    return app.test_client()


@pytest.mark.parametrize("framework", [of_fastapi, of_litestar, of_flask])
def test_a_session_that_commits_by_itself_is_refused_in_each_framework(
    engine: Engine, tmp_path: Any, framework: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    payments.create(other)
    refusals: list[Exception] = []

    def book(session: Session) -> None:
        try:
            session.execute(insert(payments), {"amount": "5"})
        except WrittenElsewhere as error:
            refusals.append(error)
            raise

    client = framework(Idempotency(engine, scope=caller), book, sessionmaker(other))
    headers = {"Idempotency-Key": "k-1", "X-Caller": "anna"}
    for _ in range(2):
        answer = client.post("/payments", headers=headers)
        problem = json.loads(answer.data if framework is of_flask else answer.content)
        assert (answer.status_code, problem["type"]) == (500, "urn:semel:problem:written-elsewhere")
        way = "Depends(idempotency.session)" if framework is of_fastapi else "idempotency.session(request)"
        assert f"take {way} in its handler" in problem["detail"]
    assert len(refusals) == 2
    assert re.search(r"POST /payments \([\w.<>]*pay\) was refused", caplog.text)
    assert "INSERT INTO payments" in caplog.text
    assert (count(other), count(engine, keys)) == (0, 0)
    other.dispose()
