"""Java programs and Kafka's console tools against a broker. They take Java 17, mvn and a minute, so they run when they
are asked for: `make test-java`, which sets SEMEL_TEST_JAVA. SEMEL_TEST_BOOTSTRAP names another cluster."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
from bench.peers.process import SkipReason

import semel
from cluster_under_test import FOREIGN_CLUSTER
from foreign_programs import java

RUN_SECONDS_MAX = 110

Run = Callable[..., str]
"""Runs the main class with these arguments, and with `input` on standard input, and returns what it printed."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def run_java() -> Run:
    if not os.environ.get("SEMEL_TEST_JAVA"):
        pytest.skip("Java programs run with `make test-java`")
    try:
        java("semel.Setup")
    except SkipReason as missing:
        pytest.skip(str(missing))

    def run(main_class: str, *arguments: str, input: str = "") -> str:
        command = java(main_class, *arguments)
        done = subprocess.run(
            command, input=input, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def run_java_on_semel(run_java: Run) -> Run:
    """The same, for tests that need a broker with users and certificates of their own."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker of its own")
    return run_java


@pytest.fixture(scope="session")
def bootstrap(run_java: Run) -> Iterator[str]:
    if FOREIGN_CLUSTER is not None:
        yield FOREIGN_CLUSTER
        return
    with semel.broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic() -> str:
    """A name that no test has used: of this run, of this process."""
    return f"java-{os.getpid()}-{next(_numbers)}"
