"""Runs what the guides and the explanations show: what a reader copies has to work as it stands.

The tests of a guide are taken from its text and run against a real broker; a session of the lab has to answer what is
shown. The README has a test of its own, which runs it in order.
"""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import forked
from chapters import ONCE_AND_AGAIN

ROOT = Path(__file__).parent.parent.parent
GUIDES = (
    *("test-your-code", "exactly-once", "settings", "audit", "http", "outbox", "inbox", "watch"),
    *("queue", "recover-a-producer", "run-once", "offsets", "steps", "trace", "publish", "schema"),
    pytest.param("celery", marks=pytest.mark.skipif(find_spec("celery") is None, reason="needs Celery")),
)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


SESSIONS = {
    f"{path.name}-{number}": session
    for path in sorted((ROOT / "docs/explanation").glob("*.md"))
    for number, session in enumerate(blocks("console", path.read_text()), start=1)
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_the_lab_answers_what_is_shown(session: str) -> None:
    command, *lines = session.splitlines()
    assert command == "$ semel lab"
    questions, answers = lines[::2], lines[1::2]
    result = subprocess.run(
        [Path(sys.executable).with_name("semel"), "lab"],
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.stdout.splitlines(), result.returncode) == (answers, 0), result.stderr


@ONCE_AND_AGAIN
@pytest.mark.parametrize("guide", GUIDES)
def test_the_guide_shows_tests_that_pass(guide: str, runs: int, tmp_path: Path) -> None:
    """A block whose first line names a file is that file; every other one is a file of tests."""
    tests = 0
    for number, block in enumerate(blocks("python", (ROOT / f"docs/how-to/{guide}.md").read_text())):
        name = re.match(r"# (\w+)\.py$", block, re.MULTILINE)
        (tmp_path / f"{name[1] if name else f'test_{number}'}.py").write_text(block)
        tests += block.count("def test_")
    assert tests
    for _ in range(runs):
        assert forked.tests_passed(tmp_path) == tests
