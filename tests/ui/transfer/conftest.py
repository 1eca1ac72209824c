"""The source of a move, a broker of the test's own, and its target."""

import itertools
import os
from collections.abc import Iterator

import pytest
from clusters import another_cluster

from semel.testing.broker import FaultyBroker

_numbers = itertools.count(1)


@pytest.fixture
def source() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[str]:
    with another_cluster() as bootstrap:
        yield bootstrap


@pytest.fixture
def topic() -> str:
    """A name that no test has used: of this run, of this process."""
    return f"moved-{os.getpid()}-{next(_numbers)}"
