"""The databases under the application kit: PostgreSQL as a real server with fsync, and SQLite in a file, with its
journal as `engine_of` sets it. Both sides of a measure use the same one, so they are equally durable."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.peers.process import SkipReason
from semel.testing.postgres import PostgresMissing, PostgresServer, any_programs

TITLES: Final[Mapping[str, str]] = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class Databases:
    """Use it in a `with` block: everything of it is gone afterwards."""

    def __enter__(self) -> Self:
        try:
            self._server = PostgresServer(settings={"fsync": "on"})
        except PostgresMissing as missing:
            raise SkipReason(str(missing)) from None
        self._directory = Path(tempfile.mkdtemp(prefix="semel-bench-sqlite-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._server.stop()

    def new(self, kind: str) -> str:
        """The URL of an empty one."""
        if kind == "postgresql":
            return self._server.new_database()
        return f"sqlite:///{self._directory}/{uuid.uuid4().hex}.db"


def versions() -> str:
    """For the facts of a run."""
    sqlite = f"SQLite {sqlite3.sqlite_version}"
    with contextlib.suppress(PostgresMissing):
        said = subprocess.run([any_programs() / "postgres", "--version"], capture_output=True, text=True, check=True)
        return f"PostgreSQL {said.stdout.split()[2]}, {sqlite}"
    return sqlite
