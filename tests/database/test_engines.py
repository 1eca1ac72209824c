"""An engine for a file that others are making at the same moment."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from semel.database import engine_of, engines


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
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=time.monotonic, sleep=let_go))
    with engine_of(f"sqlite:///{tmp_path}/new.db", connect_args={"timeout": 0}).begin() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
    assert len(waits) == 2
    other.close()


def test_a_file_that_stays_locked_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(engines, "BUSY_TIMEOUT_MS", 0)
    with pytest.raises(OperationalError, match="database is locked"):
        engine_of(f"sqlite:///{tmp_path}/new.db", connect_args={"timeout": 0}).connect()
    other.close()
