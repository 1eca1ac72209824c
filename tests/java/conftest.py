"""Java programs and Kafka's console tools against a broker. They take Java 17, mvn and a minute, so they run when they
are asked for: `make test-java`, which sets SEMEL_TEST_JAVA. SEMEL_TEST_BOOTSTRAP names another cluster."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import semel
from cluster_under_test import FOREIGN_CLUSTER

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "java"
RUN_SECONDS_MAX = 110

Run = Callable[..., str]
"""Runs the main class with these arguments, and with `input` on standard input, and returns what it printed."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def run_java() -> Run:
    if not os.environ.get("SEMEL_TEST_JAVA"):
        pytest.skip("Java programs run with `make test-java`")
    missing = [command for command in ("java", "mvn") if shutil.which(command) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} is not on PATH")
    goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={BUILD / 'libs'}"]
    built = subprocess.run(["mvn", "-B", "-q", *goals], cwd=HERE, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr

    def run(main_class: str, *arguments: str, input: str = "") -> str:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["-cp", f"{BUILD / 'classes'}:{BUILD / 'libs'}/*", main_class, *arguments]
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
