"""The note of a standby: an object that says where the standby is, and how far it has read. It is for people, and for
the active broker, which names the standbys to clients; nothing else depends on it. A standby replaces its note every
ten seconds, so it costs little if the store charges for each call; the time in the note shows whether that standby
still runs. A broker removes its note when it becomes active or is stopped. If the store does not answer then, the note
stays, and has the same nonce as the lease.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from semel.replica.lease import Addresses
from semel.store import Changed, Exists, Missing, Store
from semel.store.contract import KEY_CHARACTERS_MAX

FOLDER: Final = "standbys"
NOTE_SECONDS: Final = 10.0
# A standby that has not replaced its note for this long has died, or cannot reach the store.
SILENT_SECONDS: Final = 3 * NOTE_SECONDS


class StandbyNote(NamedTuple):
    """The content of the object."""

    # Its addresses for clients, by the names of its listeners.
    addresses: Addresses
    nonce: str
    # The epoch of the last slot that it has read.
    epoch: int
    # How far it has read, in bytes of entries.
    position: int
    # By the clock of its machine, in seconds since 1970.
    noted_at: float


def decode_note(content: bytes) -> StandbyNote | None:
    """The note in these bytes; None if this version of semel cannot read it."""
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
        """Write the note, replacing the one before. After a StoreError the next write may succeed."""
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
                    # Another running standby has the same address: from now on each has its own note.
                    self._key, self._version = f"{self._key}-{note.nonce}", None
                else:
                    # The note is from an earlier process of this standby, or from a call whose answer was lost.
                    self._version = version
            except Missing:
                self._version = None

    async def remove(self) -> None:
        """Remove the note, because this standby is stopped. Raises StoreError."""
        await self._store.delete(self._key)


class NoteWatch:
    """The standbys that run, according to their notes: a standby runs if its note has changed lately. At the first look
    nothing has changed yet, so the time in the note decides, by the clocks of both machines.
    """

    def __init__(self, store: Store, nonces: Collection[str]) -> None:
        """The notes with these nonces do not count: they are of brokers that were active, and of the watching one."""
        self._store = store
        self._nonces = nonces
        # By key: the note, and when it had changed.
        self._noted: dict[str, tuple[StandbyNote, float]] = {}
        self._has_looked = False

    async def look(self, now: float, wall_now: float) -> Sequence[Addresses]:
        """Read all notes; return where each standby is. `now` is the time by a clock that only goes forward, and
        `wall_now` the seconds since 1970. Raises StoreError.
        """
        noted: dict[str, tuple[StandbyNote, float]] = {}
        async for listed in self._store.list(FOLDER):
            try:
                note = decode_note((await self._store.get(listed.key)).body)
            except Missing:
                continue
            if note is not None and note.nonce not in self._nonces:
                before = self._noted.get(listed.key)
                if before is not None and before[0] == note:
                    noted[listed.key] = before
                else:
                    silent_seconds = 0.0 if self._has_looked else max(wall_now - note.noted_at, 0.0)
                    noted[listed.key] = note, now - silent_seconds
        self._noted, self._has_looked = noted, True
        return [note.addresses for note, changed in noted.values() if now - changed <= SILENT_SECONDS]
