"""A cluster as the console asks it, and a Chromium for its pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browsing import settings_of
from chromium import NoChromium, chromium_browser
from semel.client.cluster import Cluster
from semel.testing.broker import FaultyBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def cluster(broker: FaultyBroker) -> Iterator[Cluster]:
    with Cluster(settings_of(broker.bootstrap)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One for all tests: Playwright can be started once in a process."""
    try:
        with chromium_browser() as browser:
            yield browser
    except NoChromium as missing:
        pytest.skip(str(missing))
