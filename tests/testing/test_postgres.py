"""Holds what the PostgreSQL for tests promises: it recovers from a crash, and nothing of it stays."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg
import pytest

from left_behind import processes_about
from semel.testing.postgres import PostgresMissing, PostgresServer, any_programs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers have their directories, as seen by this test alone."""
    # The server runs as somebody else where this runs as root, and has to be let in.
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _a_machine_that_has_one() -> None:
    try:
        any_programs()
    except PostgresMissing as missing:
        pytest.skip(str(missing))


def test_a_server_that_crashed_has_what_was_committed_and_is_gone_when_it_is_stopped(place: Path) -> None:
    server = PostgresServer(settings={"fsync": "on"})
    with psycopg.connect(server.new_database()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("CREATE TABLE payments AS SELECT 7 AS cents")
        url = connection.info.dsn
    server.crash()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT cents FROM payments").fetchone() == (7,)
    server.stop()
    assert processes_about(place) == []
    assert list(place.iterdir()) == []


def test_a_server_that_does_not_start_leaves_nothing_behind(place: Path) -> None:
    with pytest.raises(PostgresMissing, match="the server does not answer"):
        PostgresServer(settings={"no_such_setting": "on"})
    assert processes_about(place) == []
    assert list(place.iterdir()) == []
