"""`semel inbox quarantine` shows what waits and marks it; a user's mistake is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from test_loop import inbox_of
from test_quarantine import put, waiting

from semel.ui.cli import main


def semel(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["inbox", "quarantine", *words])
    return int(str(ended.value.code))


def test_what_waits_is_shown_and_marked_and_dropped(
    engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert semel("list", "--database", url) == 0
    assert capsys.readouterr().out == "nothing is in the quarantine\n"
    put(inbox_of(engine), b"\xff", {"id": "bad", "fails": True}, {"order": "o-1", "version": 2})
    assert semel("list", "--database", url) == 0
    head, undecodable, failed, gap = capsys.readouterr().out.splitlines()
    assert head.split() == ["NUMBER", "CONSUMER", "STATE", "CAUSE", "SINCE", "WHAT", "FROM", "REASON"]
    assert "orders[0]@0" in undecodable
    assert "RuntimeError: cannot book" in failed
    assert "o-1 version 2" in gap
    numbers = [str(entry.number) for entry in waiting(engine)]
    assert semel("retry", numbers[0], numbers[1], "--database", url) == 0
    assert semel("drop", numbers[0], "--database", url) == 0
    assert capsys.readouterr().out == "2 marked to be tried again\n1 dropped\n"
    assert semel("list", "--json", "--database", url, "--consumer", "billing") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["state"], one["cause"]) for one in shown] == [("due", "failed"), ("held", "gap")]
    assert shown[0]["message"]["value"] == '{"id": "bad", "fails": true}'


def test_an_id_that_a_stranger_has_made_sends_no_commands_to_the_terminal(
    engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2J\x1b]0;gone\x07\n"
    inbox = inbox_of(engine, consumer=f"billing{evil}")
    put(inbox, {"id": f"p-1{evil}", "fails": True}, {"id": f"\x00{evil}"}, {"order": f"o-1{evil}", "version": 2})
    assert semel("list", "--database", url) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 4
    assert shown.replace("\n", "").isprintable()
    assert r"p-1\x1b[2J" in shown
    number = waiting(engine)[2].number
    assert semel("drop", str(number), "--database", url) == 1
    said = capsys.readouterr().err
    assert "still missing" in said
    assert said.replace("\n", "").isprintable()


def test_a_mistake_is_one_line(engine: Engine, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(inbox_of(engine), {"order": "o-1", "version": 2})
    [entry] = waiting(engine)
    other = tmp_path / "other.db"
    other.touch()
    for words, says in (
        (["drop", "--database", url], "name the messages by their numbers, or pass --all"),
        (["retry", "99", "--database", url], "there is no 99 waiting in the quarantine"),
        (["drop", "--all", "--database", url], f"{entry.number} is version 2 of o-1, and one before it is still"),
        (["list", "--database", "oracle://host/app"], "oracle is no database that semel knows"),
        (["list", "--database", f"sqlite:///{tmp_path}"], "the database: unable to open database file"),
        (["list", "--database", f"sqlite:///{tmp_path}/app.db"], f"{tmp_path}/app.db: there is no such file"),
        (
            ["list", "--database", f"sqlite:///{other}"],
            "the database: no such table: semel_inbox_quarantine; make semel's tables by: semel schema",
        ),
    ):
        assert semel(*words) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert said.err.startswith(f"semel: {says}")
    assert not (tmp_path / "app.db").exists()
