"""The directory of a driver is there as long as its process, and no longer, however that ends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semel.spark import scratch as module
from semel.spark.scratch import scratch

HOLDS = """
import sys
from semel.spark.scratch import scratch
print(scratch(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where temporary directories are."""
    monkeypatch.setattr(module, "_held", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    if module._held is not None:
        os.close(module._held.descriptor)


@contextmanager
def driver(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a directory, and ends with its standard input."""
    environment = {**os.environ, "TMPDIR": str(parent)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_a_process_has_one_directory_which_is_its_own(parent: Path) -> None:
    assert scratch() == scratch()
    assert scratch().parent == parent
    assert stat.S_IMODE(scratch().stat().st_mode) == 0o700


def test_it_is_gone_when_the_process_has_ended(parent: Path) -> None:
    with driver(parent) as (process, directory):
        assert directory.is_dir()
        process.communicate()
        assert not directory.exists()


def test_what_a_killed_process_has_left_is_deleted_by_the_next_one_and_what_others_have_is_not(parent: Path) -> None:
    with driver(parent) as (process, left):
        (left / "warehouse").mkdir()
        process.kill()
        process.wait()
        assert left.is_dir()
    with driver(parent) as (_, of_another):
        assert not left.exists()
        own = scratch()
        assert of_another.is_dir(), "its process runs"
        with driver(parent):
            assert own.is_dir(), "this process runs"
            assert of_another.is_dir()


def test_this_process_deletes_what_a_killed_one_has_left(parent: Path) -> None:
    with driver(parent) as (process, left):
        process.kill()
        process.wait()
        scratch()
        assert not left.exists()


def test_nothing_but_such_a_directory_is_deleted(parent: Path) -> None:
    elsewhere = parent / "elsewhere"
    elsewhere.mkdir()
    (parent / f"{module.PREFIX}link").symlink_to(elsewhere)
    (parent / f"{module.PREFIX}file").touch()
    (parent / "semel-other").mkdir()
    scratch()
    assert {path.name for path in parent.iterdir()} >= {
        *("elsewhere", "semel-other", f"{module.PREFIX}link", f"{module.PREFIX}file")
    }


def test_one_that_was_deleted_is_made_again_at_its_place() -> None:
    """The JVM of this process has its path."""
    directory = scratch()
    directory.rmdir()
    assert scratch() == directory
    assert directory.is_dir()


def test_what_has_come_to_its_place_is_not_taken_for_it(parent: Path) -> None:
    directory = scratch()
    directory.rmdir()
    elsewhere = parent / "elsewhere"
    elsewhere.mkdir()
    directory.symlink_to(elsewhere)
    assert scratch() != directory
    assert scratch().is_dir()


def test_a_process_that_is_forked_has_its_own_and_leaves_that_of_its_parent(parent: Path) -> None:
    directory = scratch()
    child = os.fork()
    if child == 0:
        os._exit(scratch() == directory)
    assert os.waitpid(child, 0)[1] == 0
    assert directory.is_dir()
