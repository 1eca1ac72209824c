"""Where semel's tables are not there, the database's own error ends with the command that makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from semel import http, inbox, offsets, outbox
from semel.database import REMEDY, begin_immediately, engine_of, within, within_async
from semel.inbox import once


def test_the_error_says_which_command_makes_the_tables(url: str) -> None:
    with (
        pytest.raises(DBAPIError) as missed,
        engine_of(url).begin() as connection,
        within(connection),
        once(connection, consumer="billing", message_id="e-1"),
    ):
        pass
    assert missed.value.__notes__ == [REMEDY]


WHAT_LOOKS: dict[str, Callable[[Engine], object]] = {
    "the reaper of the keys": http.reap,
    "the reaper of an inbox": lambda engine: inbox.reap(engine, consumer="billing"),
    "the state of an outbox": lambda engine: outbox.status(engine),
    "the quarantine of an outbox": lambda engine: outbox.quarantine.refused_messages(engine.connect()),
    "the offsets": lambda engine: offsets.next_offsets(engine.connect(), "billing"),
}


@pytest.mark.parametrize("what", WHAT_LOOKS)
def test_whatever_looks_into_the_tables_says_so(url: str, what: str) -> None:
    engine = engine_of(url)
    with pytest.raises(DBAPIError) as missed:
        WHAT_LOOKS[what](engine)
    engine.dispose()
    assert missed.value.__notes__ == [REMEDY]


def test_the_error_of_an_asynchronous_connection_says_so_too(url: str) -> None:
    driver = url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", "postgresql+asyncpg://")

    async def ask() -> None:
        engine = create_async_engine(driver)
        if engine.dialect.name == "sqlite":
            begin_immediately(engine.sync_engine)
        try:
            async with engine.begin() as connection:
                await within_async(connection, lambda sync: sync.execute(text("SELECT * FROM semel_inbox")))
        finally:
            await engine.dispose()

    with pytest.raises(DBAPIError) as missed:
        asyncio.run(ask())
    assert missed.value.__notes__ == [REMEDY]


def test_an_error_of_the_callers_own_is_left_alone(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    begin_immediately(engine)
    for wrong in ("SELECT * FROM payments", "SELECT semel_inbox"):
        with pytest.raises(DBAPIError) as missed, engine.begin() as connection, within(connection):
            connection.execute(text(wrong))
        assert not hasattr(missed.value, "__notes__")
