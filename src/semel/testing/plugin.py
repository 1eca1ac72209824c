"""The pytest plugin: fixtures `semel_broker` and `semel_pair`, which exist as soon as semel is installed.

    def test_a_lost_ack_does_not_book_twice(semel_broker):
        semel_broker.drop_acks(1)
        book_payment(semel_broker.bootstrap)
        assert len(semel_broker.log("payments")) == 1

    def test_a_payment_outlives_its_broker(semel_pair):
        book_payment(semel_pair.bootstrap)
        semel_pair.take_over()
        assert len(semel_pair.active.log("payments")) == 1

One broker serves the whole session, in memory; every test begins without topics and without faults. A test whose
clients log in has a marker, and gets another broker:

    @pytest.mark.semel_broker(security="SASL_SSL")
    def test_the_worker_logs_in(semel_broker):
        work(**semel_broker.client_settings)

A fault that never happened proves nothing. With `semel_faults_must_happen = true` in pytest's settings, or with
`faults_must_happen=True` in the marker, a test fails whose faults still wait for a request when it ends.

Each test with `semel_pair` gets a new pair: one broker is active, the other one is the standby. The plugin imports
brokers only when a test needs one.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from semel.testing.broker import FaultyBroker
    from semel.testing.pair import BrokerPair

MUST_HAPPEN = "semel_faults_must_happen"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "semel_broker(security, faults_must_happen): the protocol of fixture `semel_broker`: SSL, SASL_PLAINTEXT or "
        "SASL_SSL; and whether the test fails if a fault never happened",
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(MUST_HAPPEN, "fail a test whose `semel_broker` has faults that never happened", "bool", False)


@pytest.fixture(scope="session")
def _semel_brokers() -> "Iterator[Callable[..., FaultyBroker]]":
    """The broker of each protocol, made when the first test asks for it."""
    from semel.testing.broker import FaultyBroker

    with contextlib.ExitStack() as running:

        @functools.cache
        def broker(security: str = "PLAINTEXT") -> FaultyBroker:
            return running.enter_context(FaultyBroker(security=security))

        yield broker


@pytest.fixture
def semel_broker(
    request: pytest.FixtureRequest, _semel_brokers: "Callable[..., FaultyBroker]"
) -> "Iterator[FaultyBroker]":
    """A running broker without topics; `bootstrap` is its address, and `client_settings` has the settings of a
    client.
    """
    marker = request.node.get_closest_marker("semel_broker")
    arguments = {} if marker is None else dict(marker.kwargs)
    must_happen = arguments.pop("faults_must_happen", request.config.getini(MUST_HAPPEN))
    broker = _semel_brokers(*(() if marker is None else marker.args), **arguments)
    yield broker
    unfired = broker.unfired
    if not broker.is_running:
        broker.start()
    broker.clear()
    if must_happen and unfired:
        never = ", ".join(f"{count} x {fault}" for fault, count in unfired.items())
        pytest.fail(f"faults that never happened: {never}", pytrace=False)


@pytest.fixture
def semel_pair() -> "Iterator[BrokerPair]":
    """An active broker and a standby on one store; `bootstrap` has the addresses of both."""
    from semel.testing.pair import BrokerPair

    with BrokerPair() as pair:
        yield pair
