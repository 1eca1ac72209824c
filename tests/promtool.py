"""Prometheus' own promtool, if this machine has it, and which figures a query may ask for."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parent.parent
_BUILT: Final = _ROOT / "build/promtool"
_PAGES: Final = (_ROOT / "docs/reference/metrics.md", _ROOT / "docs/how-to/watch.md")
_FIGURE: Final = re.compile(r"\bsemel_[a-z_]+")


def promtool(*words: str) -> str:
    """What promtool says of this, with which it has to be content; the test is skipped where it is not there."""
    program = shutil.which("promtool", path=str(_BUILT)) or shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not there: `make test-alarms` builds it with Go")
    ran = subprocess.run([program, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def figures_not_shown(queries: Iterable[str], *suffixes: str) -> set[str]:
    """Those figures in the queries that no page of semel names; the parts of a histogram end with a suffix."""
    shown = {name for page in _PAGES for name in _FIGURE.findall(page.read_text(encoding="utf-8"))}
    asked = {name for query in queries for name in _FIGURE.findall(query)}
    return {re.sub(f"_({'|'.join(suffixes)})$", "", name) for name in asked} - shown
