"""Runs the example as `make example` does, only smaller; and with a bug planted in it, which has to be noticed."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from left_behind import processes_about
from saboteurs.pieces import plant

if TYPE_CHECKING:
    from semel.testing.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS_MAX = 280
BALANCED = "balanced: each payment is booked once, and each request has one answer"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest) -> list[str]:
    """The words that say which database a trial is to use."""
    if request.param == "sqlite":
        return []
    server: PostgresServer = request.getfixturevalue("postgres")
    return ["--database", server.new_database()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory for temporary files of a trial, and of nobody else."""
    place = tmp_path / "temporary"
    place.mkdir()
    return place


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "payments.trial", *words]


def environment(place: Path, sources: Path = EXAMPLES) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(sources), "TMPDIR": str(place)}


def trial(place: Path, *words: str, sources: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
    given = environment(place, sources)
    return subprocess.run(command(*words), env=given, capture_output=True, text=True, timeout=SECONDS_MAX)


def test_the_books_are_balanced_whatever_is_killed(database: list[str], place: Path) -> None:
    ran = trial(place, "--requests", "200", "--kills", "1", "--seed", "4", *database)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == BALANCED
    assert "kill -9: broker 1, API 1, relay 1, ledger 1" in ran.stdout
    figures = re.search(
        r"(\d+) retries, (\d+) duplicates .*, (\d+) answers lost; (\d+) answers were replays", ran.stdout
    )
    assert figures is not None
    assert all(int(figure) > 0 for figure in figures.groups()), "a fault that never fired proves nothing"
    assert "by itself" not in ran.stdout
    assert list(place.iterdir()) == []
    assert processes_about(place) == []


def test_a_seed_plans_the_same_requests_and_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    plan = importlib.import_module("payments.trial.plan")
    steps = plan.plan(7, 1000, ("API", "relay"), 3)
    assert steps == plan.plan(7, 1000, ("API", "relay"), 3)
    assert steps != plan.plan(8, 1000, ("API", "relay"), 3)
    kills = Counter(step.victim for step in steps if isinstance(step, plan.Kill))
    requests = Counter(step for step in steps if isinstance(step, plan.Request))
    assert kills == {"API": 3, "relay": 3}
    assert (len(requests), sum(count == 2 for count in requests.values()), max(requests.values())) == (1000, 50, 2)


@pytest.mark.slow
def test_a_trial_that_is_interrupted_leaves_nothing_behind(place: Path) -> None:
    words = ["--requests", "100000", "--kills", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command(*words), env=environment(place), stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        while "requests done" not in (line := running.stdout.readline()):
            assert line, "it ended by itself"
        running.send_signal(signal.SIGINT)
        assert running.wait(SECONDS_MAX) == 130
    assert list(place.iterdir()) == []
    assert processes_about(place) == []


def test_a_database_that_is_in_use_is_left_alone(postgres: PostgresServer, place: Path) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA ledger")
        ran = trial(place, "--database", url)
        assert ran.returncode == 1
        assert ran.stderr == "trial: this database has a schema ledger: drop it, or name another database\n"
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'payments'").fetchone() == (0,)
    assert list(place.iterdir()) == []


# In which file, which piece of Python stands there once, and what stands there instead.
BUGS = {
    "keys are not looked at": (
        "service.py",
        'scope=lambda request: request.headers.get("x-api-key")',
        "scope=lambda request: str(uuid.uuid4())",
    ),
    "callers share their keys": (
        "service.py",
        'scope=lambda request: request.headers.get("x-api-key")',
        'scope=lambda request: "everybody"',
    ),
    "events are not claimed": (
        "ledger.py",
        'identity=lambda message: event_of(message)["event"]',
        "identity=lambda message: os.urandom(16).hex()",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_trial_of_a_service_with_a_bug_fails(bug: str, tmp_path: Path, place: Path) -> None:
    name, piece, instead = BUGS[bug]
    copied = tmp_path / "copied"
    # Without the modes: the clone may be one into which nobody may write.
    shutil.copytree(EXAMPLES / "payments", copied / "payments", copy_function=shutil.copyfile)
    tree = ast.parse((copied / "payments" / name).read_text())
    plant(tree, "", piece, instead)
    (copied / "payments" / name).write_text(ast.unparse(tree))
    ran = trial(place, "--requests", "200", "--kills", "1", "--seed", "4", sources=copied)
    print(ran.stdout)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "WRONG: " in ran.stdout
    assert BALANCED not in ran.stdout
    [kept] = place.iterdir()
    assert {"payments.db", "ledger.db", "log", "API.log"} <= {entry.name for entry in kept.iterdir()}
