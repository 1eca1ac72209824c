"""Every known bug and every mutant can be planted, so that `make saboteurs` and `make mutants` can tell whether the
tests catch it: that takes minutes, and this a second."""

import ast
import builtins
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

from mutants.all_mutants import ALL_MUTANTS, JUDGED
from saboteurs.all_bugs import ALL_BUGS
from saboteurs.pieces import NotPlanted, find

ROOT = Path(__file__).parent.parent.parent
BUGS_MIN = 200
CAUGHT = (*ALL_BUGS, *ALL_MUTANTS)


@cache
def tree_of(module: str) -> ast.Module:
    path = ROOT / "src" / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def test_every_bug_can_be_planted() -> None:
    wrong = []
    for bug in (*CAUGHT, *JUDGED):
        module, _, symbol = bug.place.partition(":")
        try:
            find(tree_of(module), symbol, bug.piece, bug.instead)
        except NotPlanted as error:
            wrong.append(f"{bug.name}: {bug.place}: {error}")
    assert wrong == [], "\n".join(wrong)


@cache
def names_in(module: str) -> set[str]:
    """All that a line of this module may name."""
    found = set(dir(builtins))
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def test_no_bug_is_caught_only_because_it_names_what_is_not_there() -> None:
    """A NameError is found by any test, and shows nothing."""
    unknown = {}
    for bug in (*CAUGHT, *JUDGED):
        module, _, symbol = bug.place.partition(":")
        instead = find(tree_of(module), symbol, bug.piece, bug.instead).instead
        nodes = [node for root in instead for node in ast.walk(root)]
        own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        # `_` stands for whatever was there.
        if left := named - own - names_in(module) - {"_"}:
            unknown[bug.name] = left
    assert unknown == {}


def test_there_are_enough_of_them_and_no_two_have_one_name() -> None:
    assert len(ALL_BUGS) >= BUGS_MIN
    assert [name for name, count in Counter(bug.name for bug in (*CAUGHT, *JUDGED)).items() if count > 1] == []


def test_the_files_of_the_tests_that_must_catch_them_are_there() -> None:
    named = {word for bug in CAUGHT for word in bug.caught_by if word.startswith("tests/")}
    assert [name for name in sorted(named) if not (ROOT / name.partition("::")[0]).is_file()] == []
    assert [bug.name for bug in CAUGHT if not bug.caught_by or not bug.caught_by[0].startswith("tests/")] == []


def test_each_test_that_is_named_alone_is_there() -> None:
    """Else a new name would only be noticed when the bug is planted."""
    words = {word.partition("[")[0] for bug in CAUGHT for word in bug.caught_by if "::" in word}
    alone = {(file, tests.partition("::")[0]) for file, _, tests in (word.partition("::") for word in words)}
    assert [
        f"{file}::{test}"
        for file, test in sorted(alone)
        if not re.search(rf"^(?:(?:async )?def |class |){re.escape(test)}\b", (ROOT / file).read_text(), re.MULTILINE)
    ] == []


@cache
def text_of(name: str) -> str:
    """All that pytest may find a word in: the name of a file or folder, what stands there, and the ids beside it."""
    place = ROOT / name
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    files += [path for folder in place.parents for path in folder.glob("*.py") if not path.name.startswith("test_")]
    return "\n".join([name, *(file.read_text() for file in files)]).lower()


def test_each_word_that_chooses_tests_is_in_their_file() -> None:
    """A test that is called otherwise leaves nothing to choose, and only planting would show it."""
    missing = []
    for bug in CAUGHT:
        text = "".join(text_of(word.partition("::")[0]) for word in bug.caught_by if word.startswith("tests/"))
        for option, expression in pairwise(bug.caught_by):
            words = set(re.findall(r"\w+", expression)) - {"and", "or", "not"} if option == "-k" else set()
            missing += [(bug.name, word) for word in words if word.lower() not in text]
    assert missing == []
