"""The PostgreSQL that tests run against: a server of this run, or the one that SEMEL_TEST_POSTGRES names.

    SEMEL_TEST_POSTGRES=postgresql://semel@127.0.0.1:5432/postgres pytest tests/inbox

so that several runs at the same time share one server. Each test has a database of its own there; it must not crash the
server, and must not look at what stands in the databases of others.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

from semel.testing.postgres import PostgresServer

SHARED_POSTGRES: Final = os.environ.get("SEMEL_TEST_POSTGRES")
"""The URL of any of its databases, of a user that may make databases; None where a run starts a server."""


class SharedPostgres(PostgresServer):
    """A server that somebody else started, and stops."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    def url(self, database: str = "postgres") -> str:
        return self._url._replace(path=f"/{database}").geturl()

    def start(self) -> None:
        raise AssertionError("a test that starts the server takes the fixture `postgres_to_crash`")

    def crash(self) -> None:
        raise AssertionError("a test that crashes the server takes the fixture `postgres_to_crash`")

    def stop(self) -> None:
        """Whoever started it does that."""
