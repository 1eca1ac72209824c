"""Commands and programs forked from a process that has loaded what they use.

To start Python and to load it takes most of their time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SECONDS_MAX: Final = 250
SERVER: Final = Path(__file__).with_name("fork_server.py")
ADDRESS: Final = "SEMEL_TEST_FORK_SERVER"
"""The variable that names the socket of the process that is forked."""

_HELD: Final[list[socket.socket]] = []
_NUMBER_BYTES_MAX: Final = 20
# As pytest's last line has it where nothing failed.
_PASSED: Final = re.compile(r"(\d+) passed(, \d+ warnings?)? in ")


def run(
    *words: str,
    stdin: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    errors_apart: bool = True,
    at_a_terminal: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What a command with its words says, and its exit code: one that is installed beside Python, or `python` with a
    program. At a terminal, its lines come out one by one, also those of a program that is killed."""
    with TemporaryDirectory() as place:
        streams = [str(Path(place, name)) for name in ("stdin", "stdout", "stderr" if errors_apart else "stdout")]
        Path(streams[0]).write_text(stdin, encoding="utf-8")
        request = {
            "words": words,
            "streams": streams,
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "at_a_terminal": at_a_terminal,
        }
        code = _exit_code(json.dumps(request).encode(), words)
        stdout, stderr = (
            Path(stream).read_text(encoding="utf-8") if Path(stream).exists() else "" for stream in streams[1:]
        )
        return subprocess.CompletedProcess(words, code, stdout, stderr)


def tests_passed(folder: Path) -> int:
    """How many tests pytest finds in a folder, all of which pass."""
    # What is loaded already is not rewritten, and what comes from this run is not for that one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    plainly = ("--color=no", "-p", "no:faker", "-p", "no:xdist")
    ran = run("python", "-m", "pytest", *plainly, folder=folder, environment=environment)
    passed = _PASSED.search(ran.stdout)
    assert passed, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout
    return int(passed[1])


def _exit_code(request: bytes, words: tuple[str, ...]) -> int:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(_server(), [request], [theirs.fileno()])
        theirs.close()
        ours.settimeout(SECONDS_MAX)
        program = int(ours.recv(_NUMBER_BYTES_MAX))
        try:
            return int(ours.recv(_NUMBER_BYTES_MAX))
        except TimeoutError:
            os.kill(program, signal.SIGKILL)
            raise TimeoutError(f"{' '.join(words)} did not end") from None


@cache
def _server() -> socket.socket:
    """The connection to what is forked for this process."""
    start()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(b"\0" + os.environ[ADDRESS].encode())
    return server


def start() -> None:
    """Start the process that is forked, for this process and those that it starts, unless there is one. It ends with
    this one. It is started without what variables say to Python itself: with PYTHONUNBUFFERED, which images of
    containers often have, nobody would notice that a program has left in a buffer what it had to say."""
    if ADDRESS in os.environ:
        return
    workers, (ours, theirs) = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socketpair()
    with workers, theirs:
        # Linux gives it a name that no file has.
        workers.bind(b"")
        workers.listen()
        numbers = [workers.fileno(), theirs.fileno()]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [sys.executable, str(SERVER), *map(str, numbers)]
        subprocess.Popen(command, env=variables, pass_fds=numbers, stdin=subprocess.DEVNULL)
        os.environ[ADDRESS] = workers.getsockname()[1:].decode()
    _HELD.append(ours)
