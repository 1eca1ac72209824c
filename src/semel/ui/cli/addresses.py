"""Reads addresses that people type, HOST:PORT. Every command refuses a wrong one with the same message.

It must never ask the network whether the host exists: the command that connects or listens finds out.
"""

from typing import Final

from semel.ui.cli.errors import Failure
from semel.wire.hosts import address_of

Address = tuple[str, int]

# Where a broker is on the user's own machine.
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"


def broker_address(text: str) -> Address:
    """The host and the port of a broker."""
    host, port = listening_address(text)
    if not host or not port:
        raise _no_address(text)
    return host, port


def listening_address(text: str) -> Address:
    """The host and the port to listen on: no host means every interface, and port 0 means any free port."""
    address = address_of(text)
    if address is None:
        raise _no_address(text)
    return address


def _no_address(text: str) -> Failure:
    return Failure(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:9092")
