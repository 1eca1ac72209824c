"""semel as it was at a commit of the history, on the Python and the libraries of today, to compare what one change
costs. The source comes out of this repository into the cache."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.java import put
from bench.peers.process import SkipReason, cache_dir
from bench.peers.semel import Durability, Semel

ROOT = Path(__file__).parent.parent.parent
SERVE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from semel.ui.cli import main
sys.exit(main())
"""


class SemelBefore(Semel):
    def __init__(self, commit: str, *, durability: Durability = "fsync") -> None:
        super().__init__(durability=durability)
        self._commit = commit

    @property
    def source(self) -> Path:
        return cache_dir() / f"semel-{self._commit}"

    def install(self) -> None:
        super().install()
        if self.source.exists():
            return
        archive = subprocess.run(["git", "archive", self._commit, "src"], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise SkipReason(f"commit {self._commit} is not in the history: {archive.stderr.decode().strip()}")
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_dir()) as staging:
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                files.extractall(staging, filter="data")
            put(Path(staging, "src"), self.source)

    def command(self) -> Sequence[str]:
        _, *arguments = super().command()
        return [sys.executable, "-c", SERVE, str(self.source), *arguments]
