"""A client of one connection that asks one thing at a time, over TLS."""

import socket
import ssl
from typing import Any

from asking import Asker
from semel.testing.certificates import Authority, Files


def tls_socket(
    bootstrap: str, authority: Authority, files: Files | None = None, *, source: str = "", **of_context: Any
) -> ssl.SSLSocket:
    """A connection that trusts the authority; `of_context` are attributes of what it does TLS with."""
    context = ssl.create_default_context(cafile=authority.file)
    for name, value in of_context.items():
        setattr(context, name, value)
    if files is not None:
        context.load_cert_chain(*files)
    host, _, port = bootstrap.rpartition(":")
    connected = socket.create_connection((host, int(port)), 30, source_address=(source, 0))
    return context.wrap_socket(connected, server_hostname=host)


class TlsAsker(Asker):
    """Asks over TLS."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._socket = tls_socket(*arguments, **more)
        self._correlation_id = 0
