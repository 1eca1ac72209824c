"""The journal of a broker on a store: holds entries until slots contain them and are durable.

It replaces `semel.log.storage.journal.Journal`, and holds entries in memory until they are durable; until then the
broker does not acknowledge them. Above a limit it accepts no more entries: so if the store does not answer, clients
have to retry, but the broker's memory does not grow.
"""

import errno
from collections import deque

from semel.log.replica.slot import encode_entry
from semel.log.storage.files import Buffer


class SlotJournal:
    """Positions are counts of bytes in the bodies of all slots."""

    def __init__(self, pending_bytes_max: int) -> None:
        """It holds at most `pending_bytes_max`, but always accepts one entry."""
        self._pending_bytes_max = pending_bytes_max
        self._entries: deque[bytes] = deque()
        self.end = 0
        # The position after the last entry that a slot contains.
        self.slot_end = 0
        self.synced = 0
        # The position at which a checkpoint began: a slot ends there, and the next one begins.
        self.cut = -1

    def append(self, kind: int, parts: list[Buffer]) -> int:
        """Hold an entry; return the position after it. OSError means that nothing was appended."""
        entry = encode_entry(kind, parts)
        pending = self.end - self.synced
        if pending and pending + len(entry) > self._pending_bytes_max:
            raise OSError(errno.EBUSY, f"{pending} bytes wait for the store, the most that may wait")
        self._entries.append(entry)
        self.end += len(entry)
        return self.end

    def take(self, bytes_max: int) -> list[bytes]:
        """The oldest entries that no slot contains yet: up to this many bytes, or one entry; none beyond the cut."""
        entries: list[bytes] = []
        size = 0
        while self._entries and (
            not entries or (size + len(self._entries[0]) <= bytes_max and self.slot_end + size != self.cut)
        ):
            entry = self._entries.popleft()
            size += len(entry)
            entries.append(entry)
        self.slot_end += size
        return entries

    @property
    def bytes_under_way(self) -> int:
        """The bytes in slots that are not durable yet."""
        return self.slot_end - self.synced

    def note_synced(self, position: int) -> None:
        """Note that everything before this position is durable."""
        self.synced = position

    def follow(self, position: int) -> None:
        """Note that another broker's slots were read up to this position."""
        self.end = self.slot_end = self.synced = position

    def mark(self) -> int:
        """The place after the last entry. No slot will contain entries from both sides of it."""
        self.cut = self.end
        return self.cut

    def recycle(self, below: int) -> None:
        """There are no files; slots are deleted elsewhere."""

    def close(self) -> None:
        """There is nothing to close."""
