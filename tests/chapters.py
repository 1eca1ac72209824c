"""The code of a how-to: how often a test runs it, and the chapters in which it stands."""

import re
from pathlib import Path
from typing import Final

import pytest

HOW_TO: Final = Path(__file__).parent.parent / "docs/how-to"
# A reader runs it again in the folder in which it has run, where all that the first run has left is found.
ONCE_AND_AGAIN: Final = pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])


def chapter(page: str, heading: str) -> str:
    """The text of a how-to below `## heading`, up to the next heading of its level."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    [below] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(below)
