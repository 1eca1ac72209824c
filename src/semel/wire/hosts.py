"""Hosts in addresses and in Host headers: reads and shows them with a port, and says whether they are the loopback or
the server's own.

The rule for Host headers prevents DNS rebinding. A browser may show a page of another site, whose owner makes its name
resolve to this machine. The browser then takes requests of that page to this machine for requests to the page's own
site, but sends the name of that site as the Host. Nothing here may resolve a name.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

# An IPv6 address in brackets, or anything without brackets and colons; and perhaps a port.
_HOST: Final = re.compile(r"(\[[^\[\]:]*:[^\[\]]*\]|[^\[\]:]*)(?::[0-9]*)?")
# A host with colons may be in brackets.
_ADDRESS: Final = re.compile(r"\[?([^\[\],]*?)\]?:([0-9]{1,5})")
_PORT_MAX: Final = 65_535


def address_of(text: str) -> tuple[str, int] | None:
    """The host, which may be empty, and the port in HOST:PORT; None if this is no address."""
    match = _ADDRESS.fullmatch(text)
    return None if match is None or int(match[2]) > _PORT_MAX else (match[1], int(match[2]))


def shown_address(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can connect to a listener on this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether a Host header has an address in digits, `localhost`, or one of these names, which the operator has
    chosen: no attacker can make one of them resolve to this machine.
    """
    match = _HOST.fullmatch(host)
    name = match[1].strip("[]").lower() if match else ""
    if name and name in {"localhost", *(one.lower() for one in names)}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
