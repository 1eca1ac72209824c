"""Does what a reader of the README does: every block as it stands, one after another, in one directory. What a line of
Python prints stands behind it as a comment, and what a command prints stands below it.

Once with this environment and the Spark session of the tests; and once, slowly, in an environment that holds nothing
but what the README installs. This must never prepare anything that the README does not show.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack, closing, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import forked
from semel.testing.served import READY_LINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parent.parent.parent
README: Final = (ROOT / "README.md").read_text()
ADDRESS: Final = "127.0.0.1:9092"
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
# A package of 450 MB is fetched and built.
SECONDS_MAX: Final = 1200


class Block(NamedTuple):
    """What stands between two fences: its language, and its text."""

    language: str
    text: str


# Blocks without a language are drawings. `.ci/run` itself runs the commands of a clone, `make demo` and `make test`.
BLOCKS: Final = [
    Block(*block)
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    if not block[1].startswith("make ")
]


class Reader:
    """Somebody who does what the README shows, with the programs in `programs`."""

    def __init__(self, folder: Path, programs: Path, running: ExitStack) -> None:
        self.folder = folder
        self._programs = programs
        self._running = running
        self._bootstrap = ADDRESS
        self._environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def own(self, text: str) -> str:
        """The text with the address of the broker that runs: the one that is shown may be taken on this machine."""
        return text.replace(ADDRESS, self._bootstrap)

    def run(self, command: list[str], text: str = "", folder: Path | None = None) -> str:
        """What the command prints; it has to succeed."""
        ended = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def run_python(self, text: str) -> str:
        return self.run([str(self._programs / "python"), "-c", self.own(text)])

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def serve(self, line: str) -> None:
        """Start the broker, and go on when it says that it is ready."""
        command = line.replace(ADDRESS, "127.0.0.1:0").split()
        broker = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._running.enter_context(broker)
        self._running.callback(broker.terminate)
        assert broker.stdout is not None
        said = ""
        while (ready := READY_LINE.search(said)) is None:
            line = broker.stdout.readline()
            assert line, said
            said += line
        self._bootstrap = ready[1]


def follow(reader: Reader, block: Block) -> None:
    """Do what the block shows, and hold what comes out against what it says."""
    if block.language == "python":
        if name := re.match(r"# (\w+\.py)$", block.text, re.MULTILINE):
            reader.save(name[1], block.text)
        else:
            compare(block, reader.run_python(block.text))
        return
    if block.language == "sh":
        for line in block.text.splitlines():
            if line.startswith("semel serve "):
                reader.serve(line)
            else:
                # What is installed is the clone; all else happens where the reader stands.
                reader.run(["sh", "-c", line], folder=ROOT if line.startswith("pip install ") else None)
        return
    assert block.language == "console"
    command, *lines = block.text.splitlines()
    command = command.removeprefix("$ ")
    if command == "semel lab":
        answers = reader.run(["semel", "lab"], text="\n".join(lines[::2]) + "\n")
        assert answers.splitlines() == lines[1::2]
    else:
        printed = reader.run(["sh", "-c", reader.own(f"{command} --bootstrap {ADDRESS}")])
        assert TIME.sub("TIME", printed).splitlines() == [TIME.sub("TIME", line) for line in lines]


def compare(block: Block, printed: str) -> None:
    promised = re.findall(r"print\(.*\)  # (.*)", block.text)
    assert printed.splitlines() == promised or (not promised and "print(" in block.text), block.text


def needs_spark(block: Block) -> bool:
    return "readStream" in block.text


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_every_block_of_the_readme_does_what_it_says_in_the_order_of_the_page(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: ExitStack
) -> None:
    reader = Reader(tmp_path, Path(sys.executable).parent, running)
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if needs_spark(block):
            own = reader.own(block.text).replace('"balances-checkpoint"', repr(str(tmp_path / "balances")))
            # Whoever runs the job again sees the same balances: each payment counts once.
            for _ in range(2):
                with redirect_stdout(StringIO()) as printed:
                    exec(own, {})
                compare(block, printed.getvalue())
        elif block.language == "sh":
            lines = [line for line in block.text.splitlines() if not line.startswith("pip install ")]
            follow(reader, Block("sh", "\n".join(lines)))
        else:
            follow(reader, block)


def test_the_bank_books_each_payment_once_however_often_the_example_is_run(tmp_path: Path) -> None:
    event, request = [block for block in BLOCKS if "engine_of(" in block.text]
    for number, block in enumerate((event, request)):
        (tmp_path / f"{number}.py").write_text(block.text)

    def printed(number: int) -> str:
        ran = forked.run("python", f"{number}.py", folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    compare(event, printed(0))
    compare(request, printed(1))
    assert printed(0) == "duplicate duplicate\n"
    compare(request, printed(1))
    with closing(sqlite3.connect(tmp_path / "bank.db")) as bank:
        assert bank.execute("SELECT * FROM bookings").fetchall() == [("payment 17", 4200), ("payment 18", 100)]


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS_MAX)
def test_every_block_of_the_readme_runs_in_an_environment_with_nothing_but_what_it_installs(
    tmp_path: Path, running: ExitStack
) -> None:
    venv.create(tmp_path / "environment", with_pip=True)
    (tmp_path / "desk").mkdir()
    reader = Reader(tmp_path / "desk", tmp_path / "environment" / "bin", running)
    for block in BLOCKS:
        follow(reader, block)


def test_the_readme_shows_one_of_each_kind_of_start() -> None:
    """The blocks are told from drawings by their language, and a block that nobody runs proves nothing."""
    fences = re.findall(r"^```(\w*)$", README, re.MULTILINE)
    assert {language for language in fences if language} == {"python", "sh", "console"}
    assert sum(map(needs_spark, BLOCKS)) == 1
