"""`semel http reap` deletes what has expired and says how much that was; a user's mistake is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from semel.database.clock import now_ms
from semel.http.claims import Term, claim, keep, name_of
from semel.http.tables import keys
from semel.ui.cli import main


def semel(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["http", *words])
    return int(str(ended.value.code))


def test_the_command_deletes_what_has_expired_and_nothing_else(
    engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hour_ms = 3_600_000
    with engine.begin() as connection:
        for key, expires_ms in (("old", now_ms() - 1), ("new", now_ms() + hour_ms)):
            name, term = name_of("anna", key), Term(expires_ms, 0, now_ms=0)
            claim(connection, name, "f", term)
            keep(connection, name, 0, None, 201, term)
        claim(connection, name_of("anna", "held"), "f", Term(now_ms() - 1, now_ms() + hour_ms, now_ms=0))
    assert semel("reap", "--database", url) == 0
    assert semel("reap", "--database", url) == 0
    assert capsys.readouterr().out == "1 key deleted\n0 keys deleted\n"
    with engine.connect() as connection:
        assert set(connection.scalars(select(keys.c.key))) == {"new", "held"}


def test_a_mistake_with_the_keys_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.db"
    other.touch()
    for url, says in (
        ("oracle://host/app", "oracle is no database that semel knows"),
        (f"sqlite:///{tmp_path}", "the database: unable to open database file"),
        (f"sqlite:///{tmp_path}/app.db", f"{tmp_path}/app.db: there is no such file"),
        (
            f"sqlite:///{other}",
            "the database: no such table: semel_http_keys; make semel's tables by: semel schema --database URL",
        ),
    ):
        assert semel("reap", "--database", url) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert said.err.startswith(f"semel: {says}")
