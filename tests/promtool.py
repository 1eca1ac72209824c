"""Prometheus' own promtool, if this machine has it."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_BUILT: Final = Path(__file__).parent.parent / "build/promtool"


def promtool(*words: str) -> str:
    """What promtool says of this, with which it has to be content; the test is skipped where it is not there."""
    program = shutil.which("promtool", path=str(_BUILT)) or shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not there: `make test-alarms` builds it with Go")
    ran = subprocess.run([program, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
