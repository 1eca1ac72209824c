"""Holds the tests themselves to their promise: every planted bug is caught. One that nobody catches fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from all_bugs import ALL_BUGS
from bugs import Bug

ROOT = Path(__file__).parent.parent.parent
TESTS_FAILED = 1


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_caught(bug: Bug, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("planting.py")), bug.name, *bug.caught_by],
        cwd=ROOT,
        # What fails here must not be remembered as a failure of the code without the bug.
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == TESTS_FAILED, f"nothing failed over it:\n{run.stdout[-3000:]}\n{run.stderr[-1000:]}"


def test_there_are_enough_of_them_and_no_two_have_one_name() -> None:
    names = [bug.name for bug in ALL_BUGS]
    assert len(names) >= 20
    assert len(names) == len(set(names))
