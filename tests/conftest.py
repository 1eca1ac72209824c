"""What holds for every test: a busy machine is not a wrong answer, and a failure can be replayed.

Besides, the real databases of whoever asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from semel.testing.postgres import PostgresServer

settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for the whole run; who needs a database to himself takes `postgres.new_database()`."""
    from semel.testing.postgres import PostgresMissing, PostgresServer

    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
