"""The PostgreSQL that tests run against: a server of this run, or the one that SEMEL_TEST_POSTGRES names.

    SEMEL_TEST_POSTGRES=postgresql://semel@127.0.0.1:5432/postgres pytest tests/inbox

so that several runs at the same time share one server. Each test has a database of its own there; it must not crash the
server, and must not look at what stands in the databases of others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


_USED: Final[list[str]] = []
"""Databases of this process that tests are done with, and that are empty again."""


@contextmanager
def lent_database(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database for one test. Where nobody is connected any more, it is emptied and lent again: to
    make a database takes three hundred files, and to take them away as long again."""
    url = _USED.pop() if _USED else server.new_database()
    yield url
    if _emptied(url):
        _USED.append(url)


def _emptied(url: str) -> bool:
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        if connection.execute(query).fetchone() != (1,):
            return False
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        for (schema,) in connection.execute(schemas).fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        connection.execute("CREATE SCHEMA public")
    return True
