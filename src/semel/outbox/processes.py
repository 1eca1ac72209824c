"""The name of this process, as other relays read it in the database, and whether the process of such a name has died.

A host name and a process number are not enough to know that: containers may share a host name, and number their
processes each for itself. So a name has the boot of the machine, the namespace of the numbers, and the time at which
the process began. This module must never take a living process for a dead one; where it cannot know, it says no.
"""

import os
import re
import socket
from hashlib import sha256
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"process ([0-9]+) on .*#([0-9a-f]+)-([0-9]+)", re.DOTALL)
_DIGITS: Final = 16


def own_name() -> str:
    """The name of this process; on a system without /proc, it is one that nobody can judge."""
    name = f"process {os.getpid()} on {socket.gethostname()}"
    place, began = _place(), _began(os.getpid())
    return name if place is None or began is None else f"{name}#{place}-{began}"


def is_dead(name: str) -> bool:
    """Whether the process of this name is known to have died, because its number is one of those that are seen from
    here. So a relay that was killed and started again goes on at once."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] != _place():
        return False
    number = int(match[1])
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    began = _began(number)
    return began is not None and began != match[3]


def _place() -> str | None:
    """This boot of the machine, and the namespace of this process's number; None if the system does not say."""
    try:
        # Of another namespace, if somebody has mounted that one's.
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        boot, namespace = Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:_DIGITS]


def _began(number: int) -> str | None:
    """When the process of this number began, in ticks since the boot; None if the system does not say."""
    try:
        return Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
