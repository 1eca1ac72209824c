"""What commits is the transaction in which semel has written, whole; otherwise nothing does, and an error says so."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, insert, make_url, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from semel.database import (
    CommitTooEarly,
    EffectFailed,
    OpenTransaction,
    TransactionBroken,
    begin_immediately,
    engine_of,
    is_passing,
    kept_open,
    within,
    within_async,
)

metadata = MetaData()
numbers = Table("numbers", metadata, Column("number", Integer, primary_key=True))

ROLLING_BACK = (
    "CREATE TRIGGER refusing BEFORE INSERT ON numbers WHEN new.number = 13 BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    metadata.create_all(made)
    yield made
    made.dispose()


def add(connection: Any, number: int) -> None:
    connection.execute(insert(numbers), {"number": number})


def stored(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(numbers.c.number)))


def is_there(connection: Connection) -> bool:
    return connection.scalar(select(numbers.c.number).where(numbers.c.number == 1)) is not None


@contextlib.contextmanager
def refused() -> Iterator[pytest.ExceptionInfo[TransactionBroken]]:
    with pytest.raises(TransactionBroken) as caught:
        yield caught


def of_sqlite(url: str) -> None:
    if "sqlite" not in url:
        pytest.skip("PostgreSQL does not do that")


def of_postgresql(url: str) -> None:
    if "postgresql" not in url:
        pytest.skip("SQLite does not do that")


# -- what the database ends --------------------------------------------------------------------------------------------


def by_trigger(connection: Any) -> None:
    add(connection, 13)


def by_conflict(connection: Any) -> None:
    for _ in range(2):
        connection.execute(text("INSERT OR ROLLBACK INTO numbers VALUES (7)"))


UNDOING: dict[str, Callable[[Any], None]] = {"trigger": by_trigger, "conflict": by_conflict}


@pytest.mark.parametrize("way", UNDOING)
def test_after_sqlite_has_rolled_back_nothing_more_is_written(url: str, engine: Engine, way: str) -> None:
    of_sqlite(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(ROLLING_BACK)
    for attempt in range(3):
        with refused(), engine.begin() as connection:
            with within(connection):
                add(connection, 1)
            with contextlib.suppress(DBAPIError):
                UNDOING[way](connection)
            with contextlib.suppress(TransactionBroken):
                add(connection, 100 + attempt)
            add(connection, 200 + attempt)
    assert stored(engine) == []


@pytest.mark.parametrize("way", UNDOING)
def test_after_sqlite_has_rolled_back_the_commit_fails(url: str, engine: Engine, way: str) -> None:
    of_sqlite(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(ROLLING_BACK)
    with refused() as caught, engine.begin() as connection:
        with within(connection):
            add(connection, 1)
        with contextlib.suppress(DBAPIError):
            UNDOING[way](connection)
    assert isinstance(caught.value.__cause__, DBAPIError), "the error that has undone it is the cause"
    # The connection is as good as new.
    with engine.begin() as connection, within(connection):
        add(connection, 2)
    assert stored(engine) == [2]


def test_a_session_writes_nothing_more_either(url: str, engine: Engine) -> None:
    of_sqlite(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(ROLLING_BACK)
    with Session(engine) as session:
        with within(session) as connection:
            add(connection, 1)
        with contextlib.suppress(DBAPIError):
            by_trigger(session)
        with pytest.raises(TransactionBroken):
            add(session, 2)
        session.rollback()
        with within(session) as connection:
            add(connection, 3)
        session.commit()
    assert stored(engine) == [3]


def test_a_full_disk_passes_also_where_its_error_was_caught(url: str, engine: Engine) -> None:
    of_sqlite(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE pages (page BLOB)")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA cache_size = 1")
        connection.exec_driver_sql("PRAGMA max_page_count = 200")
        connection.rollback()
        with refused() as caught, connection.begin():
            with within(connection):
                add(connection, 1)
            with contextlib.suppress(DBAPIError):
                connection.exec_driver_sql("INSERT OR ROLLBACK INTO pages VALUES (zeroblob(4000000))")
            add(connection, 2)
        assert is_passing(caught.value)
    assert stored(engine) == []


def test_a_caught_error_of_postgresql_makes_the_commit_fail(url: str, engine: Engine) -> None:
    of_postgresql(url)
    with refused(), engine.begin() as connection:
        with within(connection):
            add(connection, 1)
        with contextlib.suppress(DBAPIError):
            add(connection, 1)
    assert stored(engine) == []


def test_an_error_in_a_savepoint_may_be_caught(engine: Engine) -> None:
    with engine.begin() as connection:
        with within(connection):
            add(connection, 1)
        with contextlib.suppress(DBAPIError), connection.begin_nested():
            add(connection, 1)
        held = OpenTransaction(connection)
        with contextlib.suppress(DBAPIError), connection.begin_nested():
            add(connection, 1)
        held.check()
        held.release()
    assert stored(engine) == [1]


# -- what the application ends too early -------------------------------------------------------------------------------


def in_sql(statement: str) -> Callable[[Connection], None]:
    def end(connection: Connection) -> None:
        connection.exec_driver_sql(statement)

    return end


def by_driver(method: str) -> Callable[[Connection], None]:
    def end(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        getattr(driver, method)()

    return end


def by_session(connection: Connection) -> None:
    with Session(connection) as session:
        add(session, 9)
        session.rollback()


ENDING: dict[str, Callable[[Connection], object]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "COMMIT": in_sql("COMMIT"),
    "end": in_sql(" /* so */ end"),
    "ROLLBACK": in_sql("-- why?\nROLLBACK"),
    "text": lambda connection: connection.execute(text("COMMIT")),
    "driver's commit": by_driver("commit"),
    "driver's rollback": by_driver("rollback"),
    "session's rollback": by_session,
}
ENDING_POSTGRESQL: dict[str, Callable[[Connection], object]] = {
    "chain": in_sql("COMMIT AND CHAIN"),
    "rollback and chain": in_sql("ROLLBACK AND CHAIN"),
    "two statements": in_sql("COMMIT; BEGIN"),
    "after a statement": in_sql("INSERT INTO numbers VALUES (5); COMMIT; BEGIN"),
}
# Nothing tells that a driver's connection commits, before it has.
COMMITTED_UNSEEN = ("driver's commit", "after a statement")


@pytest.mark.parametrize("way", [*ENDING, *ENDING_POSTGRESQL])
def test_a_transaction_that_has_to_stay_open_ends_with_an_error(url: str, engine: Engine, way: str) -> None:
    if way in ENDING_POSTGRESQL:
        of_postgresql(url)
    with refused(), engine.begin() as connection:
        add(connection, 1)
        with kept_open(connection, is_there):
            (ENDING | ENDING_POSTGRESQL)[way](connection)
    if way not in COMMITTED_UNSEEN:
        assert stored(engine) == []


@pytest.mark.parametrize("way", [*ENDING, *ENDING_POSTGRESQL])
def test_nothing_is_written_after_it_has_ended(url: str, engine: Engine, way: str) -> None:
    if way in ENDING_POSTGRESQL:
        of_postgresql(url)
    with contextlib.suppress(TransactionBroken, SQLAlchemyError), engine.connect() as connection:
        add(connection, 1)
        with kept_open(connection, is_there):
            with contextlib.suppress(TransactionBroken):
                (ENDING | ENDING_POSTGRESQL)[way](connection)
            with contextlib.suppress(TransactionBroken, SQLAlchemyError):
                add(connection, 2)
            with contextlib.suppress(TransactionBroken, SQLAlchemyError):
                connection.rollback()
            with contextlib.suppress(TransactionBroken, SQLAlchemyError):
                add(connection, 3)
            connection.commit()
    assert not {2, 3} & set(stored(engine))


@pytest.mark.parametrize("way", ["commit", "rollback", "close"])
def test_a_session_may_not_end_it_either(engine: Engine, way: str) -> None:
    with refused(), Session(engine) as session:
        add(session, 1)
        with kept_open(session, is_there):
            with contextlib.suppress(CommitTooEarly):
                getattr(session, way)()
            with contextlib.suppress(SQLAlchemyError):
                add(session, 2)
                session.commit()
    assert stored(engine) == []


def test_savepoints_and_sessions_within_it_are_fine(engine: Engine) -> None:
    with engine.begin() as connection:
        add(connection, 1)
        with kept_open(connection, is_there):
            with connection.begin_nested():
                add(connection, 2)
            nested = connection.begin_nested()
            add(connection, 3)
            nested.rollback()
            with Session(connection) as session:
                add(session, 4)
                session.commit()
                with session.begin_nested():
                    add(session, 5)
                session.commit()
            connection.execute(text("SELECT 'a; COMMIT' -- ; ROLLBACK"))
    assert stored(engine) == [1, 2, 4, 5]


def test_a_procedure_cannot_end_it(url: str, engine: Engine) -> None:
    of_postgresql(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE PROCEDURE ending() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$")
    with refused(), engine.begin() as connection:
        add(connection, 1)
        with kept_open(connection, is_there), contextlib.suppress(DBAPIError):
            connection.exec_driver_sql("CALL ending()")
    assert stored(engine) == []


def test_an_application_may_end_its_transaction_in_sql_after_the_block(url: str) -> None:
    engine = engine_of(url)
    metadata.create_all(engine)
    with engine.connect() as connection:
        with within(connection):
            add(connection, 1)
        with kept_open(connection, is_there):
            add(connection, 2)
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("BEGIN")
        add(connection, 3)
        connection.commit()
    assert stored(engine) == [1, 2, 3]


def test_on_autocommit_the_application_ends_its_transaction_in_sql(url: str) -> None:
    if "mysql" in url:
        pytest.skip("an engine on autocommit is refused")
    engine = engine_of(url)
    metadata.create_all(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if "postgresql" in url:
            connection.exec_driver_sql("BEGIN")
        with within(connection):
            add(connection, 1)
        with kept_open(connection, is_there):
            add(connection, 2)
        connection.exec_driver_sql("COMMIT")
        if "postgresql" in url:
            add(connection, 3)
            connection.exec_driver_sql("BEGIN")
            add(connection, 4)
            with pytest.raises(TransactionBroken), kept_open(connection, is_there):
                connection.exec_driver_sql("COMMIT")
    assert stored(engine) == ([1, 2, 3] if "postgresql" in url else [1, 2])


# -- an exception that leaves the block --------------------------------------------------------------------------------


class Failure(Exception):
    pass


def test_an_exception_that_left_the_block_makes_the_commit_fail(engine: Engine) -> None:
    with engine.connect() as connection:
        add(connection, 1)
        with contextlib.suppress(Failure), kept_open(connection, is_there):
            add(connection, 2)
            raise Failure
        add(connection, 3)
        with pytest.raises(EffectFailed):
            connection.commit()
        with contextlib.suppress(SQLAlchemyError):
            connection.commit()
        connection.rollback()
        add(connection, 4)
        connection.commit()
    assert stored(engine) == [4]


def test_a_commit_in_sql_is_refused_as_often_as_it_is_tried_after_an_exception_has_left_the_block(
    engine: Engine,
) -> None:
    """A program that tries again would commit the claim without its work."""
    with engine.connect() as connection:
        add(connection, 1)
        with contextlib.suppress(Failure), kept_open(connection, is_there):
            raise Failure
        for _ in range(2):
            with pytest.raises(EffectFailed):
                connection.exec_driver_sql("COMMIT")
        connection.rollback()
    assert stored(engine) == []


def test_an_exception_that_left_a_savepoint_with_the_claim_may_be_caught(engine: Engine) -> None:
    with engine.begin() as connection:
        with contextlib.suppress(Failure), connection.begin_nested():
            add(connection, 1)
            with kept_open(connection, is_there):
                raise Failure
        add(connection, 2)
    assert stored(engine) == [2]


# -- asynchronous connections ------------------------------------------------------------------------------------------


def asynchronous(url: str, driver: str) -> AsyncEngine:
    if driver.partition("+")[0] not in url:
        pytest.skip("another database")
    engine = create_async_engine(make_url(url).set(drivername=driver))
    if "sqlite" in driver:
        begin_immediately(engine.sync_engine)
    return engine


DRIVERS = ["sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("way", ["commit", "rollback", "COMMIT", "ROLLBACK"])
async def test_an_asynchronous_transaction_ends_with_an_error(url: str, engine: Engine, driver: str, way: str) -> None:
    made = asynchronous(url, driver)
    async with made.connect() as connection:
        await within_async(connection, lambda one: add(one, 1))
        held = await connection.run_sync(OpenTransaction)
        with contextlib.suppress(TransactionBroken):
            await (connection.exec_driver_sql(way) if way.isupper() else getattr(connection, way)())
        with contextlib.suppress(TransactionBroken, SQLAlchemyError):
            await connection.execute(insert(numbers), {"number": 2})
            await connection.commit()
        with pytest.raises(TransactionBroken):
            await connection.run_sync(lambda _: held.check())
        held.release()
        await connection.rollback()
    await made.dispose()
    assert stored(engine) == []


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", [AsyncConnection, AsyncSession])
async def test_an_asynchronous_commit_fails_after_a_caught_error(
    url: str, engine: Engine, driver: str, kind: type
) -> None:
    with engine.begin() as connection:
        if "sqlite" in url:
            connection.exec_driver_sql(ROLLING_BACK)
        else:
            add(connection, 13)
    made = asynchronous(url, driver)
    handle: Any = made.connect() if kind is AsyncConnection else AsyncSession(made)
    async with handle as given:
        await within_async(given, lambda one: add(one, 1))
        with contextlib.suppress(DBAPIError):
            await given.execute(insert(numbers), {"number": 13})
        with pytest.raises(TransactionBroken):
            await given.commit()
        await given.rollback()
        await within_async(given, lambda one: add(one, 2))
        await given.commit()
    await made.dispose()
    assert stored(engine) == ([2] if "sqlite" in url else [2, 13])
