"""A chapter of a page: what stands below a heading, up to the next heading of its level."""

import re
from pathlib import Path
from typing import Final

HOW_TO: Final = Path(__file__).parent.parent / "docs/how-to"


def chapter(page: str, heading: str) -> str:
    """The text of a how-to below `## heading`."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    [below] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(below)
