"""Statements go into the caller's own transaction, and into nothing else."""

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import psycopg.rows
import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, create_engine, insert, literal, make_url, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from semel.database import (
    NotImmediate,
    NotInTransaction,
    UnknownConnection,
    UnknownDatabase,
    begin_immediately,
    engine_of,
    within,
    within_async,
)

numbers = Table("numbers", MetaData(), Column("number", Integer, primary_key=True))


def add(connection: Connection, number: int) -> None:
    connection.execute(insert(numbers), {"number": number})


@pytest.fixture
def stored(url: str) -> Callable[[], list[int]]:
    """What another connection sees."""
    engine = engine_of(url)
    numbers.metadata.create_all(engine)

    def see() -> list[int]:
        with engine.connect() as connection:
            return sorted(connection.scalars(select(numbers.c.number)))

    return see


def raw(url: str) -> Any:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return psycopg.connect(url)
    connection = sqlite3.connect(str(parsed.database), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_a_raw_connection_stays_the_callers(url: str, stored: Callable[[], list[int]]) -> None:
    given = raw(url)
    for number in (1, 2):
        with within(given) as connection:
            add(connection, number)
    assert stored() == [] if "postgresql" in url else True
    given.commit()
    assert stored() == [1, 2]
    if "sqlite" in url:
        given.execute("BEGIN IMMEDIATE")
    with within(given) as connection:
        add(connection, 3)
    given.rollback()
    given.close()
    assert stored() == [1, 2]


def test_a_raw_connection_stays_as_its_owner_has_set_it(url: str, stored: Callable[[], list[int]]) -> None:
    given = raw(url)
    is_postgresql = isinstance(given, psycopg.Connection)
    given.row_factory = psycopg.rows.dict_row if is_postgresql else lambda cursor, row: {"as": row}
    own = {
        name: getattr(given, name)
        for name in ("row_factory", "text_factory", "cursor_factory", "_notice_handlers")
        if hasattr(given, name)
    }
    before = len(own.get("_notice_handlers", ()))
    for number in (1, 2, 3):
        with within(given) as connection:
            add(connection, number)
            assert connection.scalar(select(numbers.c.number).where(numbers.c.number == number)) == number
    assert all(getattr(given, name) == value for name, value in own.items())
    # SQLAlchemy adds one to each connection that it makes, and this was one of them time and again.
    assert len(own.get("_notice_handlers", ())) == before
    given.commit()
    assert stored() == [1, 2, 3]


@pytest.mark.parametrize("kind", [psycopg.ClientCursor, psycopg.RawCursor])
def test_cursors_of_another_kind_are_left_to_their_owner(postgres: Any, kind: Any) -> None:
    with psycopg.connect(postgres.new_database(), cursor_factory=kind) as given:
        with within(given) as connection:
            assert connection.scalar(select(literal(7))) == 7
        assert given.cursor_factory is kind


def test_a_connection_and_sessions_of_sqlalchemy_do(url: str, stored: Callable[[], list[int]]) -> None:
    engine = engine_of(url)
    with engine.begin() as given, within(given) as connection:
        add(connection, 1)
    with Session(engine) as session:
        with within(session) as connection:
            add(connection, 2)
        session.commit()
        with within(session) as connection:
            add(connection, 3)
        session.rollback()
    scoped = scoped_session(sessionmaker(engine))
    with within(scoped) as connection:
        add(connection, 4)
    scoped.commit()
    scoped.remove()
    assert stored() == [1, 2, 4]


def asynchronous(url: str, driver: str) -> AsyncEngine:
    engine = create_async_engine(make_url(url).set(drivername=driver))
    if "sqlite" in driver:
        begin_immediately(engine.sync_engine)
    return engine


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg"])
async def test_asynchronous_connections_and_sessions_do(url: str, driver: str, stored: Callable[[], list[int]]) -> None:
    if driver.partition("+")[0] not in url:
        pytest.skip("another database")
    engine = asynchronous(url, driver)
    async with engine.begin() as given:
        await within_async(given, lambda connection: add(connection, 1))
    async with AsyncSession(engine) as session:
        await within_async(session, lambda connection: add(connection, 2))
        await session.commit()
        await within_async(session, lambda connection: add(connection, 3))
        await session.rollback()
    await engine.dispose()
    assert stored() == [1, 2]


def test_a_connection_on_autocommit_is_refused(url: str, stored: Callable[[], list[int]]) -> None:
    with engine_of(url).connect() as connection:
        given = connection.execution_options(isolation_level="AUTOCOMMIT")
        if "postgresql" in url:
            with pytest.raises(NotInTransaction, match="not on autocommit"), within(given):
                pass
    if "postgresql" in url:
        with psycopg.connect(url, autocommit=True) as driver:
            with pytest.raises(NotInTransaction), within(driver):
                pass
            with driver.transaction(), within(driver) as connection:
                add(connection, 1)
        assert stored() == [1]
    else:
        with pytest.raises(NotInTransaction, match="BEGIN IMMEDIATE"):
            within(sqlite3.connect(str(make_url(url).database), isolation_level=None)).__enter__()


def test_a_sqlite_transaction_that_is_not_immediate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    with engine_of(f"sqlite:///{path}").begin() as connection:
        numbers.metadata.create_all(connection)
    given = sqlite3.connect(path, isolation_level=None)
    given.execute("BEGIN")
    given.execute("SELECT * FROM numbers").fetchall()
    with pytest.raises(NotImmediate, match="BEGIN IMMEDIATE"), within(given):
        pass
    plain = sessionmaker(create_engine(f"sqlite:///{path}"))
    with plain.begin() as session, pytest.raises(NotInTransaction, match=r"engine_of\(url\)"), within(session):
        pass


def test_in_memory_there_is_nobody_to_fear() -> None:
    given = sqlite3.connect(":memory:", isolation_level=None)
    given.execute("BEGIN")
    with within(given) as connection:
        numbers.metadata.create_all(connection)
        add(connection, 1)
    assert given.execute("SELECT * FROM numbers").fetchall() == [(1,)]


def test_a_database_made_anew_under_its_name_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    for _ in range(2):
        given = sqlite3.connect(path, isolation_level=None)
        given.execute("PRAGMA journal_mode=WAL")
        given.execute("BEGIN IMMEDIATE")
        with within(given) as connection:
            numbers.metadata.create_all(connection)
            add(connection, 1)
        given.commit()
        given.close()
        path.unlink()


@pytest.mark.parametrize("given", [None, "sqlite://", object()])
def test_what_is_no_connection_is_named(given: Any) -> None:
    with pytest.raises(UnknownConnection, match="is no connection that semel knows"), within(given):
        pass
    with pytest.raises(UnknownConnection):
        asyncio.run(within_async(given, lambda connection: None))


@pytest.mark.parametrize("url", ["oracle://localhost/shop", "nothing"])
def test_a_database_of_another_kind_is_named(url: str) -> None:
    with pytest.raises(UnknownDatabase, match="postgresql://"):
        engine_of(url)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [("postgresql://host/app", "psycopg.*: pip install 'semel\\[postgres\\]'"), ("sqlite+aiosqlite://", "aiosqlite")],
)
def test_a_driver_that_is_missing_is_named_with_the_cure(
    url: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for driver in ("psycopg", "aiosqlite"):
        monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ImportError, match=wanted):
        engine_of(url)


def test_an_engine_for_sqlite_syncs_every_commit(tmp_path: Path) -> None:
    with engine_of(f"sqlite:///{tmp_path}/test.db").connect() as connection:
        for pragma, value in (
            ("journal_mode", "wal"),
            ("synchronous", 2),
            ("foreign_keys", 1),
            ("busy_timeout", 30_000),
        ):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
