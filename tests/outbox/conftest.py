"""A database of each kind with the tables of the outbox, and a cluster with a topic of the test's own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from relaying import Relays, orders
from sqlalchemy import Engine

from committed_records import make_topic
from semel import outbox
from semel.database import engine_of


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    outbox.metadata.create_all(made)
    orders.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"outbox-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, name)
    return name


@pytest.fixture
def relays(engine: Engine, bootstrap: str) -> Iterator[Relays]:
    made = Relays(engine, bootstrap)
    yield made
    made.stop()
