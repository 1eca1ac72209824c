"""A cluster as the console asks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browsing import settings_of
from semel.client.cluster import Cluster
from semel.testing.broker import FaultyBroker


@pytest.fixture
def cluster(broker: FaultyBroker) -> Iterator[Cluster]:
    with Cluster(settings_of(broker.bootstrap)) as cluster:
        yield cluster
