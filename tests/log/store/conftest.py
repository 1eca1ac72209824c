"""The places of all engines, one for each module of tests."""

import asyncio
from collections.abc import Iterator

import pytest
from stores_under_test import ENGINES, Place

from semel.log.store import open_store
from semel.testing.postgres import PostgresMissing, PostgresServer
from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedServer]:
    """One server for the whole run; where the machine has none, the test is skipped."""
    try:
        server = SeaweedServer()
    except SeaweedMissing as missing:
        pytest.skip(str(missing))
    # It makes a bucket when something is put into it, and not when something is read.
    asyncio.run(open_store(server.url("contract/made")).create("made", b""))
    yield server
    server.stop()


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
