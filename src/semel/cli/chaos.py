"""`semel chaos`: the run of `semel.chaos.run` against a broker of its own, with its figures."""

import argparse
import contextlib
import importlib.util
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from typing import Final

from semel.chaos.run import run as run_on_a_lossy_network
from semel.cli.errors import Failure

EXAMPLE: Final = "  semel chaos --seconds 60 --seed 7"

_METRICS_SECONDS_MAX: Final = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long to produce (60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what chance begins from (1)")


def run(options: argparse.Namespace) -> int:
    """Print the figures; 1 if a promise was broken."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("the producers are confluent-kafka's, which is not here: pip install confluent-kafka")
    with _own_broker() as (bootstrap, metrics):
        report = run_on_a_lossy_network(
            bootstrap, lambda: _duplicates_in(metrics), seconds=options.seconds, seed=options.seed, note=_note
        )
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print("\n".join(report.lines()))
    for violation in report.violations:
        print(f"semel: {violation}", file=sys.stderr)
    return 1 if report.violations else 0


def _note(progress: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _own_broker() -> Iterator[tuple[str, str]]:
    """The addresses of a broker of our own, a process on a directory that is gone afterwards, and of its metrics."""
    with tempfile.TemporaryDirectory(prefix="semel-chaos-") as data:
        command = [sys.executable, "-m", "semel", "serve", "--listen", "127.0.0.1:0", "--data", data]
        metrics = f"127.0.0.1:{_free_port()}"
        process = subprocess.Popen([*command, "--metrics", metrics], stdout=subprocess.PIPE, text=True)
        try:
            words = process.stdout.readline().split() if process.stdout is not None else []
            if words[:3] != ["semel", "ready", "on"]:
                raise Failure("the broker did not start")
            yield words[3], metrics
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _duplicates_in(metrics: str) -> int:
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=_METRICS_SECONDS_MAX) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('semel_batches_total{outcome="duplicate"} '):
                return int(line.rpartition(" ")[2])
    raise Failure("the metrics say nothing of duplicates")
