"""The places of all engines, one for each module of tests."""

from collections.abc import Iterator

import pytest
from stores_under_test import ENGINES, Place

from semel.testing.postgres import PostgresMissing, PostgresServer


@pytest.fixture(scope="session")
def servers() -> Iterator[list[PostgresServer]]:
    """A PostgreSQL and the standby that it waits for."""
    try:
        primary = PostgresServer()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    standby = primary.new_standby("follower")
    primary.wait_for("follower")
    yield [primary, standby]
    standby.stop()
    primary.stop()


@pytest.fixture(scope="module", params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ENGINES[request.param](request, tmp_path_factory.mktemp("stores")) as opened:
        yield opened
