"""What is said of a planted bug: only tests that fail over it, and not without it, have caught it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from saboteurs.all_bugs import ALL_BUGS
from saboteurs.run import begun_before, some_of
from saboteurs.trial import Trial

TESTS: Final = Path(__file__).parent.parent

# A library with two modules, of which one has copied a name of the other.
LIBRARY: Final = {
    "shop/__init__.py": "",
    "shop/prices.py": "def price(count: int) -> int:\n    return 3 * count\n",
    "shop/till.py": "from shop.prices import price\n\n\ndef pay(count: int) -> int:\n    return price(count)\n",
    "test_shop.py": """
import os
import sys
import threading
import pytest
from shop.till import pay
import shop.prices

def test_seven_cost_21():
    assert pay(7) == 21

def test_none_cost_nothing():
    print("the till is open")
    assert pay(0) == 0

def test_somebody_pays_in_time():
    paid = threading.Event()
    if pay(1) == 3:
        paid.set()
    paid.wait()

def test_the_till_does_not_break():
    if pay(1) != 3:
        os.kill(os.getpid(), 9)

def test_it_is_always_wrong():
    assert pay(1) == 4

@pytest.mark.skip
def test_nobody_runs_this():
    assert pay(1) == 4

@pytest.mark.parametrize("price", [pay(1)])
def test_a_price_is_3(price):
    assert price == 3
""",
    "test_unreadable.py": "from shop.till import pay\n\nassert pay(1) == 3\n",
}
PROGRAM: Final = """
import sys
from saboteurs.planting import Bug
from saboteurs.run import run

def bug(name, piece, *caught_by, seconds_max=60):
    return Bug(name, "shop.prices:price", piece, "0 * count + 7", caught_by, seconds_max)

THERE, NOT_THERE = "3 * count", "4 * count"
BUGS = [
    bug("caught by a test", THERE, "test_shop.py", "-k", "seven"),
    bug("caught while tests are read", THERE, "test_unreadable.py"),
    bug("caught by what it is called with", THERE, "test_shop.py", "-k", "price_is"),
    bug("caught by waiting", THERE, "test_shop.py", "-k", "in_time", seconds_max=2),
    bug("not caught", "3", "test_shop.py", "-k", "nothing"),
    bug("not there", NOT_THERE, "test_shop.py"),
    bug("no test", THERE, "test_shop.py", "-k", "nonsense"),
    bug("no file", THERE, "test_nonsense.py"),
    bug("skipped", THERE, "test_shop.py", "-k", "nobody"),
    bug("killed", THERE, "test_shop.py", "-k", "break"),
    bug("wrong anyway", THERE, "test_shop.py", "-k", "always"),
]
sys.exit(run([bug for bug in BUGS if bug.name in sys.argv[1:] or len(sys.argv) == 1], 2))
"""


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    for name, text in LIBRARY.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return ran(tmp_path_factory.mktemp("shop"))


@pytest.mark.parametrize(
    ("name", "outcome", "why"),
    [
        ("not caught", "NOT CAUGHT", "all tests passed"),
        ("not there", "NOT PLANTED", "it does not stand there"),
        ("no test", "NO TEST RAN", "pytest finds none"),
        ("no file", "NO TEST RAN", "pytest finds none"),
        ("skipped", "NOT TO BE CAUGHT HERE", "its tests need what this machine lacks"),
        ("killed", "BROKEN", "the process ended in test_shop.py::test_the_till_does_not_break"),
        ("wrong anyway", "FAILS WITHOUT IT", "test_shop.py::test_it_is_always_wrong"),
    ],
)
def test_a_bug_that_no_test_has_caught_is_named_with_the_reason(
    said: subprocess.CompletedProcess[str], name: str, outcome: str, why: str
) -> None:
    [(found, reason)] = re.findall(rf"^([A-Z ]+): {name}\n(.*)$", said.stdout, re.MULTILINE)
    assert found == outcome
    assert why in reason


def test_what_the_tests_print_is_shown_where_they_do_not_catch_it(said: subprocess.CompletedProcess[str]) -> None:
    assert "1 passed, 6 deselected" in said.stdout
    assert "assert 3 == 4" in said.stdout, "without the bug"
    assert "assert 7 == 21" not in said.stdout


def test_a_bug_that_is_not_caught_fails_the_run(said: subprocess.CompletedProcess[str]) -> None:
    assert said.returncode == 1
    first, last = said.stdout.splitlines()[-2:]
    assert first.startswith("10 planted bugs, 6 of them not caught, in ")
    assert last == "4 passed, 6 failed"


@pytest.mark.parametrize("how", ["by a test", "while tests are read", "by what it is called with", "by waiting"])
def test_a_bug_is_caught_by_a_test_that_fails_or_takes_too_long(
    said: subprocess.CompletedProcess[str], how: str
) -> None:
    assert re.search(rf" s  caught: caught {how}$", said.stdout, re.MULTILINE)
    assert re.search(rf"^[A-Z ]+: caught {how}$", said.stdout, re.MULTILINE) is None


def test_a_bug_whose_tests_cannot_run_on_this_machine_is_named_and_fails_nothing(tmp_path: Path) -> None:
    said = ran(tmp_path, "caught by a test", "skipped")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "NOT TO BE CAUGHT HERE: skipped" in said.stdout
    assert said.stdout.splitlines()[-1] == "1 passed, 0 failed"


def test_a_run_in_which_all_are_caught_passes(tmp_path: Path) -> None:
    said = ran(tmp_path, "caught by a test")
    assert said.returncode == 0, said.stdout + said.stderr
    first, last = said.stdout.splitlines()[-2:]
    assert first.startswith("1 planted bugs, all caught, in ")
    assert last == "1 passed, 0 failed"


def test_some_of_the_bugs_are_others_for_each_commit_and_none_waits_for_ever() -> None:
    chosen = [[bug.name for bug in some_of(ALL_BUGS, 150, f"commit {number}")] for number in range(200)]
    assert chosen[0] == [bug.name for bug in some_of(ALL_BUGS, 150, "commit 0")]
    assert all(len(set(names)) == 150 for names in chosen)
    assert {name for names in chosen for name in names} == {bug.name for bug in ALL_BUGS}


def test_a_run_whose_time_is_over_has_planted_one_bug_and_begins_no_more() -> None:
    trials = [Trial(bug.caught_by, bug) for bug in ALL_BUGS[:3]]
    assert list(begun_before(time.monotonic() - 1, trials)) == trials[:1]
    assert list(begun_before(time.monotonic() + 3600, trials)) == trials
