"""A session of the application's own that sends its changes only when it commits, behind the answer: the request is
refused before that, and so is the commit."""

import logging
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
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from semel import inbox
from semel.database import WrittenElsewhere, elsewhere, read_only
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency
from semel.http.tables import keys

HEADERS = {"Idempotency-Key": "k-1", "X-Caller": "anna"}


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column()


@pytest.fixture(autouse=True)
def tables(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    inbox.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Order(item="of before"))


def orders(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(Order.item)))


def kept(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(keys)) or 0


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "semel.http" and one.levelno == logging.ERROR]


def is_problem(answer: Any) -> bool:
    problem = answer.get_json(force=True) if hasattr(answer, "get_json") else answer.json()
    assert (answer.status_code, problem["type"]) == (500, "urn:semel:problem:written-elsewhere")
    return True


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
    assert "POST /orders/{number} was refused" in first
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
    assert "POST /orders/{number}: after its answer a change was refused" in one


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
