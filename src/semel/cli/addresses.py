"""The addresses that people type, HOST:PORT. Every command refuses a wrong one in the same words.

It must never ask the network whether there is such a host: the command that connects or listens finds out.
"""

import re
from typing import Final

from semel.cli.errors import Failure

Address = tuple[str, int]

# A host that has colons itself may stand in brackets.
_ADDRESS: Final = re.compile(r"\[?([^\[\],]*?)\]?:([0-9]{1,5})")
_PORT_MAX: Final = 65_535


def broker_address(text: str) -> Address:
    """Where a broker is."""
    host, port = listening_address(text)
    if not host or not port:
        raise _no_address(text)
    return host, port


def listening_address(text: str) -> Address:
    """Where to listen: without a host it is everywhere, and port 0 is any that is free."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > _PORT_MAX:
        raise _no_address(text)
    return match[1], int(match[2])


def _no_address(text: str) -> Failure:
    return Failure(f"{text!r} is no address: HOST:PORT is, such as 127.0.0.1:9092")
