"""The options that each of these programs takes, for `semel` as for `manage.py`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.wire.hosts import address_of

# Less than the half minute that Kubernetes gives a program between SIGTERM and SIGKILL.
GRACE_SECONDS: Final = 20.0
BEHIND_SECONDS: Final = 60.0
_LOOPBACK: Final = "127.0.0.1"


class ServiceRefused(ValueError):
    """An option cannot be what it is."""


@dataclass(frozen=True)
class Options:
    # The host and the port of /metrics, /live and /ready.
    metrics: tuple[str, int] | None = None
    is_json: bool = False
    grace_seconds: float = GRACE_SECONDS
    behind_seconds: float = BEHIND_SECONDS


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--metrics", metavar="HOST:PORT", help="serve /metrics, /live and /ready here; port 0 picks a free one")
    add("--log-format", choices=("text", "json"), default="text", help="json: an object to a line, times in UTC (text)")
    add(
        "--grace",
        type=float,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help=f"how long it may take after SIGTERM to finish what it holds ({GRACE_SECONDS:g})",
    )
    add(
        "--behind",
        type=float,
        default=BEHIND_SECONDS,
        metavar="SECONDS",
        help=f"/ready says no when what waits has waited for longer ({BEHIND_SECONDS:g})",
    )


def options_of(words: Mapping[str, Any]) -> Options:
    """From the words of a command line, by their names."""
    address = None
    if words["metrics"] is not None:
        address = address_of(words["metrics"])
        if address is None:
            raise ServiceRefused(f"{words['metrics']!r} is not an address: write HOST:PORT, such as 127.0.0.1:9464")
        # The figures have no login, so nobody opens them to the network by a host that is left out.
        address = address[0] or _LOOPBACK, address[1]
    for name in ("grace", "behind"):
        if not 0 <= words[name] <= 1_000_000:
            raise ServiceRefused(f"--{name} takes a number of seconds from 0 to 1000000, not {words[name]:g}")
    return Options(address, words["log_format"] == "json", words["grace"], words["behind"])
