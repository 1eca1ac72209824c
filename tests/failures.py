"""The end of a run that has failed: what a stranger has to send to report it, and the command that runs the test alone.

What each failed test said, its brokers included, goes into a file of its own below `build/failures`.
"""

from __future__ import annotations

import locale
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from semel.ui.cli.process import memory_bytes

ROOT: Final = Path(__file__).parent.parent
# The first failures show what is wrong; all are in the list that pytest prints.
SHOWN_MAX: Final = 5
_NAME_CHARACTERS_MAX: Final = 120


class Failures:
    """Keeps what failed tests said, and tells it in the end."""

    def __init__(self, directory: Path = ROOT / "build" / "failures") -> None:
        self._directory = directory
        # Each failed test and the file with what it said, which is there as soon as the test has failed.
        self._failed: list[tuple[str, Path | str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append((report.nodeid, kept(report, self._directory)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._failed:
            return
        tell = terminalreporter.write_line
        terminalreporter.section("to report this")
        for nodeid, file in self._failed[:SHOWN_MAX]:
            tell(f"promise that did not hold: {promise_of(nodeid)}")
            tell(f"  run it alone:  make test ARGS={argument_of(nodeid)}")
            tell(f"  what it said:  {file}")
        if len(self._failed) > SHOWN_MAX:
            tell(f"and {len(self._failed) - SHOWN_MAX} more, in {self._directory}")
        tell("please send these lines and those files, and what `.venv/bin/semel doctor` says; the machine:")
        for line in machine():
            tell(f"  {line}")


def argument_of(nodeid: str) -> str:
    """The test as an argument of make, which a person types into a shell, and make writes into another one."""
    quoted = shlex.quote(nodeid).replace("$", "$$")
    if quoted == nodeid:
        return nodeid
    return shlex.quote(quoted) if re.search(r'["$`\\!]', quoted) else f'"{quoted}"'


def promise_of(nodeid: str) -> str:
    """The name of a test is the sentence that it holds."""
    name = nodeid.rpartition("::")[2]
    return name.removeprefix("test_").replace("_", " ")


def kept(report: pytest.TestReport, directory: Path) -> Path | str:
    """The file with what the test said."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", report.nodeid.removeprefix("tests/"))[:_NAME_CHARACTERS_MAX]
    parts = [f"{report.nodeid} ({report.when})", report.longreprtext]
    parts += [f"--- {title}\n{text}" for title, text in report.sections]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{name}.log"
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"not kept: {error}"
    return file.relative_to(ROOT) if file.is_relative_to(ROOT) else file


def machine() -> list[str]:
    """The machine in six lines."""
    memory = memory_bytes() / 1e9
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    language = os.environ.get("LC_ALL") or os.environ.get("LANG")
    variables = sorted(name for name in os.environ if name.startswith(("PYTHON", "SPARK", "PYSPARK", "JAVA", "LC_")))
    return [
        f"commit {_commit()} in {ROOT}",
        f"Python {platform.python_version()} ({sys.executable})",
        f"{platform.platform()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GB of memory",
        f"user {os.getuid()}, umask {_umask():03o}, {free:.0f} GB free in {tempfile.gettempdir()}",
        f"language {language} ({locale.getencoding()}), time zone {time.tzname[0]}",
        f"variables {' '.join(variables) or 'none'}",
    ]


def _commit() -> str:
    try:
        asked = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _umask() -> int:
    usual = os.umask(0)
    os.umask(usual)
    return usual
