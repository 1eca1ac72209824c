"""The option that leads a command to a broker without topics."""

import pytest

from semel.testing.broker import FaultyBroker


@pytest.fixture
def bootstrap(semel_broker: FaultyBroker) -> str:
    return f"--bootstrap={semel_broker.bootstrap}"
