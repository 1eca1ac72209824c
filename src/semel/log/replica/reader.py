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
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Final, Protocol

from semel.log.core.slots import DEPTH, NONCE_BYTES, BrokenHistory, History, SlotHead
from semel.log.replica.floor import Floor, read_floor
from semel.log.replica.holes import Hole, Overtaken, fence_behind, find_hole, find_replaced
from semel.log.replica.journal import SlotJournal
from semel.log.replica.lease import Lease
from semel.log.replica.slot import Slot, decode, digest_of, encode_head, entries, key_of
from semel.log.replica.writer import answered, create_surely
from semel.log.storage.files import TRIED_AGAIN
from semel.log.storage.recovery import CannotFollow
from semel.log.store import Missing, Store, StoreError
from semel.wire.steps import Steps

# How many slots are read between two looks at the floor.
SLOTS_PER_LOOK: Final = 50
# How many slots are read at the same time by a reader that is behind: so many a writer may have under way.
READ_AT_ONCE: Final = DEPTH
# After so many slots in a row that were there, a reader counts as behind.
IN_A_ROW: Final = 2 * DEPTH
# How many entries the log applies in one turn of the event loop.
ENTRIES_PER_TURN: Final = 200
# How long a broker on a full disk waits before it reads on.
ROOM_SECONDS: Final = 1.0


class Follower(Protocol):
    """The log, which applies the entries."""

    def replay(self, kind: int, payload: memoryview) -> None:
        """Apply an entry that another broker wrote."""

    def enter_epoch(self, epoch: int) -> None:
        """Note that the next entries were written in this epoch."""

    def clear(self) -> Steps[None]:
        """Remove files that are no longer needed."""


class NoRoom(Exception):
    """The disk does not take what was read; the message says why. The call may be repeated: it goes on where it was."""


class _ReadAhead:
    """Reads slots in order. After many in a row that were there it reads the next ones at the same time: one after the
    other, a reader may be slower than the writer, which has several under way. A reader that is not behind asks for no
    slot but the next one, because a store may charge for each call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: dict[int, asyncio.Task[bytes | None]] = {}
        # How many slots in a row were there.
        self._found = 0

    async def get(self, slot: int, slots_max: int) -> bytes:
        """The content of the slot, which follows the last one. The caller asks for at most `slots_max` before `stop`.
        Raises Missing, or Unsure if the store cannot be read.
        """
        for closed in [ahead for ahead in self._under_way if ahead < slot]:
            # A fence lies before it.
            self._under_way.pop(closed).cancel()
        reading = self._under_way.pop(slot, None)
        if self._found >= IN_A_ROW:
            for ahead in range(slot + 1, slot + min(READ_AT_ONCE, slots_max)):
                if ahead not in self._under_way:
                    self._under_way[ahead] = asyncio.get_running_loop().create_task(self._read(ahead))
        try:
            if reading is not None and reading.done():
                # When several answers have come together, each is applied in a turn of its own, and the reads that were
                # begun above go on meanwhile.
                await asyncio.sleep(0)
            content = None if reading is None else await reading
            if content is None:
                # What was missing a moment ago may be there by now.
                content = (await self._store.get(key_of(slot))).body
        except BaseException:
            self._found = 0
            raise
        self._found += 1
        return content

    async def _read(self, slot: int) -> bytes | None:
        try:
            return (await self._store.get(key_of(slot))).body
        except StoreError:
            return None

    def stop(self) -> None:
        """Cancel what is under way."""
        for reading in self._under_way.values():
            reading.cancel()
        self._under_way.clear()


class SlotReader:
    """Knows all slots up to the last one that it has read."""

    def __init__(
        self,
        store: Store,
        journal: SlotJournal,
        log: Follower,
        history: History,
        make_room: Callable[[OSError], None] | None = None,
        accepted_losses: Collection[str] = (),
    ) -> None:
        """Continues after this history, which a checkpoint has. `make_room` is called with the error before NoRoom is
        raised; without it the error of the disk is raised. `accepted_losses` are the keys of slots that may be given
        up.
        """
        self._store = store
        self._ahead = _ReadAhead(store)
        self._make_room = make_room
        self._journal = journal
        self._log = log
        self._accepted_losses = accepted_losses
        # What all slots say that were applied as a whole.
        self.history = history
        # The next slot, while it is applied, and how many of its entries were.
        self._current: Slot | None = None
        self._applied = 0
        # How often the disk has refused the next entry.
        self._refusals = 0
        # All slots below this one were read before they were deleted.
        self._verified = history.next_slot
        # The newest floor, and whether this broker has read everything that its checkpoint covers.
        self.floor: Floor | None = None
        self.has_reached_floor = asyncio.Event()

    async def read_on(self, slots_max: int) -> bool:
        """Read and apply up to this many slots; return whether there may be more. Raises Overtaken, BrokenHistory,
        NoRoom, or StoreError if the store cannot be read.
        """
        try:
            read = await self._read_up_to(slots_max)
        except BrokenHistory:
            # Nothing may be read after the fence, so this waits until the store answers.
            await answered(self._verify)
            raise
        except NoRoom as refusal:
            if (await self._verify()).slot > self.history.next_slot and self._refusals > 1:
                # What was read since the last checkpoint is only here, and cannot be freed. After a start from this one
                # it is in the store.
                where = f"slot {self.history.next_slot} of {self._store.describe()}"
                raise Overtaken(
                    f"the disk does not take {where} ({refusal}), and a checkpoint covers that slot: start again"
                ) from None
            raise
        await self._verify()
        return read == slots_max

    async def _read_up_to(self, slots_max: int) -> int:
        """Read and apply up to this many slots; return how many there were."""
        read = 0
        try:
            while read < slots_max and await self._read_next(slots_max - read):
                read += 1
        finally:
            # A store may be closed when nobody reads on.
            self._ahead.stop()
        return read

    async def _verify(self) -> Floor:
        """Return the floor. Raises Overtaken if a slot that was read, or the next slot, may have been deleted."""
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
        return floor

    async def _read_next(self, slots_max: int) -> bool:
        """Read and apply the next slot; False if there is none yet."""
        slot = self.history.next_slot
        if self._current is None:
            try:
                content = await self._ahead.get(slot, slots_max)
            except Missing:
                return False
            try:
                found = decode(slot, content)
                self.history.check(found.head)
            except BrokenHistory as damage:
                key = key_of(slot)
                raise BrokenHistory(
                    f"{self._store.describe()}: {damage}. Put {key} back as it was and start again; no slot was "
                    f"written. If it is lost for ever, remove it and start once with --accept-loss {key}"
                ) from None
            if found.head.epoch > self.history.epoch:
                self._log.enter_epoch(found.head.epoch)
            self._current, self._applied = found, 0
        head, digest, body = self._current
        for kind, payload in islice(entries(slot, body), self._applied, None):
            try:
                self._replay(kind, payload)
            except CannotFollow as error:
                raise BrokenHistory(f"slot {slot}: {error}") from error
            self._applied, self._refusals = self._applied + 1, 0
            if self._applied % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        if head.epoch > self.history.epoch:
            await self._check_fence(head)
        self.history.take(head, digest)
        self.history.note_created(self.history.next_slot)
        self._current = None
        self._journal.follow(self.history.position)
        with contextlib.suppress(OSError):
            # The next start removes what cannot be removed now.
            for count, _ in enumerate(self._log.clear(), start=1):
                if count % ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
        return True

    def _replay(self, kind: int, payload: memoryview) -> None:
        """Apply an entry. Raises NoRoom if its records found no space on the disk; then nothing has changed."""
        try:
            self._log.replay(kind, payload)
        except OSError as error:
            if error.errno not in TRIED_AGAIN or self._make_room is None:
                raise
            self._make_room(error)
            self._refusals += 1
            raise NoRoom(str(error)) from error

    async def find_hole(self, lease: Lease | None) -> Hole | None:
        """The hole at the next slot, if it is missing and was created; `lease` is the one that was read last. Raises
        Overtaken like `read_on`, and StoreError.
        """
        return await find_hole(self._store, self.history, lease)

    def gives_up(self, hole: Hole) -> bool:
        """Whether this slot may be given up, with all that was written after it."""
        return key_of(hole.slot) in self._accepted_losses

    async def _check_fence(self, fence: SlotHead) -> None:
        """Raise BrokenHistory if this fence replaced an object that was acknowledged."""
        replaced = await answered(lambda: find_replaced(self._store, fence))
        if replaced is not None and key_of(fence.slot) not in self._accepted_losses:
            raise replaced

    async def _fence_rest(self, hole: Hole, nonce: bytes) -> SlotHead:
        """Create a fence behind everything that is given up with this hole."""
        while True:
            fence = await answered(lambda: fence_behind(self._store, hole, nonce))
            if await create_surely(self._store, key_of(fence.slot), encode_head(fence)):
                return fence

    async def take_over(
        self, may_fence: Callable[[], Awaitable[bool]] | None = None, lease: Lease | None = None
    ) -> int | None:
        """Read all slots and create the fence after the last one; return the epoch of this broker. `may_fence` is asked
        before each attempt, and None returned if the fence may not be created. `lease` is the one that was read before
        this broker claimed it. Raises NoRoom like `read_on`, and a hole that may not be given up.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        while True:
            while await self.read_on(SLOTS_PER_LOOK):
                pass
            hole = await self.find_hole(lease)
            if hole is not None and not self.gives_up(hole):
                raise hole
            if may_fence is not None and not await may_fence():
                return None
            head = self.history.fence(nonce, digest_of([]))
            if hole is not None:
                behind = await self._fence_rest(hole, nonce)
                head = self.history.fence_giving_up(nonce, digest_of([]), behind.epoch + 1, behind.slot)
            encoded = encode_head(head)
            if await create_surely(self._store, key_of(head.slot), encoded):
                # The slot may have been deleted before: then the fence has no effect.
                await self._verify()
                await self._check_fence(head)
                self.history.take(head, digest_of([encoded]))
                self._log.enter_epoch(head.epoch)
                return head.epoch
