"""What the guide shows is what happens: its blocks are files of tests, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import forked

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/publish.md").read_text()


def test_the_guide_to_publishing_shows_tests_that_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block)
    assert forked.tests_passed(tmp_path) == 4
