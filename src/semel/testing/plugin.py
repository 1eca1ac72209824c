"""The pytest plugin: fixture `semel_broker`, there as soon as semel is installed.

    def test_a_lost_ack_does_not_book_twice(semel_broker):
        semel_broker.drop_acks(1)
        book_payment(semel_broker.bootstrap)
        assert len(semel_broker.log("payments")) == 1

One broker serves the whole session, in memory; every test begins without topics and without faults. The broker is only
imported when a test asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from semel.testing.broker import FaultyBroker


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
