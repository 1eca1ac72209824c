"""Writes checkpoints into the store, and then deletes objects that are no longer needed. A checkpoint is the state at
one place of the journal, and the contents of the log's files there. Its objects are created first; then, when
everything before that place is durable, one conditional write of the floor names them. Only then may slots be deleted
that the previous checkpoint covers, and objects that neither of the two checkpoints names. So a reader that starts from
the previous checkpoint has time until the next one. A broker that was replaced may still do all this. It cannot restore
an older floor, the names of its objects contain its own epoch, and it deletes no object of a later epoch. A crash
leaves garbage, which the next checkpoint removes.
"""

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from semel.log.core.slots import BrokenHistory, History
from semel.log.replica.cache import Cache, Unreadable
from semel.log.replica.contents import SEGMENTS, Contents, contents_in
from semel.log.replica.floor import FLOOR_KEY, Floor, read_floor
from semel.log.replica.holes import Overtaken
from semel.log.replica.restore import check_replaced, read_checkpoint
from semel.log.replica.slot import JOURNAL, slot_of
from semel.log.replica.uploads import CHECKPOINTS, Uploads
from semel.log.replica.worker import JobError, Worker
from semel.log.replica.writer import Fenced, SlotWriter, answered, few_at_once
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.journal import Damaged, StillInJournal
from semel.log.store import Changed, Missing, Store, StoreError, Unsure

# Reading a slot takes some milliseconds, and deleting one takes more.
SLOTS_MAX: Final = 2000
# A large checkpoint is written less often: it waits for one more slot for each of these units.
SLOT_BYTES: Final = 32 * 1024
# The name of an object: the epoch, the process, and the object's number.
_NAME: Final = re.compile(r"([0-9]+)-[0-9a-f]+-[0-9]+")
# How many objects are deleted at once.
DELETED_AT_ONCE: Final = 4


class StoreCheckpoints:
    """The checkpoints of the active broker."""

    def __init__(
        self,
        store: Store,
        writer: SlotWriter,
        worker: Worker,
        cache: Cache,
        known: tuple[Floor, Contents],
        tell: Callable[[str], None],
    ) -> None:
        """`known` is the checkpoint from which this broker started; `tell` gets the reason if something could not be
        deleted.
        """
        self._cache = cache
        self._store = store
        self._writer = writer
        self._worker = worker
        # The floor whose checkpoint names these contents. Files here have the same bytes.
        self._floor, self._contents = known
        self._tell = tell
        self._uploads = Uploads(store, worker, cache)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether there are so many slots after the last checkpoint that a starting broker would wait for them."""
        slots_max = max(SLOTS_MAX, sum(piece.size for piece in self._floor.pieces) // SLOT_BYTES)
        return self._writer.next_slot - self._floor.slot >= slots_max

    def begin(self, job: CheckpointJob, done: Callable[[JobError], None]) -> None:
        """Write a checkpoint; `done` gets the outcome. Only one is written at a time."""

        async def run() -> None:
            outcome: JobError = None
            try:
                await self._keep(job)
            except Exception as error:
                outcome = error
            done(outcome)

        self._task = asyncio.get_running_loop().create_task(run())

    @property
    def contents(self) -> Contents:
        """What the newest checkpoint names."""
        return self._contents

    def write_again(self, key: str) -> None:
        """An object is damaged: the next checkpoint puts its bytes into another one, if they can be read."""
        self._uploads.damaged.add(key)

    def make_room(self) -> None:
        """Free a part of the cache, because the disk is full."""
        self._cache.make_room()

    def give_up(self) -> None:
        """Do not end a checkpoint that is under way: the next broker writes its own."""
        if self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        """Begin nothing more, and wait for the disk."""
        self.give_up()
        self._worker.stop()
        self._cache.stop()

    # -- writing ------------------------------------------------------------------------------------------------

    async def _keep(self, job: CheckpointJob) -> None:
        while True:
            history = await self._writer.history_at(job.position)
            epoch, slot = history["epoch"], history["next_slot"]
            floor, version = await answered(lambda: read_floor(self._store))
            self._check(floor, epoch, slot)
            try:
                before = await self._contents_of(floor)
            except Missing as gone:
                await check_replaced(self._store, floor, gone)
                continue
            try:
                contents = await self._uploads.contents(job, before, epoch)
            except Damaged as lost:
                raise StillInJournal(lost, self._store.describe()) from None
            pieces = await self._uploads.state(job, history, contents)
            raised = Floor(epoch, slot, max(floor.deleted_below, floor.slot), pieces)
            if await self._raise(raised, version):
                self._floor, self._contents = raised, contents
                self._cache.name(contents)
                needed = {*contents.objects, *before.objects, *(piece.key for piece in raised.pieces + floor.pieces)}
                await self._clear(raised, History.from_record(history), needed)
                return

    def _check(self, floor: Floor, epoch: int, slot: int) -> None:
        where = self._store.describe()
        if floor.epoch > epoch:
            raise Fenced(f"another broker has taken over: it has put the floor in {where}")
        if floor.slot > slot:
            raise BrokenHistory(f"{where}: the floor is at slot {floor.slot}, before that slot was written")

    async def follow(self, floor: Floor) -> None:
        """Adopt the floor of another broker, after this broker has read everything that the floor's checkpoint covers:
        so it may free the bytes that the checkpoint names. Raises Overtaken if the store no longer has the parts that
        are missing here.
        """
        try:
            self._contents = await self._contents_of(floor)
        except Missing:
            # There is a newer floor by now.
            return
        self._floor = floor

    async def _contents_of(self, floor: Floor) -> Contents:
        """The contents that the checkpoint of this floor names, as far as the files here have the same bytes; nothing
        else may be freed from now on. Another broker may have written it, and compacted its files differently.
        """
        if floor.pieces == self._floor.pieces:
            return self._contents
        content = await read_checkpoint(self._store, floor)
        contents = await self._uploads.same(self._cache.files, contents_in(content))
        # The previous checkpoint names this object, so it is deleted with the next one.
        unnamed = self._cache.files.unnamed(contents)

        async def name() -> None:
            self._cache.name(contents)

        try:
            await self._cache.held(unnamed, name)
        except Unreadable as gone:
            where = self._store.describe()
            raise Overtaken(f"{where}: checkpoints have followed too fast: {gone}: start again") from gone
        return contents

    async def _raise(self, raised: Floor, version: str) -> bool:
        """Replace the floor that has this version; False if another broker was faster."""
        # If an answer was lost, the store refuses our own second attempt.
        with contextlib.suppress(Changed):
            await answered(lambda: self._store.replace(FLOOR_KEY, raised.encode(), version))
        return (await answered(lambda: read_floor(self._store)))[0] == raised

    # -- deleting -----------------------------------------------------------------------------------------------

    async def _clear(self, floor: Floor, history: History, needed: set[str]) -> None:
        """Delete what the floor allows. The next checkpoint finds the rest."""
        try:
            waste = [key async for key in self._waste(floor, history, needed)]
            await few_at_once(self._store.delete, waste, DELETED_AT_ONCE)
        except Unsure:
            return
        except StoreError as refusal:
            self._tell(str(refusal))

    async def _waste(self, floor: Floor, history: History, needed: set[str]) -> AsyncIterator[str]:
        fences = frozenset(history.fences)
        async for key, _ in self._store.list(JOURNAL):
            slot = slot_of(key)
            # What was given up is left to the person who did that. The fences in it keep out whom they always did.
            if slot is not None and slot < floor.deleted_below and slot not in fences and not history.gave_up(slot):
                yield key
        for folder in (SEGMENTS, CHECKPOINTS):
            async for key, _ in self._store.list(folder):
                if key not in needed and _epoch_of(key) <= floor.epoch:
                    yield key


def is_a_brokers(key: str) -> bool:
    """Whether a broker has created an object with this key."""
    return _epoch_of(key) < math.inf


def _epoch_of(key: str) -> float:
    """The epoch of the broker that has created an object; larger than all epochs if no broker has. A person may have
    put a copy among them, under a key that the store does not even take.
    """
    match = _NAME.fullmatch(key.partition("/")[2])
    return int(match[1]) if match else math.inf
