"""What `semel.schema.ddl` prints makes the same database as `semel.schema.make`."""

from __future__ import annotations

import pytest
from shapes import shape
from sqlalchemy import Engine, text

from semel import schema
from semel.database import UnknownDatabase, engine_of
from semel.schema.tables import versions


def emptied(engine: Engine) -> None:
    with engine.begin() as connection:
        schema.metadata.drop_all(connection)


def test_the_printed_sql_makes_what_the_command_makes(url: str) -> None:
    engine = engine_of(url)
    schema.make(engine)
    made = shape(engine)
    emptied(engine)
    assert shape(engine) == {}
    with engine.begin() as connection:
        for statement in schema.ddl(engine.dialect.name).split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
    assert shape(engine) == made
    schema.check(engine)
    assert {made.version_before for made in schema.make(engine)} == {1}


def test_the_sql_of_each_room_can_be_run_on_its_own(url: str) -> None:
    engine = engine_of(url)
    for room in ("http", "outbox"):
        with engine.begin() as connection:
            for statement in schema.ddl(engine.dialect.name, room).split(";\n"):
                if statement.strip():
                    connection.execute(text(statement))
        schema.check(engine, room)
    with engine.connect() as connection:
        assert {row.room for row in connection.execute(versions.select())} == {"http", "outbox"}


def test_another_database_is_refused() -> None:
    with pytest.raises(UnknownDatabase, match="there are sqlite, mysql, postgresql"):
        schema.ddl("oracle")
