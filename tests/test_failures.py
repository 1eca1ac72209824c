"""A run that has failed tells a stranger what to send, and how to run the failed test alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import failures
import forked

CONFTEST = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from failures import Failures

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path({kept!r})))
"""
TESTS = """
import logging

def test_a_broker_keeps_its_word():
    print("printed")
    logging.warning("logged")
    assert "kept" == "broken"

def test_another_holds():
    pass
"""


@pytest.mark.parametrize("way", [(), ("-n", "1")], ids=["in one process", "side by side"])
def test_a_failed_run_names_the_promise_the_command_and_what_was_said(way: tuple[str, ...], tmp_path: Path) -> None:
    tests = str(Path(failures.__file__).parent)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(tests=tests, kept=str(tmp_path / "kept")), encoding="utf-8")
    (tmp_path / "test_words.py").write_text(TESTS, encoding="utf-8")
    ran = forked.run("python", "-m", "pytest", "-p", "no:faker", *way, folder=tmp_path)
    assert ran.returncode == 1
    _, _, report = ran.stdout.partition("to report this")
    assert "promise that did not hold: a broker keeps its word\n" in report
    assert "make test ARGS=test_words.py::test_a_broker_keeps_its_word\n" in report
    assert "another holds" not in report
    [file] = re.findall(r"what it said: +(.*)$", report, re.MULTILINE)
    said = Path(file).read_text(encoding="utf-8")
    assert all(words in said for words in ("printed", "logged", "assert 'kept' == 'broken'"))


@pytest.mark.parametrize("name", ["plain", "with a space", "it's", 'a "word"', "$HOME", "`id`", "back\\slash", "hey!"])
def test_the_command_runs_that_test_whatever_its_name_has_in_it(name: str, tmp_path: Path) -> None:
    nodeid = f"tests/test_words.py::test_it[{name}]"
    (tmp_path / "Makefile").write_text("test:\n\t@printf %s $(ARGS)\n", encoding="utf-8")
    command = f"make test ARGS={failures.argument_of(nodeid)}"
    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == nodeid


def test_a_name_with_brackets_is_quoted_as_a_person_would() -> None:
    assert failures.argument_of("tests/test_words.py::test_it[1]") == "\"'tests/test_words.py::test_it[1]'\""


def test_the_machine_is_told_in_six_lines() -> None:
    lines = failures.machine()
    assert len(lines) == 6
    assert all("\n" not in line for line in lines)
