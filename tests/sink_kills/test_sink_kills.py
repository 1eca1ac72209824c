"""The command that kills drivers around their commits, in small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


@pytest.mark.slow
def test_drivers_that_are_killed_around_their_commits_lose_and_double_no_row(mariadb: str) -> None:
    if shutil.which("mariadb") is None:
        pytest.skip("needs the client of MariaDB")
    command = [sys.executable, "-m", "sink_kills.run", "--kills", "2", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "0 lost, 0 doubled" in said.stdout
