"""The reaper takes what has expired and leaves what somebody holds."""

import asyncio
from typing import Any

import pytest
from conftest_http import async_engine_of
from sqlalchemy import Engine, func, select

from semel.database import engine_of
from semel.http import metadata, reap, reap_async
from semel.http.claims import NO_LEASE, Accepted, Fenced, Term, claim, keep, name_of
from semel.http.tables import keys
from semel.steps.records import finish_step, noted_step
from semel.steps.tables import steps
from semel.testing.postgres import PostgresServer


def rows(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def test_expired_keys_and_their_steps_go_and_the_rest_stays(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(7):
            name = name_of("anna", f"k-{number}")
            term = Term(100 + number, 0, now_ms=0)
            assert claim(connection, name, "f", term) == Accepted(0)
            finish_step(connection, name, "charge", "1")
            keep(connection, name, 0, None, 201, term)
        assert claim(connection, name_of("anna", "held"), "f", Term(100, 1000, now_ms=0)) == Accepted(0)
    assert reap(engine, 99) == 0
    assert reap(engine, 104, rows_max=2) == 5
    assert (rows(engine, keys), rows(engine, steps)) == (3, 2)
    assert reap(engine, 1000) == 3
    assert (rows(engine, keys), rows(engine, steps)) == (0, 0)


def test_the_reaper_of_an_asynchronous_engine_takes_the_same(url: str, engine: Engine) -> None:
    async def work() -> int:
        database = async_engine_of(url)
        with pytest.raises(TypeError, match="reap_async"):
            reap(database)
        reaped = await reap_async(database)
        await database.dispose()
        return int(reaped)

    with engine.begin() as connection:
        term = Term(100, NO_LEASE, now_ms=0)
        claim(connection, name_of("anna", "old"), "f", term)
        keep(connection, name_of("anna", "old"), 0, None, 201, term)
    assert asyncio.run(work()) == 1
    assert rows(engine, keys) == 0


def test_the_reaper_leaves_what_a_handler_works_on_and_waits_for_nobody(postgres: PostgresServer) -> None:
    """If it waited, requests with other expired keys would wait for it. Who waits for a lock here fails."""
    engine = engine_of(postgres.new_database(), connect_args={"options": "-c lock_timeout=2000"})
    metadata.create_all(engine)
    old, new = Term(100, NO_LEASE, now_ms=0), Term(1000, NO_LEASE, now_ms=200)
    names = [name_of("anna", key) for key in ("a", "b", "c")]
    with engine.begin() as connection:
        for name in names:
            claim(connection, name, "f", old)
            keep(connection, name, 0, None, 201, old)
    with engine.begin() as handler:
        assert claim(handler, names[1], "f", new) == Accepted(1)
        assert reap(engine, 300, rows_max=2) == 2
    assert rows(engine, keys) == 1
    assert reap(engine, 300) == 0
    assert reap(engine, 1200) == 1
    engine.dispose()


def test_an_expired_key_begins_anew_without_the_steps_of_its_former_life(engine: Engine) -> None:
    name = name_of("anna", "k")
    with engine.begin() as connection:
        assert claim(connection, name, "f", Term(100, 50, now_ms=0)) == Accepted(0)
        finish_step(connection, name, "charge", "1")
        assert claim(connection, name, "f", Term(100, 50, now_ms=60)) == Accepted(1)
        assert noted_step(connection, name, "charge") == "1"
        assert claim(connection, name, "other", Term(100, 50, now_ms=200)) == Accepted(2)
        assert noted_step(connection, name, "charge") is None
        with pytest.raises(Fenced, match="took it over"):
            keep(connection, name, 1, None, 201, Term(100, 50, now_ms=200))
