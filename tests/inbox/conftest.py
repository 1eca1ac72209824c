"""An engine on an empty database of each kind with the tables of the inbox, and a clock that the test sets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from effects import effects
from sqlalchemy import Engine

from semel.database import engine_of
from semel.inbox import metadata
from semel.testing.clock import Clock


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    metadata.create_all(made)
    effects.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topic() -> str:
    """A name that nobody has used; a group can have it, too."""
    return f"inbox-{uuid.uuid4().hex[:12]}"
