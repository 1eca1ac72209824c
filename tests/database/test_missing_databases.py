"""A database or a user that does not exist is no outage: a program says so at once, and waits for no such thing."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from semel.database import engine_of, is_passing
from semel.database.errors import one_line
from semel.outbox import Relay
from semel.testing.ports import free_port
from semel.testing.postgres import PostgresServer


def error_of(url: URL) -> DBAPIError:
    """Of a connection to this database that cannot be made."""
    connect = connect_async if url.get_dialect().is_async else lambda url: engine_of(url).connect()
    with pytest.raises(DBAPIError) as raised:
        connect(url)
    return raised.value


def connect_async(url: URL) -> None:
    async def connect() -> None:
        async with create_async_engine(url).connect():
            pass

    asyncio.run(connect())


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg"])
def test_what_does_not_exist_is_not_waited_for_as_a_server_that_is_away_is(
    postgres: PostgresServer, driver: str
) -> None:
    url = make_url(postgres.url()).set(drivername=driver)
    assert not is_passing(error_of(url.set(database="nowhere")))
    assert not is_passing(error_of(url.set(username="nobody_there")))
    if driver == "postgresql+psycopg":
        assert is_passing(error_of(url.set(port=free_port())))


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg"])
def test_what_postgresql_says_is_told_in_its_own_words(postgres: PostgresServer, driver: str) -> None:
    """SQLAlchemy puts the class of asyncpg's error before the text of the server."""

    async def ask() -> None:
        async with create_async_engine(url).connect() as connection:
            await connection.exec_driver_sql("SELECT * FROM nothing")

    url = make_url(postgres.url()).set(drivername=driver)
    with pytest.raises(DBAPIError) as raised:
        asyncio.run(ask())
    assert one_line(raised.value) == 'relation "nothing" does not exist'


@pytest.mark.parametrize("driver", ["mysql+pymysql", "mysql+aiomysql"])
def test_what_mysql_says_is_told_in_its_own_words(driver: str) -> None:
    """And not as the tuple of a number and a text that these drivers make of it."""
    error = error_of(make_url(f"{driver}://app:secret@127.0.0.1:{free_port()}/shop"))
    assert one_line(error).startswith("Can't connect to MySQL server on '127.0.0.1'")


def test_a_relay_ends_if_its_database_does_not_exist(postgres: PostgresServer) -> None:
    engine = engine_of(make_url(postgres.url()).set(database="nowhere"))
    with pytest.raises(DBAPIError, match='database "nowhere" does not exist'):
        Relay(engine, f"127.0.0.1:{free_port()}").run()
