"""The note of a standby: an object that says where the standby is, and how far it has read. It is for people, and for
the active broker, which names the standbys to clients; nothing else depends on it. A standby replaces its note every
ten seconds, so it costs little if the store charges for each call; the time in the note shows whether that standby
still runs. A broker removes its note when it becomes active or is stopped. If the store does not answer then, the note
stays, and has the same nonce as the lease. The note of a standby that died stays, too, until the active broker has seen
no change of it for a day. Nothing that lies among the notes may keep the active broker from answering its clients.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, NamedTuple

from semel.log.replica.lease import Addresses, decode_addresses
from semel.log.replica.record import UNREADABLE, decode_record, encode_record
from semel.log.store import Changed, Exists, Missing, Store, StoreError
from semel.log.store.contract import KEY_CHARACTERS_MAX

FOLDER: Final = "standbys"
NOTE_SECONDS: Final = 10.0
# A standby that has not replaced its note for this long has died, or cannot reach the store.
SILENT_SECONDS: Final = 3 * NOTE_SECONDS
# A standby that disappeared is shown to people for a day, and its note is removed then: the active broker reads all of
# them again and again.
FORGOTTEN_SECONDS: Final = 86_400.0
# What is larger than this is no note.
_NOTE_BYTES_MAX: Final = 64 * 1024


class StandbyNote(NamedTuple):
    """The content of the object."""

    # Its addresses for clients, by the names of its listeners.
    addresses: Addresses
    nonce: str
    # The epoch of the last slot that it has read.
    epoch: int
    # How far it has read, in bytes of entries.
    position: int
    # How far the active broker had sent slots, as far as this standby knew then.
    active_position: int
    # By the clock of its machine, in seconds since 1970.
    noted_at: float

    @property
    def behind_bytes(self) -> int:
        """How many bytes of entries the standby had yet to read, as far as it knew."""
        return max(self.active_position - self.position, 0)


def decode_note(content: bytes) -> StandbyNote | None:
    """The note in these bytes; None if this version of semel cannot read it, or could not tell clients of it."""
    try:
        fields = decode_record(FOLDER, content)
        addresses, noted_at = decode_addresses(fields.pop("addresses")), float(fields.pop("noted_at"))
        note = StandbyNote(addresses=addresses, noted_at=noted_at, **fields)
        is_sane = note.noted_at + note.position + note.active_position + note.epoch >= 0
        return note if addresses and is_sane else None
    except UNREADABLE:
        return None


async def notes_in(store: Store) -> AsyncIterator[tuple[str, bytes]]:
    """The key and the content of each note. Raises StoreError."""
    async for listed in store.list(FOLDER):
        if listed.size_bytes > _NOTE_BYTES_MAX:
            continue
        try:
            content = (await store.get(listed.key)).body
        except (Missing, ValueError):
            # It was just removed, or has a key that is none of semel's: another program put it there.
            continue
        yield listed.key, content


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
        content = encode_record(FOLDER, note._asdict())
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


class _Seen(NamedTuple):
    """A note as it was at the last look, and when it had changed."""

    content: bytes
    note: StandbyNote | None
    changed: float


class NoteWatch:
    """The standbys that run, according to their notes: a standby runs if its note has changed lately. At the first look
    nothing has changed yet, so the time in the note decides, by the clocks of both machines.
    """

    def __init__(self, store: Store, nonces: Collection[str]) -> None:
        """The notes with these nonces do not count: they are of brokers that were active, and of the watching one."""
        self._store = store
        self._nonces = nonces
        # By key.
        self._seen: dict[str, _Seen] = {}
        self._has_looked = False

    async def look(self, now: float, wall_now: float) -> Sequence[Addresses]:
        """Read all notes, and remove those of standbys that disappeared; return where each standby is. `now` is the
        time by a clock that only goes forward, and `wall_now` the seconds since 1970. Raises StoreError.
        """
        seen: dict[str, _Seen] = {}
        async for key, content in notes_in(self._store):
            before = self._seen.get(key)
            if before is not None and before.content == content:
                seen[key] = before
                continue
            note = decode_note(content)
            silent_seconds = 0.0 if self._has_looked or note is None else max(wall_now - note.noted_at, 0.0)
            seen[key] = _Seen(content, note, now - silent_seconds)
        self._seen, self._has_looked = seen, True
        for key, one in seen.items():
            if now - one.changed > FORGOTTEN_SECONDS:
                # Should it run after all, it writes another one.
                with contextlib.suppress(StoreError):
                    await self._store.delete(key)
        return [
            note.addresses
            for _, note, changed in seen.values()
            if note is not None and note.nonce not in self._nonces and now - changed <= SILENT_SECONDS
        ]
