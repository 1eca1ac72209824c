"""Counts the faults that fired in the crash matrix, and prints them: a fault that never fired proves nothing.

SEMEL_FIGURES names a file that gets the same figures as JSON, for docs/RELIABILITY.md.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

FIRED: Counter[str] = Counter()
JUDGED: Counter[str] = Counter()


@pytest.fixture(scope="session")
def fired() -> Counter[str]:
    """How often each kind of fault happened, and what was lost by it."""
    return FIRED


@pytest.fixture(scope="session")
def judged() -> Counter[str]:
    """How much of what came back was judged."""
    return JUDGED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIRED:
        terminalreporter.section("faults that fired in the crash matrix")
        for kind, count in sorted(FIRED.items()):
            terminalreporter.write_line(f"{count:8}  {kind}")
        for kind, count in sorted(JUDGED.items()):
            terminalreporter.write_line(f"{count:8}  {kind}")
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps({"fired": FIRED, "judged": JUDGED}))
