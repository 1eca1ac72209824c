"""A database with semel's tables and one of an application, and its name among those of Django."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from djangos import alias_of, effects
from semel import schema
from semel.database import engine_of


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    schema.make(made)
    effects.create(made)
    yield made
    made.dispose()


@pytest.fixture
def alias(engine: Engine) -> Iterator[str]:
    with alias_of(engine) as name:
        yield name
