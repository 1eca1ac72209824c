"""The pytest plugin: fixtures `semel_broker` and `semel_pair`, there as soon as semel is installed.

    def test_a_lost_ack_does_not_book_twice(semel_broker):
        semel_broker.drop_acks(1)
        book_payment(semel_broker.bootstrap)
        assert len(semel_broker.log("payments")) == 1

    def test_a_payment_outlives_its_broker(semel_pair):
        book_payment(semel_pair.bootstrap)
        semel_pair.take_over()
        assert len(semel_pair.active.log("payments")) == 1

One broker serves the whole session, in memory; every test begins without topics and without faults. A pair is made for
each test that asks for it: one broker is active, the other one stands by. Brokers are only imported when a test asks.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from semel.testing.broker import FaultyBroker
    from semel.testing.pair import BrokerPair


@pytest.fixture(scope="session")
def _semel_broker_of_the_session() -> "Iterator[FaultyBroker]":
    from semel.testing.broker import FaultyBroker

    with FaultyBroker() as broker:
        yield broker


@pytest.fixture
def semel_broker(_semel_broker_of_the_session: "FaultyBroker") -> "Iterator[FaultyBroker]":
    """A running broker without topics; `bootstrap` is its address."""
    broker = _semel_broker_of_the_session
    yield broker
    if not broker.is_running:
        broker.start()
    broker.clear()


@pytest.fixture
def semel_pair() -> "Iterator[BrokerPair]":
    """An active broker and one that stands by, on one store; `bootstrap` has the addresses of both."""
    from semel.testing.pair import BrokerPair

    with BrokerPair() as pair:
        yield pair
