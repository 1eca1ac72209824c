"""`semel.schema.make` brings a database to where semel needs it, once, whoever is at it, too; or says why it cannot."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, inspect, text

from databases import async_engine_of
from semel import schema
from semel.database import NotImmediate, NotInTransaction, engine_of
from semel.inbox import once
from semel.schema import tables
from semel.schema.tables import ROOMS, Made, Room
from semel.testing.postgres import PostgresServer

SHOPS = MetaData()
SHOP = Table("semel_shop", SHOPS, Column("name", String(40), primary_key=True))


def add_town(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE semel_shop ADD COLUMN town TEXT NOT NULL DEFAULT 'Ulm'"))


FIRST = Room("shop", SHOPS)
LATER_SHOPS = MetaData()
Table(
    *("semel_shop", LATER_SHOPS, Column("name", String(40), primary_key=True)),
    Column("town", String(40), nullable=False),
)
Table("semel_shop_doors", LATER_SHOPS, Column("name", String(40), primary_key=True))
SECOND = Room("shop", LATER_SHOPS, (add_town,))


def knowing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a semel with this room alone."""
    monkeypatch.setattr(tables, "ROOMS", (room,))


def table_names(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def noted_versions(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {row.room: row.version for row in connection.execute(tables.versions.select())}


def test_all_tables_are_made_once_and_noted(url: str) -> None:
    engine = engine_of(url)
    first = schema.make(engine)
    assert [made.room for made in first] == [room.name for room in ROOMS]
    assert table_names(engine) == {table.name for table in schema.metadata.sorted_tables}
    assert {name for made in first for name in made.tables} == table_names(engine) - {"semel_schema"}
    assert [(made.version_before, made.tables) for made in schema.make(engine)] == [(1, ()) for _ in ROOMS]
    assert noted_versions(engine) == {room.name: 1 for room in ROOMS}
    schema.check(engine)
    with engine.begin() as connection, once(connection, consumer="billing", message_id="e-1") as outcome:
        assert outcome


def test_one_room_can_be_made_without_the_others(url: str) -> None:
    engine = engine_of(url)
    schema.make(engine, "http")
    assert table_names(engine) == {"semel_schema", "semel_http_keys", "semel_steps"}
    schema.check(engine, "http")
    with pytest.raises(schema.SchemaDiffers, match=r"no table semel_inbox: run semel schema --database URL"):
        schema.check(engine, "inbox")
    with pytest.raises(schema.UnknownRoom, match="'htpp' has no tables"):
        schema.make(engine, "htpp")


def test_tables_that_create_all_has_made_are_taken_as_they_are(url: str) -> None:
    engine = engine_of(url)
    schema.metadata.create_all(engine)
    schema.check(engine)
    assert noted_versions(engine) == {}
    assert {(made.version_before, made.tables) for made in schema.make(engine)} == {(None, ())}
    assert noted_versions(engine) == {room.name: 1 for room in ROOMS}


def test_tables_are_made_in_the_callers_own_transaction(url: str) -> None:
    engine = engine_of(url)
    with engine.connect() as connection:
        with connection.begin() as transaction:
            schema.make(connection, "http")
            schema.check(connection, "http")
            transaction.rollback()
        # MySQL commits a table as soon as it is made.
        assert inspect(connection).has_table("semel_http_keys") == (engine.dialect.name == "mysql")


def test_an_application_on_asyncio_makes_and_checks_them_on_its_connection(url: str) -> None:
    async def start() -> None:
        engine = async_engine_of(url)
        async with engine.begin() as connection:
            await connection.run_sync(schema.make, "inbox")
        async with engine.connect() as connection:
            await connection.run_sync(schema.check, "inbox")
        await engine.dispose()

    asyncio.run(start())
    schema.check(engine_of(url), "inbox")


def test_a_database_that_cannot_store_every_id_is_refused(postgres: PostgresServer) -> None:
    engine = engine_of(postgres.new_database("LATIN1"))
    for call in (schema.make, schema.check):
        with pytest.raises(schema.SchemaDiffers, match="encoding of this database is LATIN1"):
            call(engine)
    assert table_names(engine) == set()


def test_who_may_only_read_checks_them_and_finds_nothing_to_make(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    schema.make(engine_of(url))
    # Roles belong to the server, which others may use at the same time.
    role = f"reader_of_{engine_of(url).url.database}"
    with engine_of(url).begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"GRANT SELECT ON semel_schema TO {role}"))
    reader = engine_of(url, connect_args={"options": f"-c role={role}"})
    schema.check(reader)
    assert {made.tables for made in schema.make(reader)} == {()}


def test_older_tables_are_brought_up_with_their_rows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(url)
    knowing(FIRST, monkeypatch)
    schema.make(engine)
    with engine.begin() as connection:
        connection.execute(SHOP.insert().values(name="apples"))
    knowing(SECOND, monkeypatch)
    with pytest.raises(schema.SchemaDiffers, match=r"are of version 1, and this semel needs version 2: run semel"):
        schema.check(engine)
    assert schema.make(engine) == [Made("shop", 2, 1, ("semel_shop_doors",))]
    schema.check(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT name, town FROM semel_shop")).all() == [("apples", "Ulm")]


def test_newer_tables_are_refused_and_left_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(url)
    knowing(SECOND, monkeypatch)
    schema.make(engine)
    knowing(FIRST, monkeypatch)
    for work in (schema.make, schema.check):
        with pytest.raises(schema.SchemaDiffers, match=r"are of version 2, and this semel knows them up to version 1"):
            work(engine)
    assert noted_versions(engine) == {"shop": 2}


def test_tables_of_nobody_knows_whom_are_compared(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "mysql" in url:
        pytest.skip("it commits each table as it is made")
    engine = engine_of(url)
    SHOPS.create_all(engine)
    knowing(SECOND, monkeypatch)
    with pytest.raises(schema.SchemaDiffers, match=r"semel_shop of this database lacks the column town"):
        schema.make(engine)
    assert table_names(engine) == {"semel_shop"}
    with engine.begin() as connection:
        add_town(connection)
    schema.make(engine)
    knowing(replace(SECOND, metadata=SHOPS), monkeypatch)
    with pytest.raises(schema.SchemaDiffers, match=r"semel_shop of this database has a column town that this semel"):
        schema.check(engine)


def test_a_step_that_fails_leaves_what_was_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "mysql" in url:
        pytest.skip("it commits each table as it is made")

    def fail(connection: Connection) -> None:
        add_town(connection)
        raise ZeroDivisionError

    engine = engine_of(url)
    knowing(FIRST, monkeypatch)
    schema.make(engine)
    knowing(replace(SECOND, steps=(fail,)), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        schema.make(engine)
    knowing(FIRST, monkeypatch)
    schema.check(engine)


def test_of_many_at_once_one_makes_the_tables_and_one_takes_the_step(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 4
    barrier = Barrier(threads)

    def make(_: int) -> list[Made]:
        engine = engine_of(url)
        barrier.wait()
        return schema.make(engine)

    with ThreadPoolExecutor(threads) as pool:
        knowing(FIRST, monkeypatch)
        assert sum(len(made.tables) for [made] in pool.map(make, range(threads))) == 1
        knowing(SECOND, monkeypatch)
        assert sorted(made.version_before or 0 for [made] in pool.map(make, range(threads))) == [1, 2, 2, 2]


def test_a_sqlite_engine_that_would_make_half_of_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises((NotImmediate, NotInTransaction)):
        schema.make(create_engine(f"sqlite:///{tmp_path}/plain.db"))
