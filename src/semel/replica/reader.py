"""Follows the slots that another broker writes, and takes over behind the last one.

Every entry goes into the log as in a recovery. To take over, this reads to the first slot that is missing and creates
it as its fence; if somebody was faster, it reads that one and tries the next. Nothing is deleted from the journal, so
what was read counts, and what is missing was never there.
"""

import asyncio
import secrets
from typing import Final, Protocol

from semel.core.slots import NONCE_BYTES, BrokenHistory, History
from semel.replica.journal import SlotJournal
from semel.replica.slot import decode, digest_of, encode_head, entries, key_of
from semel.replica.writer import create_surely
from semel.storage.recovery import CannotFollow
from semel.store import Missing, Store

# Entries that go into the log in one turn of the event loop.
ENTRIES_PER_TURN: Final = 200


class Follower(Protocol):
    """What takes in the entries: the log."""

    def replay(self, kind: int, payload: memoryview) -> None:
        """Make an entry true that another broker has written."""

    def enter_epoch(self, epoch: int) -> None:
        """What follows was written in this epoch."""


class SlotReader:
    """Knows all slots up to the last one that it has read."""

    def __init__(self, store: Store, journal: SlotJournal, log: Follower) -> None:
        self._store = store
        self._journal = journal
        self._log = log
        self.history = History()

    async def read_next(self) -> bool:
        """Take in the next slot; False if there is none yet. Raises BrokenHistory, and StoreError if the store does not
        let us look."""
        slot = self.history.next_slot
        try:
            content = (await self._store.get(key_of(slot))).body
        except Missing:
            return False
        head, digest, body = decode(slot, content)
        epoch = self.history.epoch
        self.history.take(head, digest)
        if head.epoch > epoch:
            self._log.enter_epoch(head.epoch)
        for count, (kind, payload) in enumerate(entries(slot, body), start=1):
            try:
                self._log.replay(kind, payload)
            except CannotFollow as error:
                raise BrokenHistory(f"slot {slot}: {error}") from error
            if count % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._journal.follow(self.history.position)
        return True

    async def take_over(self) -> int:
        """Read all there is and create the fence behind it; answer the epoch of this broker."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        while True:
            while await self.read_next():
                pass
            head = self.history.fence(nonce, digest_of([]))
            encoded = encode_head(head)
            if await create_surely(self._store, key_of(head.slot), encoded):
                self.history.take(head, digest_of([encoded]))
                self._log.enter_epoch(head.epoch)
                return head.epoch
