"""A connection to the broker of the test."""

from collections.abc import Iterator

import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker


@pytest.fixture
def ask(semel_broker: FaultyBroker) -> Iterator[Asker]:
    asker = Asker(semel_broker.bootstrap)
    yield asker
    asker.close()
