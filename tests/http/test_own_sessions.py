"""A session of the application's own that sends its changes only when it commits, behind the answer: the request is
refused before that, and so is the commit."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from conftest_http import async_engine_of, caller
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.testclient import TestClient
from flask import Flask, g, request
from litestar import Litestar
from litestar import post as litestar_post
from litestar.di import Provide
from litestar.testing import TestClient as LitestarClient
from orders import Base, Order, Outer, errors, is_problem, kept, orders, plain
from sqlalchemy import Engine, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from semel import inbox
from semel.database import WrittenElsewhere, elsewhere, read_only
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}


@pytest.fixture(autouse=True)
def tables(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    inbox.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Order(item="of before"))


Work = Callable[[Session], object]


def of_fastapi(engine: Engine, work: Work, *, behind: Work = lambda _: None, **options: Any) -> Any:
    """Whose `get_session` commits behind its `yield`, as FastAPI's own pages show it."""
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=Idempotency(engine, scope=caller, **options))

    def get_session() -> Iterator[Session]:
        with sessionmaker(engine)() as session:
            yield session
            behind(session)
            session.commit()

    @app.post("/orders/{number}", status_code=201)
    def place(number: int, session: Annotated[Session, Depends(get_session)]) -> dict[str, int]:
        work(session)
        return {}

    return TestClient(app, headers=HEADERS, raise_server_exceptions=False)


def add(session: Session) -> None:
    session.add(Order(item="pen"))


def write(session: Session) -> None:
    session.execute(text("UPDATE orders SET item = 'pencil'"))


@pytest.mark.parametrize("strict", [False, True])
def test_a_dependency_that_commits_behind_the_answer_is_refused_though_its_handler_flushes_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    client = of_fastapi(engine, add, strict=strict)
    assert all(is_problem(client.post("/orders/7")) for _ in range(2))
    assert (orders(engine), kept(engine)) == (["of before"], 0)
    first, _second = errors(caplog)
    assert "POST /orders/{number} (test_own_sessions.of_fastapi.<locals>.place) was refused" in first
    assert "holds an unsent change of Order" in first


def test_beside_the_session_of_the_key_nothing_of_either_is_kept(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=idempotency)

    def get_session() -> Iterator[Session]:
        with sessionmaker(engine).begin() as session:
            yield session

    @app.post("/orders", status_code=201)
    def place(
        own: Annotated[Session, Depends(get_session)], session: Annotated[Session, Depends(idempotency.session)]
    ) -> dict[str, int]:
        add(session)
        add(own)
        return {}

    with TestClient(app, headers=HEADERS, raise_server_exceptions=False) as client:
        assert all(is_problem(client.post("/orders")) for _ in range(2))
    assert (orders(engine), kept(engine)) == (["of before"], 0)


def test_a_coroutine_with_an_asynchronous_session_is_refused_as_well(url: str, engine: Engine) -> None:
    own = async_sessionmaker(async_engine_of(url))
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=Idempotency(async_engine_of(url), scope=caller))

    async def get_session() -> AsyncIterator[Any]:
        async with own.begin() as session:
            yield session

    @app.post("/orders", status_code=201)
    async def place(session: Annotated[AsyncSession, Depends(get_session)]) -> dict[str, int]:
        add(session)
        return {}

    with TestClient(app, headers=HEADERS, raise_server_exceptions=False) as client:
        assert all(is_problem(client.post("/orders")) for _ in range(2))
    assert (orders(engine), kept(engine)) == (["of before"], 0)


@pytest.mark.parametrize("outside", [False, True])
def test_a_middleware_that_commits_the_session_of_the_request_is_refused(engine: Engine, outside: bool) -> None:
    """Inside of the keys and outside, with a session that may have begun before the key was claimed."""

    class Commits:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            with Session(engine) as session, session.begin():
                scope["own"] = session
                if engine.dialect.name != "sqlite":
                    # It may have read, such as who the user is; on SQLite the key would wait for it.
                    session.connection()
                await self.app(scope, receive, send)

    async def place(request: StarletteRequest) -> JSONResponse:
        add(request.scope["own"])
        return JSONResponse({}, 201)

    inner: Any = Starlette(routes=[Route("/orders", place, methods=["POST"])])
    idempotency = Idempotency(engine, scope=caller)
    app = Commits(AsgiIdempotency(inner, idempotency)) if outside else AsgiIdempotency(Commits(inner), idempotency)
    with TestClient(app, headers=HEADERS, raise_server_exceptions=False) as client:
        assert is_problem(client.post("/orders"))
    assert (orders(engine), kept(engine)) == (["of before"], 0)


def test_litestar_and_flask_which_commit_before_the_answer_refuse_it_too(engine: Engine) -> None:
    def session_of_request() -> Iterator[Session]:
        with sessionmaker(read_only(engine) if engine.dialect.name == "sqlite" else engine)() as session:
            yield session
            session.commit()

    async def place(own: Any) -> dict[str, int]:
        add(own)
        return {}

    dependencies = {"own": Provide(session_of_request, sync_to_thread=False)}
    route = litestar_post("/orders", dependencies=dependencies)(place)
    idempotency = Idempotency(engine, scope=caller)
    app: Any = AsgiIdempotency(Litestar([route], logging_config=None), idempotency)
    with LitestarClient(app, raise_server_exceptions=False) as client:
        assert is_problem(client.post("/orders", headers=HEADERS))

    flask = Flask("shop")

    @flask.post("/orders")
    def put() -> str:
        g.own = Session(engine)
        add(g.own)
        return ""

    flask.wsgi_app = WsgiIdempotency(flask.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert is_problem(flask.test_client().post("/orders", headers=HEADERS))
    assert (orders(engine), kept(engine)) == (["of before"], 0)


def test_a_changed_and_a_deleted_object_are_refused_as_an_added_one_is(engine: Engine) -> None:
    def changes(session: Session) -> None:
        session.scalars(select(Order)).one().item = "pencil"

    def deletes(session: Session) -> None:
        session.delete(session.scalars(select(Order)).one())

    own = Session(read_only(engine))
    for work in (changes, deletes):
        client = of_fastapi(engine, lambda _, work=work: work(own))
        assert is_problem(client.post("/orders/7"))
        own.rollback()
    own.close()
    assert (orders(engine), kept(engine)) == (["of before"], 0)


@pytest.mark.parametrize("behind", [add, write])
def test_what_the_code_behind_the_yield_writes_is_refused_and_its_path_is_told(
    engine: Engine, caplog: pytest.LogCaptureFixture, behind: Work
) -> None:
    """The answer has left, and is kept: nobody can take that back."""
    client = of_fastapi(engine, lambda session: session.begin(), behind=behind)
    assert client.post("/orders/7").status_code == 201
    assert (orders(engine), kept(engine)) == (["of before"], 1)
    [one] = errors(caplog)
    assert "POST /orders/{number} (test_own_sessions.of_fastapi.<locals>.place): after its answer a change was" in one


def test_a_background_task_may_write_with_a_session_that_it_begins_itself(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    refused = []
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=Idempotency(engine, scope=caller))

    def later(of_handler: Session) -> None:
        with Session(engine) as session, session.begin():
            session.add(Order(item="later"))
            session.flush()
            session.execute(update(Order).values(item="much later"))
        with pytest.raises(WrittenElsewhere), of_handler.begin_nested():
            add(of_handler)
        refused.append(orders(engine))
        of_handler.close()

    @app.post("/orders")
    def place(tasks: BackgroundTasks) -> dict[str, int]:
        session = Session(engine)
        session.begin()
        tasks.add_task(later, session)
        return {}

    with TestClient(app, headers=HEADERS) as client:
        assert client.post("/orders").status_code == 200
    assert refused == [["much later", "much later"]]
    assert (orders(engine), kept(engine)) == (["much later", "much later"], 1)


def test_a_session_that_only_reads_or_writes_what_is_meant_to_be_apart_is_let_through(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def read(session: Session) -> None:
        with Session(read_only(engine)) as other:
            [one] = other.scalars(select(Order))
            one.item = one.item

    def behind(session: Session) -> None:
        with elsewhere():
            add(session)
            session.flush()

    client = of_fastapi(engine, read, behind=behind)
    assert client.post("/orders/7").status_code == 201
    assert (orders(engine), kept(engine), errors(caplog)) == (["of before", "pen"], 1, [])


def test_a_step_and_a_block_of_a_claim_refuse_it_and_let_their_own_session_send_its_changes_at_the_commit(
    engine: Engine,
) -> None:
    own = Session(read_only(engine))
    with (
        pytest.raises(WrittenElsewhere, match="an unsent change of Order"),
        sessionmaker(engine).begin() as session,
        inbox.once(session, consumer="shop", message_id="e-1"),
    ):
        add(own)
    own.close()
    idempotency = Idempotency(sessionmaker(engine), scope=caller, steps=("*",))
    flask = Flask("shop")

    @flask.post("/orders")
    def put() -> str:
        with idempotency.key(request).step("book") as step:
            add(step.connection())
            if is_wrong:
                g.own = Session(engine)
                add(g.own)
        return ""

    flask.wsgi_app = WsgiIdempotency(flask.wsgi_app, idempotency)  # type: ignore[method-assign]
    is_wrong = True
    assert flask.test_client().post("/orders", headers=HEADERS).status_code == 500
    assert orders(engine) == ["of before"]
    is_wrong = False
    assert flask.test_client().post("/orders", headers=HEADERS).status_code == 200
    with Session(engine) as session, session.begin(), inbox.once(session, consumer="shop", message_id="e-1"):
        add(session)
    assert orders(engine) == ["of before", "pen", "pen"]


@pytest.mark.parametrize("path", ["/changes", "/deletes"])
def test_a_loaded_object_of_a_session_that_was_open_before_the_key_is_refused_if_the_handler_changes_it(
    engine: Engine, path: str
) -> None:
    async def handler(request: StarletteRequest) -> JSONResponse:
        order = request.scope["order"]
        if path == "/changes":
            order.item = "pencil"
        else:
            Session.object_session(order).delete(order)  # type: ignore[union-attr]
        return JSONResponse({}, 201)

    inner: Any = Starlette(routes=[Route(path, handler, methods=["POST"])])
    app = Outer(AsgiIdempotency(inner, Idempotency(engine, scope=caller)), engine)
    with TestClient(app, headers=HEADERS, raise_server_exceptions=False) as client:
        assert all(is_problem(client.post(path)) for _ in range(2))
    assert (orders(engine), kept(engine)) == (["of before"], 0)


@pytest.mark.parametrize(("path", "rows"), [("/reads", 1), ("/changed-before", 2)])
def test_a_session_that_was_open_before_the_key_may_be_read_and_keeps_what_it_held_before(
    engine: Engine, path: str, rows: int
) -> None:
    async def handler(request: StarletteRequest) -> JSONResponse:
        return JSONResponse(request.scope["order"].item, 201)

    inner: Any = Starlette(routes=[Route(path, handler, methods=["POST"])])
    app = Outer(AsgiIdempotency(inner, Idempotency(engine, scope=caller)), engine)
    with TestClient(app, headers=HEADERS) as client:
        assert client.post(path).status_code == 201
    assert (len(orders(engine)), kept(engine)) == (rows, 1)


def test_a_session_for_all_requests_may_write_in_the_next_one_without_a_key(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    own = Session(plain(engine))
    idempotency = Idempotency(engine, scope=caller, required=())
    answers = []
    for kind in (Flask, FastAPI):
        app: Any = kind("shop") if kind is Flask else kind()

        @app.post("/read")
        def read() -> dict[str, int]:
            return {"orders": len(own.scalars(select(Order)).all())}

        @app.post("/write")
        def put() -> dict[str, int]:
            own.scalars(select(Order)).first().item += "!"  # type: ignore[union-attr]
            own.commit()
            return {}

        if kind is Flask:
            app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)
        else:
            app.add_middleware(AsgiIdempotency, idempotency=idempotency)
        client: Any = app.test_client() if kind is Flask else TestClient(app)
        headers = {**HEADERS, "Idempotency-Key": f"k-{kind.__name__}"}
        answers += [client.post("/read", headers=headers).status_code, client.post("/write").status_code]
    own.close()
    assert (answers, orders(engine), errors(caplog)) == ([200] * 4, ["of before!!"], [])


@pytest.mark.parametrize("lets_go", [None, Session.expunge_all, Session.rollback])
def test_a_change_for_the_answer_alone_is_refused_with_its_remedy_and_let_through_with_it(
    engine: Engine, caplog: pytest.LogCaptureFixture, lets_go: Work | None
) -> None:
    own = Session(read_only(engine), autoflush=False)

    def upper(_: Session) -> None:
        order = own.scalars(select(Order)).one()
        order.item = order.item.upper()
        if lets_go is not None:
            lets_go(own)

    answer = of_fastapi(engine, upper).post("/orders/7")
    own.close()
    if lets_go is None:
        assert is_problem(answer)
        assert "call expunge() or rollback() of that session before the answer" in errors(caplog)[0]
    else:
        assert (answer.status_code, errors(caplog)) == (201, [])


def test_a_task_that_is_started_elsewhere_may_write_before_the_answer_and_after_it(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    app = FastAPI()
    app.add_middleware(AsgiIdempotency, idempotency=Idempotency(engine, scope=caller))
    tasks: list[asyncio.Task[None]] = []
    has_read, has_answered = asyncio.Event(), asyncio.Event()

    async def audit() -> None:
        with Session(plain(engine)) as session:
            session.scalars(select(Order)).all()
            has_read.set()
            await has_answered.wait()
            add(session)
            session.commit()

    @app.post("/orders")
    async def place() -> dict[str, int]:
        with elsewhere():
            tasks.append(asyncio.create_task(audit()))
        await has_read.wait()
        return {}

    @app.get("/audited")
    async def audited() -> dict[str, int]:
        has_answered.set()
        await asyncio.gather(*tasks)
        return {}

    with TestClient(app, headers=HEADERS) as client:
        assert client.post("/orders").status_code == client.get("/audited").status_code == 200
    assert (orders(engine), kept(engine), errors(caplog)) == (["of before", "pen"], 1, [])


def test_a_commit_in_the_teardown_of_flask_is_answered_with_the_problem_and_one_behind_the_answer_is_logged(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    flask = Flask("shop")

    @flask.post("/teardown")
    def place() -> str:
        g.own = Session(engine)
        add(g.own)
        return ""

    @flask.teardown_appcontext
    def commit(_error: BaseException | None) -> None:
        if "own" in g:
            g.own.commit()

    @flask.post("/behind")
    def behind() -> Any:
        own = Session(read_only(engine))
        order = own.scalars(select(Order)).one()

        def later() -> None:
            order.item = "late"
            own.commit()

        answer = flask.make_response("")
        answer.call_on_close(later)
        return answer

    flask.wsgi_app = WsgiIdempotency(flask.wsgi_app, Idempotency(engine, scope=caller))  # type: ignore[method-assign]
    client = flask.test_client()
    assert is_problem(client.post("/teardown", headers=HEADERS))
    assert kept(engine) == 0
    assert client.post("/behind", headers=HEADERS).status_code == 200
    first, second = errors(caplog)
    assert "POST /teardown (place) was refused" in first
    assert "POST /behind (behind): after its answer a change was refused" in second
    assert (orders(engine), kept(engine)) == (["of before"], 1)


def test_each_savepoint_of_a_request_costs_as_many_calls_as_the_one_before(engine: Engine) -> None:
    idempotency = Idempotency(sessionmaker(engine), scope=caller)
    flask = Flask("shop")
    calls: list[int] = []

    @flask.post("/orders")
    def place() -> str:
        session = idempotency.session(request)
        for _ in range(8):
            calls.append(0)
            sys.setprofile(count)
            with session.begin_nested():
                add(session)
            sys.setprofile(None)
        return ""

    def count(frame: Any, kind: str, _argument: object) -> None:
        calls[-1] += kind == "call" and frame.f_globals.get("__name__") == "semel.database.effects"

    flask.wsgi_app = WsgiIdempotency(flask.wsgi_app, idempotency)  # type: ignore[method-assign]
    assert flask.test_client().post("/orders", headers=HEADERS).status_code == 200
    assert len(set(calls[1:])) == 1


def test_a_session_that_a_thread_of_the_handler_changes_meanwhile_is_looked_at_again(engine: Engine) -> None:
    class Shared(Session):
        changes = 2

        @property
        def new(self) -> Any:
            self.changes -= 1
            if self.changes >= 0:
                raise RuntimeError("dictionary changed size during iteration")
            return super().new

    own = Shared(engine)
    client = of_fastapi(engine, lambda _: add(own))
    assert is_problem(client.post("/orders/7"))
    own.close()
    assert (orders(engine), kept(engine)) == (["of before"], 0)
