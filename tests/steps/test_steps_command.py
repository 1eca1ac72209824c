"""`semel steps`: what a person does with workflows at a terminal; and real workers, killed while they work."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flows import all_booked
from sqlalchemy import Engine

from semel.steps import Found, Workflow, start
from semel.steps.ledger import listed
from semel.ui.cli import main

FLOWS = """
import os, pathlib, signal
from sqlalchemy import text
from semel.steps import workflow

@workflow(name="order")
def order(run, number, dies):
    for name in ("charge", "book"):
        with run.step(name) as step:
            if step.first:
                insert = text("INSERT INTO booked (what) VALUES (:what)")
                step.connection().execute(insert, {"what": f"{name} {number}"})
                step.result = name
                marker = pathlib.Path(f"died-{name}-{number}")
                if dies and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
    if number < 0 and not pathlib.Path("mended").exists():
        raise ValueError("negative")
    return number
"""
ORM_FLOWS = """
from sqlalchemy import Column, Integer, String
from sqlalchemy.orm import Session, declarative_base, sessionmaker
from semel.steps import workflow

class Booked(declarative_base()):
    __tablename__ = "booked"
    number = Column(Integer, primary_key=True)
    what = Column(String)

class Books(Session):
    pass

sessions = sessionmaker(class_=Books)

@workflow
def book(run):
    with run.step("book") as step:
        if step.first:
            session = step.connection()
            session.add(Booked(what="a book"))
            step.result = type(session).__name__
    return step.result
"""
ORDER = Workflow(lambda run, number, dies: None, "order", 1)


def semel(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["steps", *words])
    return int(str(ended.value.code))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_flows.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_person_sees_cancels_and_resumes_workflows(
    here: Path, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = ("--database", url)
    with engine.begin() as connection:
        for id, number, delay in (("good", 1, 0), ("bad", -1, 0), ("later", 2, 3600)):
            start(connection, ORDER, number, False, id=id, delay_seconds=delay)
    assert semel("run", "shop_flows", "--drain", *of) == 0
    assert capsys.readouterr().out == "2 runs\n"
    assert semel("show", "bad", *of) == 0
    assert capsys.readouterr().out == 'book: "book"\ncharge: "charge"\n'
    assert semel("cancel", "later", *of) == 0
    assert semel("resume", "bad", "--from", "book", *of) == 0
    assert semel("run", "shop_flows", "--drain", *of) == 0
    assert capsys.readouterr().out == "1 cancelled\n1 resumed\n1 run\n"
    assert all_booked(engine) == ["book -1", "book -1", "book 1", "charge -1", "charge 1"]
    assert semel("list", "--json", "--state", "failed", *of) == 0
    [shown] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (shown["id"], shown["result"], shown["attempts"]) == ("bad", "ValueError: negative", 1)
    assert semel("list", *of) == 0
    assert {line.split()[3] for line in capsys.readouterr().out.splitlines()[1:]} == {"done", "failed", "cancelled"}
    assert semel("reap", "--days", "1", *of) == 0
    assert capsys.readouterr().out == "0 workflows deleted\n"


def test_several_workflows_are_resumed_by_their_ids_or_all_that_have_failed_at_once(
    here: Path, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = ("--database", url)
    with engine.begin() as connection:
        for id, number in (("good", 1), ("bad-1", -1), ("bad-2", -2), ("bad-3", -3)):
            start(connection, ORDER, number, False, id=id)
    assert semel("run", "shop_flows", "--drain", *of) == 0
    (here / "mended").touch()
    assert semel("resume", "bad-1", "bad-2", "bad-1", *of) == 0
    assert semel("resume", "--all", *of) == 0
    assert semel("run", "shop_flows", "--drain", *of) == 0
    assert capsys.readouterr().out == "4 runs\n2 resumed\n1 resumed\n3 runs\n"
    assert {found.state for found in _all(engine)} == {"done"}
    # One that is done does not go on by itself, and then none does.
    assert semel("resume", "bad-3", "good", *of) == 1
    for words in ((), ("--all", "good")):
        assert semel("resume", *words, *of) == 1
        assert "name the workflows by their ids, or pass --all" in capsys.readouterr().err


def test_the_command_gives_steps_the_sessions_of_the_application(
    here: Path, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "orm_flows.py").write_text(ORM_FLOWS)
    of = ("--database", url)
    with engine.begin() as connection:
        start(connection, Workflow(lambda run: None, "book", 1), id="b-1")
    assert semel("run", "orm_flows", "--sessions", "orm_flows:nothing", *of) == 1
    assert "--sessions orm_flows:nothing: that is no sessionmaker" in capsys.readouterr().err
    assert semel("run", "orm_flows", "--sessions", "orm_flows:sessions", "--drain", *of) == 0
    assert all_booked(engine) == ["a book"]
    [found] = _all(engine)
    assert (found.state, found.result) == ("done", "Books")


def test_a_mistake_with_workflows_is_one_line(
    here: Path, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty_flows.py").touch()
    for words, says in (
        (("cancel", "x"), "there is no workflow 'x'"),
        (("show", "x"), "there is no workflow 'x'"),
        (("run", "absent_flows"), "there is no module 'absent_flows' here"),
        (("run", "empty_flows"), "module 'empty_flows' has no function under @workflow"),
        (("run", "shop_flows", "--queue", "mail=0"), "--queue mail=0: '0' is not a whole number from 1 on"),
    ):
        assert semel(*words, "--database", url) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert said.err.startswith(f"semel: {says}")


def test_workers_that_are_killed_in_a_step_leave_no_half_of_it(here: Path, engine: Engine, url: str) -> None:
    """Each worker dies by SIGKILL with a step's changes in its transaction. The lease is short, and no test waits for
    it: the next worker asks again until it is over."""
    with engine.begin() as connection:
        start(connection, ORDER, 1, True)
    deaths = 0
    while any(found.state in ("running", "waiting") for found in _all(engine)):
        with _worker(url) as worker:
            deaths += worker.wait(timeout=120) == -signal.SIGKILL
    assert deaths == 2
    assert all_booked(engine) == ["book 1", "charge 1"]
    assert {found.state for found in _all(engine)} == {"done"}


def _all(engine: Engine) -> list[Found]:
    with engine.begin() as connection:
        return listed(connection, (), 10)


@contextlib.contextmanager
def _worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    script = (
        "import shop_flows; from semel.database import engine_of; from semel.steps import Worker; "
        f"Worker(engine_of({url!r}), [shop_flows.order], lease_ms=50, runs_max=1).drain()"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        yield process
