"""What the guide shows is what happens: its blocks are files of tests, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/publish.md").read_text()
pytest_plugins = ["pytester"]


def test_the_guide_to_publishing_shows_tests_that_pass(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(**{f"test_{number}": block for number, block in enumerate(blocks)})
    pytester.runpytest_subprocess("-p", "no:faker").assert_outcomes(passed=4)
