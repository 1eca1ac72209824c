"""`semel chaos --upstream`: the faulty network of `semel.chaos` in front of the user's own broker, for any client.

At the end it prints the count of each fault, even of those that never happened, so that there is no doubt about what
happened.
"""

import argparse
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from semel.chaos.plan import Fault
from semel.chaos.plan_file import PlanRefused, PlanSettings, read_plan
from semel.chaos.proxy import ChaosProxy
from semel.ui.cli.addresses import broker_address, listening_address
from semel.ui.cli.display import tell
from semel.ui.cli.errors import Ended, Failure

EXAMPLE: Final = (
    "  semel chaos --upstream 127.0.0.1:9092 --listen 127.0.0.1:9192 --drop-ack 0.02 --cut 0.001 --delay 50:0.1\n"
    "  semel chaos --upstream 127.0.0.1:9092 --plan faults.toml --seconds 60"
)

# The faults that may happen to a message at random, with a description of each.
_BY_CHANCE: Final = {
    Fault.DROP_ACK: "an answer to Produce is lost, after the broker has stored the batch",
    Fault.CUT: "a part of a request arrives, then the connection ends",
    Fault.RESET: "the connection is reset in place of a request",
    Fault.TRUNCATE: "an answer ends in its middle, and the connection with it",
    Fault.DRIBBLE: "a message arrives byte by byte",
}
# Rare enough that clients get work done between two hangs.
_HANG_LIKELIHOOD: Final = 0.001


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a proxy in front of your own broker").add_argument
    add("--upstream", metavar="HOST:PORT", help="run a proxy with faults in front of this broker")
    add("--listen", metavar="HOST:PORT", help="where the proxy's clients connect (127.0.0.1:0)")
    add("--advertise", metavar="HOST", help="the name by which clients reach the proxy, if it is not that of --listen")
    add(
        "--plan",
        type=Path,
        metavar="FILE",
        help="a plan of faults, in TOML or JSON; an option here overrides it",
    )
    for fault, what in _BY_CHANCE.items():
        add(_option(fault), type=_likelihood, metavar="P", help=f"the probability that {what}")
    add("--delay", type=_timed(1.0), metavar="MS[:P]", help="an answer comes up to MS late, with probability P (1)")
    add(
        "--hang",
        type=_timed(_HANG_LIKELIHOOD),
        metavar="MS[:P]",
        help=f"from a request on, nothing passes for MS milliseconds, with probability P ({_HANG_LIKELIHOOD})",
    )


def network_options(options: argparse.Namespace) -> list[str]:
    """The options on the command line that are only for a proxy."""
    names = ["--listen", "--advertise", "--plan", *map(_option, _BY_CHANCE), "--delay", "--hang"]
    return [name for name in names if getattr(options, name[2:].replace("-", "_")) is not None]


def run(options: argparse.Namespace) -> int:
    """Run the proxy until a signal comes or the time is up, and print the counts."""
    broker_address(options.upstream)
    host, port = listening_address(options.listen or "127.0.0.1:0")
    if host in ("0.0.0.0", "::", "") and options.advertise is None:
        raise Failure(f"clients cannot connect to {host or 'no host'}: say with --advertise how they reach the proxy")
    plan = _settings(options).plan()
    proxy = ChaosProxy(options.upstream, plan, host=host, port=port, advertise=options.advertise)
    try:
        proxy.start()
        with contextlib.suppress(Ended):
            tell(f"semel chaos ready on {proxy.bootstrap}, before {options.upstream}")
            threading.Event().wait(options.seconds)
        proxy.stop()
    except OSError as error:
        raise Failure(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    print("\n".join(_lines(proxy)))
    return 0


def _settings(options: argparse.Namespace) -> PlanSettings:
    """The settings of the file, overridden by the command line."""
    try:
        settings = PlanSettings() if options.plan is None else read_plan(options.plan)
    except PlanRefused as refused:
        raise Failure(str(refused)) from refused
    for fault in _BY_CHANCE:
        likelihood = getattr(options, fault.value)
        if likelihood is not None:
            settings.odds[fault] = likelihood
    if options.delay is not None:
        settings.delay_ms_max, settings.odds[Fault.DELAY] = options.delay
    if options.hang is not None:
        settings.hang_ms, settings.odds[Fault.HANG] = options.hang
    if options.seed is not None:
        settings.seed = options.seed
    return settings


def _lines(proxy: ChaosProxy) -> list[str]:
    counts = {"connections": proxy.connections, "requests": proxy.plan.requests}
    counts |= {fault.value.replace("_", " "): proxy.fired[fault] for fault in Fault}
    return [f"{what:12} {count:10,}" for what, count in counts.items()]


def _option(fault: Fault) -> str:
    return f"--{fault.value.replace('_', '-')}"


def _likelihood(text: str) -> float:
    try:
        likelihood = float(text)
    except ValueError:
        likelihood = -1.0
    if not 0 <= likelihood <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a probability, between 0 and 1")
    return likelihood


def _timed(likelihood: float) -> Callable[[str], tuple[int, float]]:
    """Reads `MS` or `MS:P`, where the probability may be left out."""

    def read(text: str) -> tuple[int, float]:
        duration, _, odds = text.partition(":")
        if not duration.isdecimal():
            raise argparse.ArgumentTypeError(f"{text} is not MS or MS:P, as in 50:0.1")
        return int(duration), _likelihood(odds) if odds else likelihood

    return read
