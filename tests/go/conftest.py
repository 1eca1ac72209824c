"""Clients of Go against a broker. The program needs Go, and fetches its modules once, so this runs when it is asked
for: `make test-go`, which sets SEMEL_TEST_GO."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable

import pytest
from bench.peers.process import SkipReason

from cluster_under_test import FOREIGN_CLUSTER
from foreign_programs import go

RUN_SECONDS_MAX = 200

LogIn = Callable[[dict[str, dict[str, str]]], dict[str, str]]
"""What the clients come to, by their names and the names of the cases."""


@pytest.fixture(scope="session")
def log_in(tmp_path_factory: pytest.TempPathFactory) -> LogIn:
    if not os.environ.get("SEMEL_TEST_GO"):
        pytest.skip("programs in Go run with `make test-go`")
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker of its own")
    try:
        program = go("logins")
    except SkipReason as missing:
        pytest.skip(str(missing))

    def run(cases: dict[str, dict[str, str]]) -> dict[str, str]:
        file = tmp_path_factory.mktemp("cases") / "cases.json"
        file.write_text(json.dumps([{"Name": name, **fields} for name, fields in cases.items()]))
        done = subprocess.run(
            [str(program), str(file)], capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outcomes: dict[str, str] = json.loads(done.stdout)
        return outcomes

    return run
