"""A database of each kind with the tables of the outbox, and a cluster with a topic of the test's own.

SEMEL_TEST_BOOTSTRAP=127.0.0.1:9092 pytest tests/outbox
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from relaying import Relays, orders
from sqlalchemy import Engine

from committed_records import make_topic
from semel import outbox
from semel.database import engine_of

if TYPE_CHECKING:
    from semel.testing.broker import FaultyBroker

FOREIGN_CLUSTER = os.environ.get("SEMEL_TEST_BOOTSTRAP")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    outbox.metadata.create_all(made)
    orders.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker of ours, or with SEMEL_TEST_BOOTSTRAP any cluster."""
    return FOREIGN_CLUSTER or str(request.getfixturevalue("semel_broker").bootstrap)


@pytest.fixture
def faulty(request: pytest.FixtureRequest) -> FaultyBroker:
    """The broker, for a test that lets it misbehave."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker that misbehaves when it is told to")
    broker: FaultyBroker = request.getfixturevalue("semel_broker")
    return broker


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
