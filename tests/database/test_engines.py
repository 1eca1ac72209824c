"""An engine for a file that others are making, or writing, at the same moment."""

from __future__ import annotations

import sqlite3
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from semel.database import engine_of, engines, is_passing
from semel.database.dialects import is_new, sqlite


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:shop.db", "shop.db"),
        ("sqlite:////data/shop.db", "/data/shop.db"),
        ("sqlite:/data/shop.db", "/data/shop.db"),
        ("sqlite+pysqlite:///shop.db", "shop.db"),
        ("sqlite://", None),
    ],
)
def test_a_file_is_named_as_in_other_urls_or_as_the_audit_names_it(url: str, file: str | None) -> None:
    assert engine_of(url).url.database == file


def test_a_new_file_that_somebody_has_locked_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite turns away, without waiting, who would deadlock; no timeout says the same of any lock."""
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waits: list[float] = []

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            other.execute("ROLLBACK")

    # Its own clock: threads of other tests may sleep meanwhile.
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=time.monotonic, sleep=let_go))
    with engine_of(f"sqlite:///{tmp_path}/new.db", connect_args={"timeout": 0}).begin() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
    assert len(waits) == 2
    other.close()


def test_a_file_that_stays_locked_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 0)
    with pytest.raises(OperationalError, match="database is locked"):
        engine_of(f"sqlite:///{tmp_path}/new.db", connect_args={"timeout": 0}).connect()
    other.close()


def test_a_prompt_transaction_never_sleeps_for_long_beside_a_writer(tmp_path: Path) -> None:
    """It comes back from SQLite after the short sleeps, and tries again until the writer has ended."""
    engine = engines.prompt(engine_of(f"sqlite:///{tmp_path}/some.db"))
    other = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    with engine.connect() as connection:
        other.execute("BEGIN IMMEDIATE")
        tries = count()
        pauses: list[float] = []

        def let_go_at_the_fifth() -> float:
            if next(tries) == 5:
                other.execute("ROLLBACK")
            return 0.0

        clock = SimpleNamespace(monotonic=let_go_at_the_fifth, sleep=pauses.append)
        with patch.object(sqlite, "time", clock), connection.begin():
            assert next(tries) == 6
            assert set(pauses) == {0}
            # The statements that follow wait as long as anybody's.
            assert connection.scalar(text("PRAGMA busy_timeout")) == sqlite.BUSY_TIMEOUT_MS
    other.close()


def test_a_prompt_transaction_finds_a_dead_connection_and_keeps_the_timeout_of_an_application(tmp_path: Path) -> None:
    engine = engine_of(f"sqlite:///{tmp_path}/some.db")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=500")
    with engines.prompt(engine).begin() as connection:
        assert connection.scalar(text("PRAGMA busy_timeout")) == 500
        dead = connection.connection.dbapi_connection
    assert dead is not None
    dead.close()
    with pytest.raises(DBAPIError) as refused, engines.prompt(engine).begin():
        pass
    assert is_passing(refused.value)
    with engines.prompt(engine).begin() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_a_prompt_transaction_gives_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines.prompt(engine_of(f"sqlite:///{tmp_path}/some.db"))
    other = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    with engine.connect() as connection:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 0)
        with pytest.raises(OperationalError, match="database is locked") as refused, connection.begin():
            pass
        assert is_passing(refused.value)
        other.execute("ROLLBACK")
        with connection.begin():
            assert connection.scalar(text("SELECT 1")) == 1
    other.close()


def test_a_row_is_new_once_also_where_the_driver_counts_no_inserted_rows() -> None:
    """Until Python 3.12 it counts them after a first word `insert`, which INSERT is not in a Turkish locale; nowhere
    after WITH. Every claim would be refused, or counted twice."""
    insert = text(
        "WITH one(id) AS (SELECT 1) INSERT INTO claims SELECT id FROM one WHERE true ON CONFLICT DO NOTHING"
    ).execution_options(preserve_rowcount=True)
    with engine_of("sqlite://").begin() as connection:
        connection.execute(text("CREATE TABLE claims (id INTEGER PRIMARY KEY)"))
        assert [is_new(connection, {"sqlite": insert}, {}) for _ in range(3)] == [True, False, False]
