"""The two databases of a trial, and one connection that reads both, under the names `payments` and `ledger`.

On SQLite they are two files, on PostgreSQL two schemas of the database that the user named. This must never touch data
that it did not write.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine, inspect, make_url, text

from semel.database import engine_of

NAMES: Final = ("payments", "ledger")


class InUse(Exception):
    """A schema that the trial would make exists already."""


class Databases(ABC):
    @abstractmethod
    def url(self, name: str) -> str:
        """The URL under which one side finds its tables."""

    @abstractmethod
    def make(self) -> None: ...

    @abstractmethod
    def drop(self) -> None: ...

    @abstractmethod
    def seen(self) -> contextlib.AbstractContextManager[Connection]:
        """A connection that reads both databases."""


class SqliteFiles(Databases):
    """Two files, which are deleted with their directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def url(self, name: str) -> str:
        return f"sqlite:///{self._directory / name}.db"

    def make(self) -> None:
        pass

    def drop(self) -> None:
        pass

    @contextlib.contextmanager
    def seen(self) -> Iterator[Connection]:
        engine = create_engine("sqlite://")
        with engine.connect() as connection:
            for name in NAMES:
                connection.execute(text(f"ATTACH :file AS {name}"), {"file": f"{self._directory / name}.db"})
            yield connection
        engine.dispose()


class PostgresqlSchemas(Databases):
    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._engine = engine_of(url)

    def url(self, name: str) -> str:
        """The URL of the same database, with this schema for names that have none."""
        there = self._url.query.get("options", "")
        options = " ".join([*([there] if isinstance(there, str) else there), f"-c search_path={name}"]).strip()
        return self._url.update_query_dict({"options": options}).render_as_string(hide_password=False)

    def make(self) -> None:
        there = sorted(set(inspect(self._engine).get_schema_names()) & set(NAMES))
        if there:
            raise InUse(f"this database has a schema {' and '.join(there)}: drop it, or name another database")
        self._execute("CREATE SCHEMA {}")

    def drop(self) -> None:
        self._execute("DROP SCHEMA {} CASCADE")
        self._engine.dispose()

    @contextlib.contextmanager
    def seen(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            yield connection

    def _execute(self, statement: str) -> None:
        with self._engine.begin() as connection:
            for name in NAMES:
                connection.execute(text(statement.format(name)))
