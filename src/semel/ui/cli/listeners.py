"""Reads the listeners of `semel serve` from `--listen` and `--advertise`.

    --listen 127.0.0.1:9092
    --listen OUTSIDE=PLAINTEXT://0.0.0.0:9094 --advertise OUTSIDE=log.example.org:9094

It must never open a socket: the broker finds out whether an address is free.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from semel.log.listeners import Listener, ListenersRefused, SecurityProtocol, check_listeners
from semel.ui.cli.addresses import listening_address
from semel.ui.cli.errors import Failure

LISTEN_DEFAULT: Final = "127.0.0.1:9092"
_LISTENER: Final = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)=)?(?:(?P<protocol>[A-Za-z_]+)://)?(?P<address>[^=/]*)")
_ADVERTISED: Final = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]+)=)?(?P<address>[^=/]+)")
# Clients cannot connect to these addresses, which mean all interfaces.
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


def listeners_of(listen: Sequence[str], advertise: Sequence[str], *, insecure: bool) -> list[Listener]:
    """The listeners that these options name; `Failure` if the options are not valid."""
    listeners = [_listener(text) for text in listen or (LISTEN_DEFAULT,)]
    for text in advertise:
        listeners = _advertised(listeners, text)
    listeners = [
        replace(listener, advertised_host=socket.gethostname())
        if listener.advertised_host is None and listener.host in _EVERYWHERE
        else listener
        for listener in listeners
    ]
    try:
        check_listeners(listeners, insecure=insecure)
    except ListenersRefused as error:
        raise Failure(str(error)) from None
    return listeners


def _listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise Failure(f"{text!r} is not a listener: write HOST:PORT or NAME=PROTOCOL://HOST:PORT")
    written = (match["protocol"] or SecurityProtocol.PLAINTEXT).upper()
    if written not in list(SecurityProtocol):
        raise Failure(f"{match['protocol']!r} is not a protocol of a listener: choose {', '.join(SecurityProtocol)}")
    protocol = SecurityProtocol(written)
    host, port = listening_address(match["address"])
    return Listener(match["name"] or protocol, protocol, host, port)


def _advertised(listeners: list[Listener], text: str) -> list[Listener]:
    """The same listeners, after one of them got the advertised address in this text."""
    match = _ADVERTISED.fullmatch(text)
    if match is None:
        raise Failure(f"{text!r} is not an address to advertise: write HOST:PORT or NAME=HOST:PORT")
    name, address = match["name"], match["address"]
    names = [listener.name for listener in listeners]
    if name is None and len(listeners) > 1:
        raise Failure(f"--advertise {text}: there are several listeners; say --advertise NAME={text}")
    if name is not None and name not in names:
        raise Failure(f"--advertise {text}: there is no listener {name!r}, only {', '.join(names)}")
    host, port = listening_address(address) if re.search(r":\d+$", address) else (address, None)
    return [
        replace(listener, advertised_host=host, advertised_port=port)
        if listener.name == (name or names[0])
        else listener
        for listener in listeners
    ]


def shown(listeners: Sequence[Listener]) -> str:
    """The address of the listener; of several listeners, each with its name and protocol."""
    if len(listeners) == 1:
        return listeners[0].address
    return ", ".join(f"{listener.name}={listener.protocol}://{listener.address}" for listener in listeners)
