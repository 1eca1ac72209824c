"""Reads addresses that people type, HOST:PORT. Every command refuses a wrong one with the same message.

It must never ask the network whether the host exists: the command that connects or listens finds out.
"""

import re
from typing import Final

from semel.ui.cli.errors import Failure

Address = tuple[str, int]

# Where a broker is on the user's own machine.
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
# A host with colons may be in brackets.
_ADDRESS: Final = re.compile(r"\[?([^\[\],]*?)\]?:([0-9]{1,5})")
_PORT_MAX: Final = 65_535


def broker_address(text: str) -> Address:
    """The host and the port of a broker."""
    host, port = listening_address(text)
    if not host or not port:
        raise _no_address(text)
    return host, port


def listening_address(text: str) -> Address:
    """The host and the port to listen on: no host means every interface, and port 0 means any free port."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > _PORT_MAX:
        raise _no_address(text)
    return match[1], int(match[2])


def _no_address(text: str) -> Failure:
    return Failure(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:9092")
