"""A connection to the broker of the test, and a transactional producer on it; and a broker whose access rules are in
force, with its administrator and a stranger."""

from collections.abc import Iterator

import pytest

from asking import Asker
from guarded import GuardedBroker
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


@pytest.fixture
def broker() -> Iterator[GuardedBroker]:
    with GuardedBroker() as broker:
        yield broker


@pytest.fixture
def admin(broker: GuardedBroker) -> Iterator[Asker]:
    with broker.administrator() as asker:
        yield asker


@pytest.fixture
def stranger(broker: GuardedBroker) -> Iterator[Asker]:
    with broker.stranger() as asker:
        yield asker
