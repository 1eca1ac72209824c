"""Follows the slots that another broker writes, and takes over after the last one.

The log applies every entry as in a recovery. To take over, the reader reads to the first missing slot and creates that
slot as its fence; if another broker was faster, it reads that slot and tries the next one. A deleted slot looks like
one that was never created, and a reader that fell behind may have created its fence there. So a slot counts only if the
floor, read afterwards, says that it was not deleted. If it was, this broker has fallen too far behind, and has to start
from the checkpoint that the floor names.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from semel.core.slots import NONCE_BYTES, BrokenHistory, History
from semel.core.steps import Steps
from semel.replica.floor import Floor, read_floor
from semel.replica.journal import SlotJournal
from semel.replica.slot import decode, digest_of, encode_head, entries, key_of
from semel.replica.writer import Fenced, answered, create_surely
from semel.storage.files import OUT_OF_SPACE
from semel.storage.recovery import CannotFollow
from semel.store import Missing, Store

# How many slots are read between two looks at the floor.
SLOTS_PER_LOOK: Final = 50
# How many entries the log applies in one turn of the event loop.
ENTRIES_PER_TURN: Final = 200
# How long a reader on a full disk waits before it tries again to write the records of an entry.
ROOM_SECONDS: Final = 1.0


class Follower(Protocol):
    """The log, which applies the entries."""

    def replay(self, kind: int, payload: memoryview) -> None:
        """Apply an entry that another broker wrote."""

    def enter_epoch(self, epoch: int) -> None:
        """Note that the next entries were written in this epoch."""

    def clear(self) -> Steps[None]:
        """Remove files that are no longer needed."""


class Overtaken(Fenced):
    """The slots that this broker read last, or would have read next, may have been deleted. The broker can be started
    again.
    """


class SlotReader:
    """Knows all slots up to the last one that it has read."""

    def __init__(
        self,
        store: Store,
        journal: SlotJournal,
        log: Follower,
        history: History,
        make_room: Callable[[OSError], None] | None = None,
    ) -> None:
        """Continues after this history, which a checkpoint has. `make_room` is called when the disk is full, before the
        reader tries again; without it the reader gives up.
        """
        self._store = store
        self._make_room = make_room
        self._journal = journal
        self._log = log
        self.history = history
        # All slots below this one were read before they were deleted.
        self._verified = history.next_slot
        # The newest floor, and whether this broker has read everything that its checkpoint covers.
        self.floor: Floor | None = None
        self.has_reached_floor = asyncio.Event()

    async def read_on(self, slots_max: int) -> bool:
        """Read and apply up to this many slots; return whether there may be more. Raises Overtaken, BrokenHistory, or
        StoreError if the store cannot be read.
        """
        read = 0
        try:
            while read < slots_max and await self._read_next():
                read += 1
        except BrokenHistory:
            # Nothing may be read after the fence, so this waits until the store answers.
            await answered(self._verify)
            raise
        await self._verify()
        return read == slots_max

    async def _verify(self) -> None:
        """Raises Overtaken if a slot that was read, or the next slot, may have been deleted."""
        floor, _ = await read_floor(self._store)
        if floor.deleted_below > self._verified:
            where = f"slot {self._verified} of {self._store.describe()}"
            raise Overtaken(
                f"the journal was deleted from before {where} on to slot {floor.deleted_below}: start again"
            )
        self._verified = self.history.next_slot
        if floor != self.floor and floor.slot <= self._verified:
            self.floor = floor
            self.has_reached_floor.set()

    async def _read_next(self) -> bool:
        """Read and apply the next slot; False if there is none yet."""
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
                while True:
                    if self._replay(kind, payload):
                        break
                    await asyncio.sleep(ROOM_SECONDS)
            except CannotFollow as error:
                raise BrokenHistory(f"slot {slot}: {error}") from error
            if count % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._journal.follow(self.history.position)
        with contextlib.suppress(OSError):
            # The next start removes what cannot be removed now.
            for count, _ in enumerate(self._log.clear(), start=1):
                if count % ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
        return True

    def _replay(self, kind: int, payload: memoryview) -> bool:
        """Apply an entry; False if its records found no space on the disk. Then nothing has changed."""
        try:
            self._log.replay(kind, payload)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE or self._make_room is None:
                raise
            self._make_room(error)
            return False
        return True

    async def take_over(self) -> int:
        """Read all slots and create the fence after the last one; return the epoch of this broker."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        while True:
            while await self.read_on(SLOTS_PER_LOOK):
                pass
            head = self.history.fence(nonce, digest_of([]))
            encoded = encode_head(head)
            if await create_surely(self._store, key_of(head.slot), encoded):
                # The slot may have been deleted before: then the fence has no effect.
                await self._verify()
                self.history.take(head, digest_of([encoded]))
                self._log.enter_epoch(head.epoch)
                return head.epoch
