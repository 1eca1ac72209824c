"""A cluster, a name and a topic of the test's own; the same promises hold on any cluster.

SEMEL_TEST_BOOTSTRAP=127.0.0.1:9092 pytest tests/publish
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from publishers import CLIENT, Publishers

from committed_records import make_topic
from semel.publish import Publisher

if TYPE_CHECKING:
    from semel.testing.broker import FaultyBroker

FOREIGN_CLUSTER = os.environ.get("SEMEL_TEST_BOOTSTRAP")
_numbers = itertools.count(1)


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    if FOREIGN_CLUSTER is not None:
        return FOREIGN_CLUSTER
    broker: FaultyBroker = request.getfixturevalue("semel_broker")
    return broker.bootstrap


@pytest.fixture
def faulty(request: pytest.FixtureRequest) -> FaultyBroker:
    """The broker, for a test that lets it misbehave."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker that misbehaves when it is told to")
    broker: FaultyBroker = request.getfixturevalue("semel_broker")
    return broker


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    make_topic(bootstrap, f"{name}-records", partitions=2)
    return f"{name}-records"


@pytest.fixture
def publishers(bootstrap: str, name: str) -> Iterator[Publishers]:
    """Makes publishers of one name; each is a start of the program."""
    made: list[Publisher] = []

    def make(**options: object) -> Publisher:
        settled = {"timeout_seconds": 30.0, **options}
        address = str(settled.pop("bootstrap", bootstrap))
        settled["client"] = {**CLIENT, **settled.get("client", {})}  # type: ignore[dict-item]
        made.append(Publisher(address, name, **settled))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()
