"""A broker for each test of the pipeline's own client, and somebody who asks it what a test needs."""

from collections.abc import Iterator

import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    with FaultyBroker() as started:
        yield started


@pytest.fixture
def ask(broker: FaultyBroker) -> Iterator[Asker]:
    asker = Asker(broker.bootstrap)
    yield asker
    asker.close()
