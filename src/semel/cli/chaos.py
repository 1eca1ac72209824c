"""`semel chaos`: a faulty network before a broker of the user's, or runs against a broker of its own, with figures."""

import argparse
import contextlib
import importlib.util
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from typing import Final

from semel.chaos.copy import CopyPlan, copy
from semel.chaos.run import run as run_on_a_lossy_network
from semel.chaos.undisturbed import undisturbed
from semel.cli import chaos_proxy
from semel.cli.errors import Failure
from semel.cli.subcommands import add_subcommand

EXAMPLE: Final = (
    f"{chaos_proxy.EXAMPLE}\n  semel chaos --seconds 60 --seed 7\n  semel chaos copy --records 100000 --kills 10"
)

_TRIAL_SECONDS: Final = 60.0
_SEED: Final = 1

_METRICS_SECONDS_MAX: Final = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    chaos_proxy.configure(parser)
    _add_seed(parser, default=None)
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="how long the proxy stands there (until Ctrl-C); without --upstream, how long to produce (60)",
    )
    purpose = "copy records by transactions, and kill workers and broker on the way"
    own = add_subcommand(parser.add_subparsers(dest="run_of", metavar="copy"), "copy", purpose)
    own.add_argument("--records", type=_count, default=100_000, metavar="N", help="how many to copy (100000)")
    own.add_argument("--workers", type=_count, default=2, metavar="N", help="processes that copy (2)")
    own.add_argument("--transaction", type=_count, default=500, metavar="N", help="records per transaction (500)")
    own.add_argument("--kills", type=int, default=10, metavar="N", help="kills of each worker and of the broker (10)")
    _add_seed(own, default=_SEED)


def run(options: argparse.Namespace) -> int:
    """Print the figures; 1 if a promise was broken."""
    if options.upstream is not None:
        if options.run_of is not None:
            raise Failure(f"{options.run_of} has a broker of its own, and takes no --upstream")
        return chaos_proxy.run(options)
    if alone := chaos_proxy.given(options):
        raise Failure(f"{alone[0]} is for a proxy before a broker of yours, which --upstream names")
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("the clients are confluent-kafka's, which is not here: pip install confluent-kafka")
    with _OwnBroker() as broker:
        try:
            return _copy(broker, options) if options.run_of == "copy" else _lossy_network(broker, options)
        except RuntimeError as stopped:
            raise Failure(str(stopped)) from stopped


def _lossy_network(broker: "_OwnBroker", options: argparse.Namespace) -> int:
    report = run_on_a_lossy_network(
        broker.bootstrap,
        broker.duplicates,
        seconds=_TRIAL_SECONDS if options.seconds is None else options.seconds,
        seed=_SEED if options.seed is None else options.seed,
        note=_note,
    )
    return _tell(report.lines(), report.violations)


def _copy(broker: "_OwnBroker", options: argparse.Namespace) -> int:
    plan = CopyPlan(options.records, options.workers, options.transaction, options.kills, options.seed)
    report = copy(broker, plan, note=_note)
    return _tell(report.lines(), report.violations)


def _tell(lines: Sequence[str], violations: Sequence[str]) -> int:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print("\n".join(lines))
    for violation in violations:
        print(f"semel: {violation}", file=sys.stderr)
    return 1 if violations else 0


def _note(progress: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)


def _add_seed(parser: argparse.ArgumentParser, default: int | None) -> None:
    parser.add_argument("--seed", type=int, default=default, metavar="N", help=f"what chance begins from ({_SEED})")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


class _OwnBroker:
    """A broker of our own, a process on a directory that is gone afterwards; after a kill it comes back at the same
    address."""

    def __init__(self) -> None:
        self.bootstrap = "127.0.0.1:0"
        self._metrics = f"127.0.0.1:{_free_port()}"
        self._process: subprocess.Popen[str] | None = None
        self._closing = contextlib.ExitStack()
        self._data = ""

    def __enter__(self) -> "_OwnBroker":
        self._data = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="semel-chaos-"))
        self._closing.callback(self._stop)
        try:
            self.start()
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start(self) -> None:
        command = [sys.executable, "-m", "semel", "serve", "--listen", self.bootstrap, "--data", self._data]
        with undisturbed():
            self._process = subprocess.Popen(
                [*command, "--metrics", self._metrics],
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C is for the command, which ends it.
                process_group=0,
            )
        words = self._process.stdout.readline().split() if self._process.stdout is not None else []
        if words[:3] != ["semel", "ready", "on"]:
            raise Failure("the broker did not start")
        self.bootstrap = words[3]

    def kill(self) -> None:
        """End it as the kernel does: at once, whatever it was doing."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def duplicates(self) -> int:
        """How many batches were recognised as repetitions since the last start, as the broker counts them."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=_METRICS_SECONDS_MAX) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith('semel_batches_total{outcome="duplicate"} '):
                    return int(line.rpartition(" ")[2])
        raise Failure("the metrics say nothing of duplicates")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
