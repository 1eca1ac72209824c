"""semel as it is shipped: `semel serve` in a process of its own, found beside the Python that runs the bench. It is
started like the peers, with defaults, and must never get an option that a user would not give it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bench.peers.process import Broker, SkipReason
from semel.testing.served import READY_LINE, STANDBY_LINE

Durability = Literal["fsync", "os"]


class Semel(Broker):
    name = "semel"

    def __init__(
        self,
        *,
        durability: Durability = "fsync",
        log_level: str = "warning",
        store: str | None = None,
        port: int = 0,
        directory: Path | None = None,
    ) -> None:
        """With the URL of a `store`, the log is there; it is ready as the standby, too."""
        super().__init__(port=port, directory=directory)
        self._durability = durability
        self._log_level = log_level
        self._store = store

    @property
    def executable(self) -> Path:
        return Path(sys.executable).parent / "semel"

    def version(self) -> str:
        return f"semel {importlib.metadata.version('semel')}"

    def install(self) -> None:
        if not self.executable.exists():
            raise SkipReason(f"{self.executable} is not there; `make setup` installs it")
        probe = subprocess.run([str(self.executable), "serve", "--help"], capture_output=True, text=True, check=False)
        if probe.returncode != 0:
            last_line = probe.stderr.strip().rpartition("\n")[2]
            raise SkipReason(f"`semel serve --help` fails: {last_line}")

    def prepare(self) -> None:
        """Nothing: semel lays out its data directory itself, and the time for that counts."""

    def command(self) -> Sequence[str]:
        return [
            str(self.executable),
            "serve",
            f"--listen={self.bootstrap}",
            f"--data={self.directory / 'data'}",
            f"--durability={self._durability}",
            f"--log-level={self._log_level}",
            *([f"--store={self._store}"] if self._store else []),
        ]

    def is_ready(self) -> bool:
        """The line that semel prints is its promise that it serves, or stands by."""
        printed = self.log_since_spawn().decode(errors="replace")
        return any(line.search(printed) for line in (READY_LINE, STANDBY_LINE))
