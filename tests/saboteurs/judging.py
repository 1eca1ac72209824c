"""What the end of a trial says: is the bug caught, and do the tests that caught it pass without it?

A test that fails has caught the bug, and so has one that takes too long, for it may wait for what the bug keeps from
happening. Nothing else has: where no test ran, nothing is known. If all were skipped, another machine has to tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import PurePath
from typing import NamedTuple

import pytest

from saboteurs.planting import Bug
from saboteurs.trial import NOT_PLANTED, Ending, Trial


class Outcome(Enum):
    """What can become of a planted bug; the value is how it is put."""

    CAUGHT = "caught"
    NOT_CAUGHT = "NOT CAUGHT"
    NOT_PLANTED = "NOT PLANTED"
    NO_TEST = "NO TEST RAN"
    NOT_HERE = "NOT TO BE CAUGHT HERE"
    BROKEN = "BROKEN"
    FAILS_ANYWAY = "FAILS WITHOUT IT"


class Verdict(NamedTuple):
    """What became of a bug, by which test or why, and what was printed."""

    bug: Bug
    outcome: Outcome
    by: str
    ending: Ending


def judge(bug: Bug, ending: Ending) -> Verdict:
    outcome, by = _outcome(ending)
    return Verdict(bug, outcome, by, ending)


def _outcome(ending: Ending) -> tuple[Outcome, str]:
    begun, failed, passed = (_all(ending, kind) for kind in ("begin", "failed", "passed"))
    last = ending.told[-1] if ending.told else {}
    match last.get("end"):
        case _ if failed:
            return Outcome.CAUGHT, failed[0]
        case _ if ending.is_overdue and begun:
            return Outcome.CAUGHT, begun[-1]
        case str(end) if end == NOT_PLANTED:
            return Outcome.NOT_PLANTED, last["why"]
        case pytest.ExitCode.OK if passed:
            return Outcome.NOT_CAUGHT, "all tests passed"
        case pytest.ExitCode.OK:
            return Outcome.NOT_HERE, "its tests need what this machine lacks: all of them were skipped"
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return Outcome.NO_TEST, "pytest finds none"
        case int(code):
            return Outcome.BROKEN, f"pytest ended with {code}"
    return Outcome.BROKEN, f"the process ended in {begun[-1]}" if begun else "the process ended before any test"


def _all(ending: Ending, kind: str) -> list[str]:
    return [fact[kind] for fact in ending.told if kind in fact]


# -- without the bug -------------------------------------------------------------------------------------------------


def trials_without_bugs(verdicts: Iterable[Verdict]) -> list[Trial]:
    """Trials of exactly the tests that caught a bug, one for all that are in the same directory; the longest first."""
    tests: defaultdict[PurePath, set[str]] = defaultdict(set)
    for verdict in verdicts:
        if verdict.outcome is Outcome.CAUGHT:
            tests[_file_of(verdict.by).parent].add(verdict.by)
    trials = [Trial(_files_of(chosen), None, frozenset(chosen)) for chosen in tests.values()]
    return sorted(trials, key=lambda trial: (not trial.starts_spark, -len(trial.chosen)))


def judge_again(verdicts: Iterable[Verdict], endings: Sequence[Ending]) -> list[Verdict]:
    """The verdicts, after the tests that caught a bug ran without it: those that fail all the same prove nothing."""
    ending_of = {test: ending for ending in endings for test in ending.trial.chosen}
    return [
        Verdict(verdict.bug, Outcome.FAILS_ANYWAY, verdict.by, ending_of[verdict.by])
        if verdict.outcome is Outcome.CAUGHT and not _has_passed(verdict.by, ending_of[verdict.by])
        else verdict
        for verdict in verdicts
    ]


def _has_passed(test: str, ending: Ending) -> bool:
    failed, passed = _all(ending, "failed"), _all(ending, "passed")
    if "::" not in test:  # it failed when its file was read
        return test not in failed and test in _all(ending, "begin") and not ending.is_overdue
    if test in passed or test in failed:
        return test not in failed
    # With the bug it has parameters that are not there without it.
    function = _function_of(test)
    return function in map(_function_of, passed) and function not in map(_function_of, failed)


def _file_of(test: str) -> PurePath:
    return PurePath(test.partition("::")[0])


def _function_of(test: str) -> str:
    return test.partition("[")[0]


def _files_of(tests: Iterable[str]) -> list[str]:
    return sorted({str(_file_of(test)) for test in tests})
