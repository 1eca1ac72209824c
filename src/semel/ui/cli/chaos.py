"""`semel chaos`: a faulty network in front of the user's broker, or trials with the command's own broker."""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

from semel.chaos.copy import CopyPlan, copy
from semel.chaos.run import run as run_on_a_lossy_network
from semel.testing.served import ServedBroker
from semel.ui.cli import chaos_proxy
from semel.ui.cli.errors import Failure
from semel.ui.cli.subcommands import add_subcommand, count, positive, seconds

EXAMPLE: Final = (
    f"{chaos_proxy.EXAMPLE}\n  semel chaos --seconds 60 --seed 7\n  semel chaos copy --records 100000 --kills 10"
)

_TRIAL_SECONDS: Final = 60.0
_SEED: Final = 1

_DUPLICATES: Final = 'semel_batches_total{outcome="duplicate"}'


def configure(parser: argparse.ArgumentParser) -> None:
    chaos_proxy.configure(parser)
    _add_seed(parser, default=None)
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="N",
        help="how long the proxy stands there (until Ctrl-C); without --upstream, how long to produce (60), and longer "
        "if a kind of fault has not struck yet",
    )
    purpose = "copy records by transactions, and kill workers and broker on the way"
    own = add_subcommand(parser.add_subparsers(dest="run_of", metavar="copy"), "copy", purpose)
    own.add_argument("--records", type=positive, default=100_000, metavar="N", help="how many to copy (100000)")
    own.add_argument("--workers", type=positive, default=2, metavar="N", help="processes that copy (2)")
    own.add_argument("--transaction", type=positive, default=500, metavar="N", help="records per transaction (500)")
    own.add_argument("--kills", type=count, default=10, metavar="N", help="kills of each worker and of the broker (10)")
    _add_seed(own, default=_SEED)


def run(options: argparse.Namespace) -> int:
    """Print the figures; 1 if a promise was broken."""
    if options.upstream is not None:
        if options.run_of is not None:
            raise Failure(f"{options.run_of} has a broker of its own, and takes no --upstream")
        return chaos_proxy.run(options)
    if alone := chaos_proxy.network_options(options):
        raise Failure(f"{alone[0]} is for a proxy in front of your own broker, which --upstream names")
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("this command needs confluent-kafka, which is missing: pip install confluent-kafka")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="semel-chaos-") as data,
            ServedBroker(data, metrics=True) as broker,
        ):
            return _copy(broker, options) if options.run_of == "copy" else _lossy_network(broker, options)
    except RuntimeError as stopped:
        raise Failure(str(stopped)) from stopped


def _lossy_network(broker: ServedBroker, options: argparse.Namespace) -> int:
    report = run_on_a_lossy_network(
        broker.bootstrap,
        lambda: int(broker.metrics()[_DUPLICATES]),
        seconds=_TRIAL_SECONDS if options.seconds is None else options.seconds,
        seed=_SEED if options.seed is None else options.seed,
        note=_note,
    )
    return _tell(report.lines(), report.violations)


def _copy(broker: ServedBroker, options: argparse.Namespace) -> int:
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
    parser.add_argument(
        "--seed", type=int, default=default, metavar="N", help=f"the seed of the random choices ({_SEED})"
    )
