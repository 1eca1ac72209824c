"""The options of commands that ask a broker of semel where it serves its metrics: the address, the login, and TLS.

The password comes from a file, and never from the command line, where every process on the machine could read it.
"""

import argparse
import ssl
from typing import TYPE_CHECKING

from semel.ui.cli.addresses import broker_address
from semel.ui.cli.errors import Failure
from semel.ui.cli.metrics import OVER_TLS, login_in
from semel.wire.hosts import is_loopback

if TYPE_CHECKING:
    from semel.ui.console.broker_door import BrokerDoor


def add_door(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument(
        "--decisions",
        metavar="[https://]HOST:PORT",
        help=purpose,
    )
    parser.add_argument(
        "--decisions-login-file",
        metavar="FILE",
        help="log in there with the name and the password in this file's first line, NAME:PASSWORD",
    )
    parser.add_argument(
        "--decisions-authority",
        metavar="FILE",
        help="the certificates to trust there, as PEM (the system's)",
    )


def door_in(options: argparse.Namespace) -> "BrokerDoor | None":
    """Where the broker publishes its decisions; None if the user did not say."""
    from semel.ui.console.broker_door import BrokerDoor

    address: str | None = options.decisions
    if not address:
        if options.decisions_login_file or options.decisions_authority:
            raise Failure("--decisions-login-file and --decisions-authority are for --decisions HOST:PORT")
        return None
    if options.decisions_authority and not address.startswith(OVER_TLS):
        raise Failure(f"--decisions-authority is for TLS: write --decisions {OVER_TLS}{address}")
    host, port = broker_address(address.removeprefix(OVER_TLS))
    login = login_in(options.decisions_login_file)
    tls = None
    if address.startswith(OVER_TLS):
        try:
            tls = ssl.create_default_context(cafile=options.decisions_authority)
        except OSError as error:
            raise Failure(f"{options.decisions_authority}: {error.strerror or error}") from None
    elif login is not None and not is_loopback(host):
        raise Failure(f"the password can be read on the way to {address}: write {OVER_TLS}{address}")
    return BrokerDoor(host, port, login, tls)
