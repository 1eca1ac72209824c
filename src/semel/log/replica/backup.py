"""Copies the log in a store into another store while brokers use it: a backup. The next one into the same place copies
only what is new.

A backup is a checkpoint and the slots after it, up to some slot: the log as it was at one moment. Everything that was
acknowledged before the copy began is in it. At each moment of the copy, the target has a log of that kind or none, so
a backup that is interrupted is an earlier one. A backup has no lease: where there is one, a broker has gone on with it.
Nothing here may change the source.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from semel.log.core.slots import BrokenHistory, next_slot_after
from semel.log.replica.checkpoints import DELETED_AT_ONCE, is_a_brokers
from semel.log.replica.contents import NOTHING, SEGMENTS, Contents, Extent
from semel.log.replica.examination import ExaminedStore, examine_store, extents_by_key, trouble_in
from semel.log.replica.floor import FLOOR_KEY, Floor, decode_floor, read_floor
from semel.log.replica.holes import Overtaken, find_hole
from semel.log.replica.lease import LEASE_KEY, read_lease
from semel.log.replica.membership import read_cluster_id
from semel.log.replica.record import UNREADABLE, decode_record, encode_record
from semel.log.replica.restore import check_replaced, read_checkpoint
from semel.log.replica.slot import JOURNAL, decode, digest_of, key_of, slot_of
from semel.log.replica.uploads import CHECKPOINTS, CREATED_AT_ONCE
from semel.log.replica.writer import answered, answered_soon, create_surely, few_at_once, listed
from semel.log.store import FORMAT_KEY, Changed, Missing, Store

# The object that says since when a backup has all that was acknowledged.
MOMENT_KEY: Final = "backup"
# Each is in memory meanwhile.
_SLOTS_AT_ONCE: Final = 8


class BackedUp(NamedTuple):
    """A backup."""

    found: ExaminedStore
    # What was acknowledged before this time, in milliseconds, is in it; 0 if that is not known.
    moment_ms: int
    # How many bytes it has, and how many of them were copied this time.
    size_bytes: int
    copied_bytes: int
    # What the log itself has lost, a line for each object, and no earlier backup here has.
    lost: list[str]


async def back_up(source: Store, target: Store, now_ms: int, show: Callable[[int], None]) -> BackedUp:
    """Copy the log; `show` gets the number of bytes from time to time. The copy of a backup has the moment of that one.
    Raises BrokenHistory with what is wrong with the log or the target, or StoreError; then the target has the backup
    that it had before, or a later one.
    """
    copy = _Copy(source, target, show)
    await copy.check_target()
    lease = await answered(lambda: read_lease(source))
    moment_ms = await _moment_of(source) if lease is None else now_ms
    while not await copy.run():
        # A checkpoint has replaced the one that was copied, and its objects are being deleted.
        pass
    found = await answered(lambda: examine_store(target))
    if found.examined.stopped is not None:
        raise BrokenHistory(f"{target.describe()} cannot be read after the copy: {found.examined.stopped}")
    lease = await answered(lambda: read_lease(source))
    with contextlib.suppress(Overtaken):
        hole = await answered(lambda: find_hole(source, found.history, lease))
        if hole is not None:
            raise hole
    await copy.set_moment(moment_ms)
    return BackedUp(found, moment_ms, copy.size_bytes, copy.copied_bytes, copy.lost)


class _Copy:
    def __init__(self, source: Store, target: Store, show: Callable[[int], None]) -> None:
        self._source = source
        self._target = target
        self._show = show
        self._format = b""
        # The floor of the backup that is there.
        self._before: tuple[Floor, str] | None = None
        # The slots that the target has already.
        self._slots_there: set[str] = set()
        self.size_bytes = 0
        self.copied_bytes = 0
        self.lost: list[str] = []

    async def check_target(self) -> None:
        """Raises BrokenHistory if the target is no place for a backup of this log."""
        where = self._target.describe()
        try:
            self._format = (await answered_soon(self._source, lambda: self._source.get(FORMAT_KEY))).body
        except Missing:
            raise BrokenHistory(f"{self._source.describe()}: no broker has kept a log there") from None
        cluster_id = read_cluster_id(self._format, self._source.describe())
        known = await answered_soon(self._target, lambda: _found(self._target, FORMAT_KEY))
        if known is not None and known != self._format:
            raise BrokenHistory(
                f"{where} holds cluster {read_cluster_id(known, where)}, and this is cluster {cluster_id}: name a "
                "store that is empty, or has a backup of this log"
            )
        if await _found(self._target, LEASE_KEY) is not None:
            raise BrokenHistory(
                f"{where} is no backup: a broker has been started on it, and what it wrote is not in "
                f"{self._source.describe()}. Name a store that is empty"
            )

    async def run(self) -> bool:
        """Copy the newest checkpoint and the slots after it; False if what was to be copied was deleted meanwhile."""
        floor, _ = await answered(lambda: read_floor(self._source))
        # Nobody reads the slots that its checkpoint covers.
        backup = floor._replace(deleted_below=floor.slot)
        self.size_bytes = 0
        self._slots_there.clear()
        self.lost.clear()
        await self._check_follows(floor)
        try:
            contents = await self._contents_of(floor)
            await self._copy_objects(floor, contents)
            await self._copy_pieces(floor)
        except Missing as gone:
            await check_replaced(self._source, floor, gone)
            return False
        await self._set_floor(backup)
        if not await create_surely(self._target, FORMAT_KEY, self._format):
            raise self._busy()
        end = await self._copy_slots(floor.slot)
        now, _ = await answered(lambda: read_floor(self._source))
        if now.deleted_below > end:
            return False
        await self._clear(floor, {*contents.objects, *(piece.key for piece in floor.pieces)})
        return True

    async def _check_follows(self, floor: Floor) -> None:
        """Raises BrokenHistory if the log has not come from what the target has."""
        try:
            body, version = await answered(lambda: self._target.get(FLOOR_KEY))
        except Missing:
            return
        self._before = decode_floor(body), version
        diverged = BrokenHistory(
            f"{self._target.describe()} holds another log of this cluster, or a later one than "
            f"{self._source.describe()}: name a store that is empty"
        )
        if self._before[0].slot > floor.slot:
            raise diverged
        slots = {key: slot for key in await listed(self._target, JOURNAL) if (slot := slot_of(key)) is not None}

        async def compare(key: str) -> None:
            mine, theirs = await _found(self._source, key), await _found(self._target, key)
            if mine == theirs:
                self._slots_there.add(key)
            elif theirs is None or not _is_slot(slots[key], theirs):
                # The target has lost it.
                return
            elif slots[key] >= (await answered(lambda: read_floor(self._source)))[0].deleted_below:
                raise diverged

        await few_at_once(compare, [key for key, slot in slots.items() if slot >= floor.slot], CREATED_AT_ONCE)

    async def _contents_of(self, floor: Floor) -> Contents:
        if not floor.pieces:
            return NOTHING
        state, _ = await read_checkpoint(self._source, floor)
        return Contents.from_record(state["contents"])

    async def _copy_objects(self, floor: Floor, contents: Contents) -> None:
        """Copy the objects that the target lacks, each compared with the digests that the checkpoint knows. Raises
        Missing if another checkpoint has replaced this one.
        """
        there = await listed(self._target, SEGMENTS)
        self.size_bytes += sum(contents.objects.values())
        lacking = [item for item in extents_by_key(contents) if there.get(item[0]) != contents.objects[item[0]]]
        await few_at_once(partial(self._copy_object, floor), lacking, CREATED_AT_ONCE)

    async def _copy_pieces(self, floor: Floor) -> None:
        for key, size, digest in floor.pieces:
            self.size_bytes += size
            there = await _found(self._target, key)
            if there is None or digest_of([there]).hex() != digest:
                await self._put(key, (await answered(partial(self._source.get, key))).body)

    async def _copy_object(self, floor: Floor, item: tuple[str, list[tuple[str, Extent]]]) -> None:
        key, extents = item
        body = await _found(self._source, key)
        trouble = "it is gone" if body is None else trouble_in(body, extents)
        if body is not None and not trouble:
            await self._put(key, body)
        elif (await answered(lambda: read_floor(self._source)))[0] == floor:
            self.lost.append(f"{key}: {trouble}; it has parts of {', '.join(sorted({path for path, _ in extents}))}")
        else:
            raise Missing(f"{self._source.describe()}: {key}: {trouble}")

    async def _put(self, key: str, body: bytes) -> None:
        if not await create_surely(self._target, key, body):
            there = await answered(lambda: self._target.get(key))
            slot = slot_of(key)
            if slot is not None and _is_slot(slot, there.body):
                raise self._busy()
            # The target has lost a part of it.
            await self._set(key, body, there.version)
        self.copied_bytes += len(body)
        self._show(self.copied_bytes)

    async def _copy_slots(self, slot: int) -> int:
        """Copy the slots from this one on, one after the other; return the first that is not there."""
        while True:
            keys = [key_of(number) for number in range(slot, slot + _SLOTS_AT_ONCE)]
            bodies = dict(zip(keys, await asyncio.gather(*(_found(self._source, key) for key in keys)), strict=True))
            while (key := key_of(slot)) in bodies:
                body = bodies[key]
                if body is None:
                    return slot
                head = decode(slot, body).head
                self.size_bytes += len(body)
                if key not in self._slots_there:
                    await self._put(key, body)
                slot = next_slot_after(head)

    async def _set_floor(self, floor: Floor) -> None:
        version = None if self._before is None else self._before[1]
        await self._set(FLOOR_KEY, floor.encode(), version)

    async def set_moment(self, moment_ms: int) -> None:
        """Note in the target what it has."""
        try:
            version: str | None = (await answered(lambda: self._target.get(MOMENT_KEY))).version
        except Missing:
            version = None
        await self._set(MOMENT_KEY, encode_record(MOMENT_KEY, {"moment_ms": moment_ms}), version)

    async def _set(self, key: str, body: bytes, version: str | None) -> None:
        """Create this object, or replace the one that has this version."""
        if version is None:
            if not await create_surely(self._target, key, body):
                raise self._busy()
            return
        try:
            await answered(lambda: self._target.replace(key, body, version))
        except (Changed, Missing):
            # If an answer was lost, the store refuses our own second attempt.
            if await _found(self._target, key) != body:
                raise self._busy() from None

    async def _clear(self, floor: Floor, needed: Collection[str]) -> None:
        """Delete what only an earlier backup needed."""
        slots = {key: slot_of(key) for key in await listed(self._target, JOURNAL)}
        waste = [key for key, slot in slots.items() if slot is not None and slot < floor.slot]
        for folder in (SEGMENTS, CHECKPOINTS):
            waste += [key for key in await listed(self._target, folder) if key not in needed and is_a_brokers(key)]
        await few_at_once(lambda key: answered(partial(self._target.delete, key)), waste, DELETED_AT_ONCE)

    def _busy(self) -> BrokenHistory:
        return BrokenHistory(f"{self._target.describe()}: another backup is being written there: wait for its end")


async def _moment_of(backup: Store) -> int:
    """The moment of a backup; 0 if it does not say, as one that was interrupted, or a log that was moved there."""
    body = await _found(backup, MOMENT_KEY)
    try:
        return 0 if body is None else int(decode_record(MOMENT_KEY, body)["moment_ms"])
    except UNREADABLE as error:
        raise BrokenHistory(f"{backup.describe()}: the object {MOMENT_KEY!r} is damaged: {error}") from None


def _is_slot(slot: int, body: bytes) -> bool:
    """Whether this is a slot as some broker has written it."""
    try:
        decode(slot, body)
    except BrokenHistory:
        return False
    return True


async def _found(store: Store, key: str) -> bytes | None:
    """The object; None if there is none."""
    try:
        return (await answered(lambda: store.get(key))).body
    except Missing:
        return None
