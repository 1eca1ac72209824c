"""Follows a tutorial as its reader does: saves its files, types its commands, and compares what they print.

How a page is read:

- A block behind a line that ends with the name of a file and a colon is that file.
- A `console` block is typed, line by line: what stands behind `$ ` is a command, the lines below are all that it
  prints. A word behind `console` names a terminal in which the command goes on; the lines below are waited for there,
  and so are those of a block without a command.
- `^C` and `^\\` in such a terminal end what runs in it, as the keys would.
- Any other block is left to the reader: what he installs, and what stands for something else.

Nothing of it may be left out or changed but addresses, for which there are free ones. What differs from day to day, as
times and numbers of producers, is compared by its shape.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import forked
from semel.testing.ports import free_port

SECONDS_MAX: Final = 60
_BLOCK: Final = re.compile(r"(?P<before>[^\n]*)\n*^```(?P<words>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"`([\w./-]+)`:$")
_KEYS: Final = {"^C": signal.SIGINT, "^\\": signal.SIGQUIT}
# Commands that go to the broker at its usual address, where no other is said.
_AT_THE_BROKER: Final = re.compile(r"semel (produce|tail|topics \w+|groups \w+|transactions \w+)\b")
# It needs no shell.
_PLAIN: Final = re.compile(r"(semel|python \w+\.py)( [\w./:@-]+)*")
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"), "TIME"),
    (re.compile(r"(in|for) [\d.]+ (s|ms)\b"), r"\1 N \2"),
    # As many as the moment has made of it.
    (re.compile(r"in \d+ batch(es)?\b"), "in N batches"),
    (re.compile(r"producer[= ]\d+/\d+"), "producer P"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"server process \[\d+\]"), "server process [PID]"),
    (re.compile(r"process \d+ on [^\s)]+"), "process PID on HOST"),
    # Columns are as wide as what is in them.
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True)
class Block:
    words: tuple[str, ...]
    text: str
    # The name of the file that it is; None where it is none.
    file: str | None


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        named, words = _FILE.search(found["before"]), tuple(found["words"].split())
        # A program that is no file would be a program that nobody runs.
        assert named or words[:1] != ("python",), f"which file is this?\n{found['text']}"
        yield Block(words, found["text"], named[1] if named else None)


class Reader:
    """Somebody at a page, in a folder of his own, with as many terminals as the page wants."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in ("9092", "8000")}
        scripts = Path(sys.executable).parent
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SEMEL"))},
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            # At a terminal a program's lines come out one by one.
            "PYTHONUNBUFFERED": "1",
        }
        self._terminals: dict[str, Terminal] = {}
        self._open = ExitStack()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()

    def follow(self, page: str) -> int:
        """From top to bottom; answers how many commands were typed."""
        typed = 0
        for block in blocks(page):
            if block.file is not None:
                self._save(block)
            elif block.words[:1] == ("console",):
                typed += self._type(block)
        return typed

    def _save(self, block: Block) -> None:
        assert block.file is not None
        path = self._folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(block.text))

    def _type(self, block: Block) -> int:
        typed = 0
        for line, promised in _typed(block.text):
            typed += line is not None
            if line is None:
                self._terminals[block.words[1]].wait_for(promised)
            elif len(block.words) == 1:
                self._run(line, promised)
            elif line in _KEYS:
                self._terminals.pop(block.words[1]).end_by(_KEYS[line], promised)
            else:
                terminal = Terminal(self._command(line), self._folder, self._environment)
                self._terminals[block.words[1]] = self._open.enter_context(terminal)
                terminal.wait_for(promised)
        return typed

    def _run(self, line: str, promised: list[str]) -> None:
        command = self._command(line)
        if _PLAIN.fullmatch(command):
            ran = forked.run(
                *command.split(),
                folder=self._folder,
                environment=self._environment,
                errors_apart=False,
                at_a_terminal=True,
            )
        else:
            ran = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS_MAX,
            )
        assert _shape(ran.stdout.splitlines()) == _shape(promised), f"$ {line}\n{ran.stdout}"

    def _command(self, line: str) -> str:
        if "--bootstrap" not in line:
            line = _AT_THE_BROKER.sub(rf"\g<0> --bootstrap 127.0.0.1:{self._ports['9092']}", line)
        return self._here(line)

    def _here(self, text: str) -> str:
        for usual, ours in self._ports.items():
            text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{ours}").replace(f"--port {usual}", f"--port {ours}")
        return text


class Terminal:
    """A command that goes on while the reader is at others."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_leave_no_core,
            # Keys go to all that runs in a terminal.
            start_new_session=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def wait_for(self, promised: list[str]) -> None:
        """The lines that stand in the page are the next that come, and however long they take, no others do."""
        assert self._process.stdout is not None
        for line in promised:
            came = self._process.stdout.readline().rstrip("\n")
            assert _shape([came]) == _shape([line]), f"in the terminal of {self._command}:\n{came}"

    def end_by(self, key: signal.Signals, promised: list[str]) -> None:
        os.killpg(self._process.pid, key)
        assert self._process.stdout is not None
        rest = self._process.stdout.read()
        self._process.wait(SECONDS_MAX)
        assert _shape(rest.splitlines()) == _shape(promised), f"in the terminal of {self._command}:\n{rest}"


def _typed(text: str) -> Iterator[tuple[str | None, list[str]]]:
    """What is typed, each with the lines below it; None for what has come in a terminal meanwhile."""
    line: str | None = None
    below: list[str] = []
    for shown in text.splitlines():
        if shown.startswith("$ ") or shown in _KEYS:
            if line is not None or below:
                yield line, below
            line, below = shown.removeprefix("$ "), []
        else:
            below.append(shown)
    yield line, below


def _shape(lines: list[str]) -> list[str]:
    shaped = [line.rstrip() for line in lines]
    for varying, shape in _VARYING:
        shaped = [varying.sub(shape, line) for line in shaped]
    return shaped


def _leave_no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
