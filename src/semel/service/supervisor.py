"""Tells the service manager that has started this process how it is, as `Type=notify` of systemd wants it.

It sends to the socket that NOTIFY_SOCKET names, and does nothing where there is none. A manager that does not listen
must never keep a program from its work.
"""

import os
import socket
from contextlib import suppress
from functools import cache


def notify(*states: str) -> None:
    """Send states such as `READY=1`; see sd_notify(3)."""
    address = _address()
    if address is None:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.sendto("\n".join(states).encode(), address)


@cache
def _address() -> str | None:
    """It is taken out of the environment, because a process that this one starts must not speak for it."""
    address = os.environ.pop("NOTIFY_SOCKET", None)
    # The name of an abstract socket begins with an @ there.
    return "\0" + address[1:] if address is not None and address.startswith("@") else address
