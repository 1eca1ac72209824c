"""The note of a broker that stands by: an object that says where it is, and how far it has read.

It is for people alone: no broker reads one. A standby replaces its note every ten seconds, so it costs little where
each call costs money; who reads it sees by the time in it whether that standby is still there. A broker that has become
active has one still, and the lease says by the same nonce that it is this one. It goes when the broker is stopped.
"""

import json
import re
from typing import Any, Final, NamedTuple

from semel.replica.lease import Addresses
from semel.store import Changed, Exists, Missing, Store
from semel.store.contract import KEY_CHARACTERS_MAX

FOLDER: Final = "standbys"
NOTE_SECONDS: Final = 10.0


class StandbyNote(NamedTuple):
    """What the object says."""

    # By the names of its listeners: where clients reach it.
    addresses: Addresses
    nonce: str
    # The epoch of the last slot that it has read.
    epoch: int
    # Up to where it has read, in bytes of entries.
    position: int
    # By the clock of its machine, in seconds since 1970.
    noted_at: float


def decode_note(content: bytes) -> StandbyNote | None:
    """The note that was read; None if it is none that this semel knows."""
    try:
        fields: dict[str, Any] = json.loads(content)
        addresses = {str(name): (str(host), int(port)) for name, (host, port) in fields.pop("addresses").items()}
        note = StandbyNote(addresses=addresses, **fields)
        return note if addresses and note.noted_at + note.position + note.epoch >= 0 else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


class NoteKeeper:
    """The note of one standby. Its key is the address of its first listener, so that a standby has one note however
    often it is started. If two have the same address, one adds its nonce."""

    def __init__(self, store: Store, addresses: Addresses) -> None:
        self._store = store
        host, port = next(iter(addresses.values()))
        name = re.sub(r"[^A-Za-z0-9_-]", "-", f"{host}-{port}")
        self._key = f"{FOLDER}/{name[-KEY_CHARACTERS_MAX // 2 :]}"
        self._version: str | None = None

    async def put(self, note: StandbyNote) -> None:
        """Write it, over the one before. Raises StoreError; the next one may succeed."""
        content = json.dumps(note._asdict()).encode()
        while True:
            try:
                if self._version is None:
                    self._version = await self._store.create(self._key, content)
                else:
                    self._version = await self._store.replace(self._key, content, self._version)
                return
            except (Exists, Changed):
                content_found, version = await self._store.get(self._key)
                found = decode_note(content_found)
                if self._version is not None and found is not None and found.nonce != note.nonce:
                    # Another standby says the same address, and is there: from now on each has its own.
                    self._key, self._version = f"{self._key}-{note.nonce}", None
                else:
                    # It is from an earlier life of this standby, or was written by a call whose answer was lost.
                    self._version = version
            except Missing:
                self._version = None

    async def remove(self) -> None:
        """This standby is stopped, and nobody need miss it. Raises StoreError."""
        await self._store.delete(self._key)
