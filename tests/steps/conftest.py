"""A database with the tables, for every test of workflows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flows import tables
from sqlalchemy import Engine, event

from semel.database import engine_of
from semel.steps import metadata


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    # Nothing here is about a loss of power, and there are very many commits.
    unsynced = {"sqlite": "PRAGMA synchronous=OFF", "postgresql": "SET synchronous_commit TO off", "mysql": "DO 0"}

    @event.listens_for(made, "connect")
    def connected(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(unsynced[made.dialect.name])
        cursor.close()
        connection.commit()

    for one in (metadata, tables):
        one.create_all(made)
    yield made
    made.dispose()
