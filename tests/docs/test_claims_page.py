"""What the page about claims says would go wrong is what the saboteurs plant, mistake by mistake."""

import re
from pathlib import Path
from typing import Final

from saboteurs.all_bugs import ALL_BUGS

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs/explanation/claims.md"


def test_every_mistake_on_the_page_is_planted() -> None:
    _, table = PAGE.read_text().split("| instead | what happens |\n|---|---|\n")
    mistakes = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    bugs = {bug.name for bug in ALL_BUGS}
    assert mistakes
    assert [name for name in mistakes if name not in bugs] == []
