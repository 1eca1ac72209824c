"""Clients of Go against a broker. The program needs Go, and fetches its modules once, so this runs when it is asked
for: `make test-go`, which sets SEMEL_TEST_GO."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_under_test import FOREIGN_CLUSTER

HERE = Path(__file__).parent
PROGRAM = HERE.parent.parent / "build" / "go" / "logins"
RUN_SECONDS_MAX = 200

LogIn = Callable[[dict[str, dict[str, str]]], dict[str, str]]
"""What the clients come to, by their names and the names of the cases."""


@pytest.fixture(scope="session")
def log_in(tmp_path_factory: pytest.TempPathFactory) -> LogIn:
    if not os.environ.get("SEMEL_TEST_GO"):
        pytest.skip("programs in Go run with `make test-go`")
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker of its own")
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    built = subprocess.run(
        ["go", "build", "-buildvcs=false", "-o", str(PROGRAM), "."],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr

    def run(cases: dict[str, dict[str, str]]) -> dict[str, str]:
        file = tmp_path_factory.mktemp("cases") / "cases.json"
        file.write_text(json.dumps([{"Name": name, **fields} for name, fields in cases.items()]))
        done = subprocess.run(
            [str(PROGRAM), str(file)], capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outcomes: dict[str, str] = json.loads(done.stdout)
        return outcomes

    return run
