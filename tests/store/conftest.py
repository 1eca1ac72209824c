"""The places of all engines, one for each module of tests."""

from collections.abc import Iterator

import pytest
from stores_under_test import ENGINES, Place

from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedServer]:
    """One server for the whole run; where the machine has none, the test is skipped."""
    try:
        server = SeaweedServer()
    except SeaweedMissing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


@pytest.fixture(scope="module", params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ENGINES[request.param](request, tmp_path_factory.mktemp("stores")) as opened:
        yield opened
