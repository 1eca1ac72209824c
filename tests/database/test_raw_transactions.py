"""A block that needs the transaction of a driver's own connection raises if that has ended, and refuses its commit."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, make_url, select

from semel.database import TransactionBroken, engine_of, keep_open, kept_open

metadata = MetaData()
numbers = Table("numbers", metadata, Column("number", Integer, primary_key=True))


class Failure(Exception):
    pass


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    metadata.create_all(made)
    yield made
    made.dispose()


def stored(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(numbers.c.number)))


def is_there(connection: Connection) -> bool:
    return connection.scalar(select(numbers.c.number).where(numbers.c.number == 1)) is not None


def raw_of(url: str) -> Any:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return psycopg.connect(url)
    connection = sqlite3.connect(str(parsed.database), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def commit_and_begin(raw: Any) -> None:
    raw.commit()
    if isinstance(raw, sqlite3.Connection):
        raw.execute("BEGIN IMMEDIATE")


def roll_back_and_begin(raw: Any) -> None:
    raw.rollback()
    if isinstance(raw, sqlite3.Connection):
        raw.execute("BEGIN IMMEDIATE")


ENDING_RAW: dict[str, Callable[[Any], Any]] = {
    "commit": lambda raw: raw.commit(),
    "rollback": lambda raw: raw.rollback(),
    "COMMIT": lambda raw: raw.execute("COMMIT"),
    "commit and begin": commit_and_begin,
    "roll back and begin": roll_back_and_begin,
}


def end_in_block(raw: Any, way: str) -> None:
    with kept_open(raw, is_there):
        ENDING_RAW[way](raw)
        if way != "COMMIT":
            raw.execute("INSERT INTO numbers VALUES (2)")


@pytest.mark.parametrize("way", ENDING_RAW)
def test_the_end_of_a_block_tells_that_a_drivers_transaction_is_another(url: str, engine: Engine, way: str) -> None:
    with contextlib.closing(raw_of(url)) as raw:
        raw.execute("INSERT INTO numbers VALUES (1)")
        with pytest.raises(TransactionBroken):
            end_in_block(raw, way)
        raw.rollback()


def test_a_drivers_transaction_may_have_savepoints(url: str, engine: Engine) -> None:
    with contextlib.closing(raw_of(url)) as raw:
        raw.execute("INSERT INTO numbers VALUES (1)")
        held = keep_open(raw)
        raw.execute("SAVEPOINT own")
        raw.execute("INSERT INTO numbers VALUES (2)")
        raw.execute("ROLLBACK TO own")
        raw.execute("RELEASE own")
        held.check()
        raw.execute("INSERT INTO numbers VALUES (3)")
        held.check()
        held.release()
        raw.commit()
    assert stored(engine) == [1, 3]


def test_a_drivers_commit_fails_after_an_exception_has_left_the_block(url: str, engine: Engine) -> None:
    with contextlib.closing(raw_of(url)) as raw:
        raw.execute("INSERT INTO numbers VALUES (1)")
        with contextlib.suppress(Failure), kept_open(raw, is_there):
            raise Failure
        raw.execute("INSERT INTO numbers VALUES (2)")
        with pytest.raises((sqlite3.DatabaseError, psycopg.errors.UniqueViolation)):
            raw.commit()
        raw.rollback()
        if "sqlite" in url:
            raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO numbers VALUES (3)")
        raw.commit()
    assert stored(engine) == [3]


def test_a_drivers_commit_works_after_a_rollback_to_a_savepoint_around_the_claim(url: str, engine: Engine) -> None:
    with contextlib.closing(raw_of(url)) as raw:
        raw.execute("SAVEPOINT around")
        raw.execute("INSERT INTO numbers VALUES (1)")
        with contextlib.suppress(Failure), kept_open(raw, is_there):
            raise Failure
        raw.execute("ROLLBACK TO around")
        raw.execute("INSERT INTO numbers VALUES (2)")
        raw.commit()
    assert stored(engine) == [2]


def test_a_drivers_commit_fails_after_a_rollback_to_a_savepoint_from_after_the_failure(
    url: str, engine: Engine
) -> None:
    """The claim is still in the transaction, and its work is not done."""
    with contextlib.closing(raw_of(url)) as raw:
        raw.execute("INSERT INTO numbers VALUES (1)")
        with contextlib.suppress(Failure), kept_open(raw, is_there):
            raise Failure
        raw.execute("SAVEPOINT later")
        raw.execute("INSERT INTO numbers VALUES (2)")
        raw.execute("ROLLBACK TO later")
        with pytest.raises((sqlite3.DatabaseError, psycopg.errors.UniqueViolation)):
            raw.commit()
        raw.rollback()
    assert stored(engine) == []
