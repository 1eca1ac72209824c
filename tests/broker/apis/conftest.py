"""A connection to the broker of the test, and a transactional producer on it."""

from collections.abc import Iterator

import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker
from transacting import TransactionalProducer


@pytest.fixture
def ask(semel_broker: FaultyBroker) -> Iterator[Asker]:
    asker = Asker(semel_broker.bootstrap)
    yield asker
    asker.close()


@pytest.fixture
def producer(ask: Asker) -> TransactionalProducer:
    producer = TransactionalProducer(ask)
    producer.claim()
    return producer
