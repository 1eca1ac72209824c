"""A free port, for a program that cannot take port 0 and say which one it got. This must never open a connection."""

import socket


def free_port() -> int:
    """A port of this machine that nobody uses; another program may take it before the caller does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
