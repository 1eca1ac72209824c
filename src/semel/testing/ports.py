"""A free port, for a program that cannot take port 0 and say which one it got, or that has to come back at its port.
This must never open a connection.

The system gives out ports from another range, to programs that take port 0 and to every connection. A port that was
free a moment ago would be somebody else's by the time the program is up; with hundreds of tests at a time that happens.
"""

import os
import random
import socket
from collections import deque
from typing import Final

_HOST: Final = "127.0.0.1"
# Below those that Linux (from 32768) and macOS (from 49152) give out.
_PORTS: Final = range(20_000, 32_000)
_TRIES: Final = 1_000
# Each is a file that this process holds open.
_HELD_MAX: Final = 64

_choice: Final = random.SystemRandom()
# The descriptors of UDP sockets with the numbers that this process has been given: they disturb no program that listens
# for TCP, and tell this function in other processes that the number is taken. The oldest are given back first.
_held: Final[deque[int]] = deque()


def free_port() -> int:
    """A port of this machine that nobody uses, and that no other caller gets soon, in this process or another one."""
    for _ in range(_TRIES):
        port = _choice.choice(_PORTS)
        number = socket.socket(type=socket.SOCK_DGRAM)
        try:
            number.bind((_HOST, port))
            with socket.socket() as probe:
                probe.bind((_HOST, port))
        except OSError:
            number.close()
            continue
        _held.append(number.detach())
        if len(_held) > _HELD_MAX:
            os.close(_held.popleft())
        return port
    raise OSError(f"none of {_TRIES} ports from {_PORTS.start} to {_PORTS.stop - 1} is free")
