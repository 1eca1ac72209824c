"""The cursor as it stands in the log: how far a name is, and which instance says so.

Besides the number it names the instance, so that one that was fenced can say by whom. What cannot be read is refused:
not knowing how far a name is must never pass for not having begun.
"""

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from typing import Final

_FORMAT: Final = 1
_RANDOM_BYTES: Final = 8


class NoCursor(ValueError):
    """A record that is no cursor, or one of a later version of semel."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One life of a publisher: where it runs, and since when. The random part tells two lives of one process apart."""

    host: str
    pid: int
    random: str
    since_ms: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last number of a name, and who wrote it when."""

    number: int
    instance: Instance
    at_ms: int


def this_instance(now_ms: int) -> Instance:
    """A new life, in this process."""
    return Instance(socket.gethostname(), os.getpid(), secrets.token_hex(_RANDOM_BYTES), now_ms)


def encode(cursor: Cursor) -> bytes:
    """The value of a cursor's record."""
    return json.dumps({"format": _FORMAT, **asdict(cursor)}, separators=(",", ":")).encode()


def decode(value: bytes | None) -> Cursor:
    """A cursor from its record; else `NoCursor` says why."""
    try:
        told = json.loads(value or b"")
        if told["format"] != _FORMAT:
            raise NoCursor(f"a cursor has format {told['format']!r}, and this version of semel knows {_FORMAT}")
        instance = told["instance"]
        return Cursor(
            int(told["number"]),
            Instance(str(instance["host"]), int(instance["pid"]), str(instance["random"]), int(instance["since_ms"])),
            int(told["at_ms"]),
        )
    except NoCursor:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise NoCursor(f"a record is no cursor: {error!r}") from None
