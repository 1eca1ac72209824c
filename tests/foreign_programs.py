"""The tests' programs of other languages: Java's, built by Maven, and Go's. Each is built once by a process, in
`build`; `SkipReason` says what this machine lacks for it."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from bench.peers.process import SkipReason

TESTS: Final = Path(__file__).parent
BUILD: Final = TESTS.parent / "build"


def java(main_class: str, *arguments: str) -> list[str]:
    """The command that runs the main class of `tests/java`."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [*command, "-cp", _java_classes(), main_class, *arguments]


@cache
def _java_classes() -> str:
    into = BUILD / "java"
    goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into / 'libs'}"]
    _build(["java", "mvn"], ["mvn", "-B", "-q", *goals], TESTS / "java")
    return f"{into / 'classes'}:{into / 'libs'}/*"


@cache
def go(package: str) -> Path:
    """The program of this package of `tests/go`."""
    program = BUILD / "go" / package
    _build(["go"], ["go", "build", "-buildvcs=false", "-o", str(program), f"./{package}"], TESTS / "go")
    return program


def _build(needed: list[str], command: list[str], directory: Path) -> None:
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        raise SkipReason(f"{' and '.join(missing)} is not on PATH")
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
