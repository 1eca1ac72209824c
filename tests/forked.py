"""Commands and programs forked from a process that has loaded what they use.

To start Python and to load it takes most of their time.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from semel import cli

SECONDS_MAX: Final = 250
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [module.name for module in pkgutil.iter_modules(cli.__path__, "semel.cli.")]
    + ["semel.audit.run", "semel.database.engines", "sqlalchemy.dialects.sqlite", "sqlalchemy.orm", "pyarrow.compute"]
    + ["alembic.config", "confluent_kafka", "fastapi", "httpx", "hypothesis", "pytest", "semel.http", "semel.inbox"]
    + ["semel.outbox", "semel.publish", "semel.testing.broker"]
)
# As pytest's last line has it where nothing failed.
_PASSED: Final = re.compile(r"(\d+) passed(, \d+ warnings?)? in ")


def run(
    *words: str,
    stdin: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    errors_apart: bool = True,
) -> subprocess.CompletedProcess[str]:
    """What a command with its words says, and its exit code: one that is installed beside Python, or `python` with a
    program."""
    with TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr" if errors_apart else "stdout")]
        streams[0].write_text(stdin)
        told = (words, streams, folder or Path.cwd(), dict(os.environ if environment is None else environment))
        process = _FORKS.Process(target=_be, args=told)
        process.start()
        process.join(SECONDS_MAX)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{' '.join(words)} did not end")
        stdout, stderr = (stream.read_text() if stream.exists() else "" for stream in streams[1:])
        return subprocess.CompletedProcess(words, process.exitcode, stdout, stderr)


def tests_passed(folder: Path) -> int:
    """How many tests pytest finds in a folder, all of which pass."""
    # What is loaded already is not rewritten, and what comes from this run is not for that one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = run("python", "-m", "pytest", "-p", "no:faker", "-p", "no:xdist", folder=folder, environment=environment)
    passed = _PASSED.search(ran.stdout)
    assert passed, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout
    return int(passed[1])


def _be(words: Sequence[str], streams: Sequence[Path], folder: Path, environment: Mapping[str, str]) -> None:
    """Be this command, as if it had been started with these three streams."""
    for number, (stream, mode) in enumerate(zip(streams, "raa", strict=True)):
        with stream.open(mode) as file:
            os.dup2(file.fileno(), number)
    # At a terminal a program's lines come out one by one.
    sys.stdin, sys.stdout, sys.stderr = (open(0), *(open(number, "w", buffering=1) for number in (1, 2)))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    if words[:2] == ("python", "-m"):
        sys.path.insert(0, str(folder))
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    if words[0] == "python":
        sys.argv = sys.argv[1:]
        sys.path.insert(0, str((folder / sys.argv[0]).parent))
    # A command is a program as well.
    runpy.run_path(sys.argv[0], run_name="__main__")
