"""Runs what the README of the example shows, as a reader would: each command in a terminal of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually
from semel.testing.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples/payments"
SECONDS_MAX = 60
# What goes on until it is ended, and what it says when it is ready.
READY = {
    "semel serve": "semel ready",
    "uvicorn": "Uvicorn running",
    "semel outbox": "publishing",
    "python -m payments.ledger": "",
}
LEFT_OUT = ("pip install", "cd examples")


class Terminals:
    """Each command has one to itself, in the directory that holds `payments`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(directory),
            "PYTHONUNBUFFERED": "1",
        }
        self._open: list[subprocess.Popen[str]] = []

    def run(self, command: str) -> str:
        """What a command says that ends; nothing of one that goes on, which is ready then."""
        running = subprocess.Popen(
            f"exec {command}",
            shell=True,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._open.append(running)
        for beginning, ready in READY.items():
            if command.startswith(beginning):
                assert running.stdout is not None
                while ready not in (line := running.stdout.readline()):
                    assert line, f"{command} has ended"
                return ""
        said, _ = running.communicate(timeout=SECONDS_MAX)
        assert running.returncode == 0, said
        return said

    def close(self) -> None:
        for running in reversed(self._open):
            running.terminate()
            running.communicate(timeout=SECONDS_MAX)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    shutil.copytree(EXAMPLE, tmp_path / "payments")
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.close()


def commands() -> list[str]:
    section = (EXAMPLE / "README.md").read_text().split("## Run it yourself\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    return [line for line in lines if not line.startswith(LEFT_OUT)]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README shows curl, and this machine has none")
def test_who_follows_the_readme_has_a_payment_in_his_ledger(terminals: Terminals) -> None:
    ports = {"9092": str(free_port()), "8000": str(free_port())}
    terminals.environment["BOOTSTRAP"] = f"127.0.0.1:{ports['9092']}"
    shown = [re.sub(r"\b(9092|8000)\b", lambda port: ports[port[0]], command) for command in commands()]
    *started, asked = shown
    for command in started:
        terminals.run(command)
    told = [json.loads(terminals.run(asked.replace("curl", "curl -s")))["payment"] for _ in range(2)]
    assert told[0] == told[1]

    def booked() -> list[tuple[object, ...]]:
        with contextlib.closing(sqlite3.connect(terminals.directory / "ledger.db")) as ledger:
            return ledger.execute("SELECT payment, account, debit_cents, credit_cents FROM entries").fetchall()

    assert sorted(eventually(booked)) == [(told[0], "anna", 950, 0), (told[0], "bert", 0, 950)]
