"""A handler that ends the transaction of its claim, or whose session writes nothing, is never taken for done in
silence."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from effects import do, done, effects
from sqlalchemy import Connection, Engine, create_engine, insert, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

from semel.database import TransactionBroken, begin_immediately
from semel.inbox import AsyncInbox, Inbox, Message, Outcome, Retries, once, once_async, quarantine
from semel.inbox.quarantine import State, events

AT_ONCE = Retries(attempts=2, first_wait_ms=1, wait_ms_max=1)


class Base(DeclarativeBase):
    pass


class Effect(Base):
    __table__ = effects.to_metadata(Base.metadata)


def inbox_of(database: Any, kind: Any = Inbox) -> Any:
    return kind(database, consumer="billing", identity=lambda one: one.value.decode(), retries=AT_ONCE)


def message(name: str) -> Message:
    return Message("orders", 0, 7, None, name.encode())


def held(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [one.reason for one in events(connection, consumer="billing", states=[State.HELD])]


# -- a handler with a session ------------------------------------------------------------------------------------------


def test_a_loop_on_a_sessionmaker_writes_what_the_handler_adds(engine: Engine) -> None:
    inbox = inbox_of(sessionmaker(engine))

    def handle(session: Session, taken: Message) -> None:
        session.add(Effect(name=str(taken.value)))

    assert [inbox.take(handle, message("e-1")) for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert len(done(engine)) == 1


def or_else(session: Session, name: str) -> None:
    """What many handlers do: a row that may be there already is tried in a savepoint."""
    with contextlib.suppress(IntegrityError), session.begin_nested():
        session.add(Effect(number=1, name="the same"))
    session.add(Effect(name=name))


def test_a_handler_may_use_savepoints_of_its_session(engine: Engine) -> None:
    inbox = inbox_of(sessionmaker(engine))

    def handle(session: Session, taken: Message) -> None:
        or_else(session, taken.value.decode())

    assert [inbox.take(handle, message(name)) for name in ("e-1", "e-2", "e-2")] == [
        *(Outcome.ACCEPTED, Outcome.ACCEPTED),
        Outcome.DUPLICATE,
    ]
    assert done(engine) == ["the same", "e-1", "e-2"]


async def test_a_coroutine_may_use_savepoints_of_its_session(engine: Engine) -> None:
    made = asynchronous(engine)
    inbox = inbox_of(async_sessionmaker(made), AsyncInbox)

    async def handle(session: AsyncSession, taken: Message) -> None:
        await session.run_sync(or_else, taken.value.decode())

    assert [await inbox.take(handle, message(name)) for name in ("e-1", "e-2", "e-2")] == [
        *(Outcome.ACCEPTED, Outcome.ACCEPTED),
        Outcome.DUPLICATE,
    ]
    await made.dispose()
    assert done(engine) == ["the same", "e-1", "e-2"]


def test_a_handler_whose_rows_cannot_be_written_has_failed(engine: Engine) -> None:
    inbox = inbox_of(sessionmaker(engine))

    def handle(session: Session, taken: Message) -> None:
        session.add(Effect(name=None))

    assert inbox.take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "IntegrityError" in held(engine)[0]


@pytest.mark.parametrize("kind", ["engine", "sessionmaker"])
def test_a_session_of_the_handlers_own_that_is_never_flushed_is_an_error(engine: Engine, kind: str) -> None:
    inbox = inbox_of(engine if kind == "engine" else sessionmaker(engine))

    def handle(handle: Any, taken: Message) -> None:
        connection = handle if isinstance(handle, Connection) else handle.connection()
        with Session(connection) as session:
            session.add(Effect(name="never"))

    assert inbox.take(handle, message("e-1")) is Outcome.QUARANTINED
    assert "NotFlushed" in held(engine)[0]
    assert done(engine) == []


@pytest.mark.parametrize(
    "database",
    [
        "sqlite:///app.db",
        Session(create_engine("sqlite://")),
        sessionmaker(),
        sessionmaker(create_engine("sqlite://").connect()),
        scoped_session(sessionmaker(create_engine("sqlite://"))),
        create_async_engine("sqlite+aiosqlite://"),
        async_sessionmaker(create_async_engine("sqlite+aiosqlite://")),
    ],
)
def test_what_is_no_database_of_a_loop_is_refused_at_once(database: Any) -> None:
    with pytest.raises(TypeError, match=r"sessionmaker\(engine\)|Inbox needs an Engine"):
        inbox_of(database)
    if not isinstance(database, AsyncEngine) and not (isinstance(database, async_sessionmaker)):
        with pytest.raises(TypeError, match="AsyncInbox needs an AsyncEngine"):
            inbox_of(database, AsyncInbox)


# -- a handler that ends the transaction -------------------------------------------------------------------------------


WAYS: dict[str, Callable[[Any], object]] = {
    "commit": lambda handle: handle.commit(),
    "rollback": lambda handle: handle.rollback(),
    "close": lambda handle: handle.close(),
    "caught commit": lambda handle: contextlib.suppress(TransactionBroken).__enter__() or suppressed(handle),
}


def suppressed(handle: Any) -> None:
    with contextlib.suppress(TransactionBroken):
        handle.commit()


@pytest.mark.parametrize("kind", ["engine", "sessionmaker"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", [True, False])
def test_a_handler_that_ends_its_transaction_is_put_aside_with_nothing_done(
    engine: Engine, kind: str, way: str, fails: bool
) -> None:
    inbox = inbox_of(engine if kind == "engine" else sessionmaker(engine))

    def handle(handle: Any, taken: Message) -> None:
        do(handle, "first half")
        WAYS[way](handle)
        with contextlib.suppress(TransactionBroken, SQLAlchemyError):
            do(handle, "second half")
        if fails:
            raise RuntimeError("after the commit")

    assert inbox.take(handle, message("e-1")) is Outcome.QUARANTINED
    assert done(engine) == []
    assert inbox.take(handle, message("e-1")) is Outcome.DUPLICATE


@pytest.mark.parametrize("fails", [True, False])
def test_a_handler_that_has_committed_its_claim_through_the_driver_is_put_aside(engine: Engine, fails: bool) -> None:
    inbox = inbox_of(engine)

    def handle(connection: Connection, taken: Message) -> None:
        do(connection, "first half")
        driver: Any = connection.connection.driver_connection
        driver.commit()
        if fails:
            do(connection, "second half")

    assert inbox.take(handle, message("e-1")) is Outcome.QUARANTINED
    assert done(engine) == ["first half"]
    assert "TransactionBroken" in held(engine)[0]


# -- `once` ------------------------------------------------------------------------------------------------------------


def test_a_commit_inside_of_once_loses_nothing(engine: Engine) -> None:
    def book(is_careless: bool) -> Outcome:
        with Session(engine) as session, session.begin():
            with once(session, consumer="billing", message_id="e-1") as first:
                session.add(Effect(name="first half"))
                if is_careless:
                    session.commit()
                session.add(Effect(name="second half"))
                if is_careless:
                    raise RuntimeError
            return first

    with pytest.raises((TransactionBroken, SQLAlchemyError)):
        book(True)
    assert book(False) is Outcome.ACCEPTED
    assert done(engine) == ["first half", "second half"]


def test_an_error_that_is_caught_outside_of_once_is_no_done_event(engine: Engine) -> None:
    with engine.connect() as connection:
        with contextlib.suppress(RuntimeError), once(connection, consumer="billing", message_id="e-1"):
            raise RuntimeError
        with pytest.raises(TransactionBroken, match="roll the transaction back"):
            connection.commit()
        connection.rollback()
        with once(connection, consumer="billing", message_id="e-1") as first:
            assert first
            do(connection, "e-1")
        connection.commit()
        # A duplicate has no effect that could be lost.
        with contextlib.suppress(RuntimeError), once(connection, consumer="billing", message_id="e-1"):
            raise RuntimeError
        do(connection, "more")
        connection.commit()
    assert done(engine) == ["e-1", "more"]


# -- with coroutines ---------------------------------------------------------------------------------------------------


def asynchronous(engine: Engine) -> AsyncEngine:
    driver = "sqlite+aiosqlite" if engine.dialect.name == "sqlite" else "postgresql+psycopg"
    made = create_async_engine(make_url(engine.url).set(drivername=driver))
    if "sqlite" in driver:
        begin_immediately(made.sync_engine)
    return made


async def test_coroutines_with_sessions_are_looked_after_in_the_same_way(engine: Engine) -> None:
    async def add(session: AsyncSession, taken: Message) -> None:
        session.add(Effect(name="added"))

    async def commit(session: AsyncSession, taken: Message) -> None:
        await session.execute(insert(effects), {"name": "first half"})
        await session.commit()
        raise RuntimeError

    async def unflushed(session: AsyncSession, taken: Message) -> None:
        own = AsyncSession(await session.connection())
        own.add(Effect(name="never"))
        await own.close()

    made = asynchronous(engine)
    maker = async_sessionmaker(made)
    inbox = inbox_of(maker, AsyncInbox)
    assert await inbox.take(add, message("e-1")) is Outcome.ACCEPTED
    assert await inbox.take(add, message("e-1")) is Outcome.DUPLICATE
    assert await inbox.take(commit, message("e-2")) is Outcome.QUARANTINED
    assert await inbox.take(unflushed, message("e-3")) is Outcome.QUARANTINED
    async with maker() as session:
        with contextlib.suppress(RuntimeError):
            async with once_async(session, consumer="billing", message_id="e-4"):
                raise RuntimeError
        with pytest.raises(TransactionBroken):
            await session.commit()
    async with made.connect() as connection:
        with pytest.raises(TransactionBroken):
            await commit_inside(connection)
    await made.dispose()
    assert done(engine) == ["added"]


async def commit_inside(connection: Any) -> None:
    async with once_async(connection, consumer="billing", message_id="e-5"):
        await connection.commit()


# -- what the log says -------------------------------------------------------------------------------------------------


def test_each_attempt_that_fails_is_one_line_with_its_traceback(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_connection: Connection, taken: Message) -> None:
        raise RuntimeError("cannot book")

    with caplog.at_level(logging.WARNING, "semel.inbox"):
        inbox_of(engine).take(handle, message("e-1"))
        inbox_of(engine).take(handle, message("orders:0:17"))
    lines = [(one.levelname, one.getMessage(), bool(one.exc_info)) for one in caplog.records]
    assert lines[:3] == [
        ("WARNING", "attempt 1 of 2 to handle event e-1 at offset 7 of orders:0 has failed", True),
        ("WARNING", "attempt 2 of 2 to handle event e-1 at offset 7 of orders:0 has failed", True),
        (
            "ERROR",
            "put aside event e-1 at offset 7 of orders:0: RuntimeError: cannot book; see `semel inbox quarantine list`",
            False,
        ),
    ]
    assert [(level, has_traceback) for level, _, has_traceback in lines[3:]] == [("ERROR", True)]
    with engine.begin() as connection:
        quarantine.retry(connection, [1])
    caplog.clear()
    inbox_of(engine).retry_due(handle)
    assert [(one.levelname, bool(one.exc_info)) for one in caplog.records] == [("ERROR", True)]
