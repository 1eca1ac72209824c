"""Reads the log in a store without becoming a broker on it, for `semel dump URL`.

`examine_store` computes the same state as a standby, from the newest checkpoint and the slots after it. It creates and
changes nothing, so it may be used while brokers write, and where somebody has only the right to read. If something is
damaged, it goes as far as it can and says where it stopped.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from semel.log.core.slots import BrokenHistory, History
from semel.log.replica.contents import NOTHING, Contents, Extent
from semel.log.replica.floor import Floor, read_floor
from semel.log.replica.holes import Overtaken, find_hole, find_replaced
from semel.log.replica.lease import read_lease
from semel.log.replica.membership import read_cluster_id
from semel.log.replica.restore import read_checkpoint
from semel.log.replica.slot import JOURNAL, Slot, decode, digest_of, entries, key_of, slot_of
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.examination import IMPOSSIBLE, Examined
from semel.log.storage.files import MemoryFiles
from semel.log.storage.journal import Damaged, JournalEntry
from semel.log.store import FORMAT_KEY, Missing, Store

# The active broker may delete what is being read. Then reading begins again, with a newer checkpoint.
_ATTEMPTS: Final = 3


class ExaminedStore:
    """The state of the log in a store, and how far it could be read."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.floor: Floor | None = None
        self.history = History()
        self.contents: Contents = NOTHING
        self.examined = Examined()
        # How many slots were read after the checkpoint, with fences and without closed slots.
        self.slots = 0


async def examine_store(store: Store) -> ExaminedStore:
    """The whole state, up to the last slot or to the first damage. Raises Missing if no broker was ever here,
    BrokenHistory if this version of semel must not use the store, and StoreError if it cannot be read.
    """
    try:
        cluster_id = read_cluster_id((await store.get(FORMAT_KEY)).body, store.describe())
    except Missing:
        raise Missing(f"{store.describe()}: no broker was ever here") from None
    for _ in range(_ATTEMPTS):
        found = ExaminedStore(cluster_id)
        if await _examine_once(store, found):
            break
    return found


async def _examine_once(store: Store, found: ExaminedStore) -> bool:
    """Read all there is; False if it was deleted in the meantime."""
    examined = found.examined
    try:
        found.floor, _ = await read_floor(store)
        if found.floor.pieces:
            examined.examining = "the checkpoint"
            state, packed = await read_checkpoint(store, found.floor)
            found.contents = Contents.from_record(state["contents"])
            found.history = History.from_record(state["journal"])
            examined.restore(state, packed, MemoryFiles(), BLOCK_LAYOUT)
        while True:
            slot = found.history.next_slot
            try:
                content = (await store.get(key_of(slot))).body
            except Missing:
                hole = await find_hole(store, found.history, await read_lease(store))
                if hole is not None:
                    raise hole from None
                break
            await _apply(store, found, decode(slot, content))
    except Missing as gone:
        examined.stopped = f"{gone}, and the newest checkpoint needs it"
    except Overtaken:
        return False
    except (BrokenHistory, Damaged) as damage:
        examined.stopped = str(damage)
    except IMPOSSIBLE as error:
        examined.stopped = f"slot {found.history.next_slot}, {examined.examining}: {error!r}"
    floor, _ = await read_floor(store)
    return floor.deleted_below <= found.history.next_slot and (examined.stopped is None or floor == found.floor)


async def _apply(store: Store, found: ExaminedStore, read: Slot) -> None:
    if read.head.epoch > found.history.epoch and (replaced := await find_replaced(store, read.head)) is not None:
        raise replaced
    found.history.take(read.head, read.digest)
    found.slots += 1
    for kind, payload in entries(read.head.slot, read.body):
        found.examined.examining = f"kind {kind}"
        found.examined.replay(JournalEntry(0, 0, kind, payload))
        found.examined.replayed_entries += 1


async def slots_of(store: Store) -> AsyncIterator[tuple[str, Slot | BrokenHistory]]:
    """Every object of the journal that the store lists, in order: the slot, or what is wrong with it. A slot may be
    older than the checkpoint, or closed by a fence; then no broker reads it any more.
    """
    keys = [listed.key async for listed in store.list(JOURNAL)]
    for key in sorted(keys):
        slot = slot_of(key)
        try:
            if slot is None:
                raise BrokenHistory(f"{key} is no slot")
            yield key, decode(slot, (await store.get(key)).body)
        except BrokenHistory as damage:
            yield key, damage
        except Missing:
            # It has just been deleted.
            continue


class CheckedObject(NamedTuple):
    """An object that the checkpoint names."""

    key: str
    size: int
    extents: int
    # What is wrong with it; empty if nothing is.
    trouble: str


async def objects_of(store: Store, contents: Contents) -> AsyncIterator[CheckedObject]:
    """Every object of the checkpoint, compared with the digest of each extent in it."""
    for key, extents in extents_by_key(contents):
        yield await check_object(store, key, extents)


def extents_by_key(contents: Contents) -> list[tuple[str, list[tuple[str, Extent]]]]:
    """The extents in each object, with the paths of their files; the objects in their order."""
    inside: defaultdict[str, list[tuple[str, Extent]]] = defaultdict(list)
    for path, row in contents.files.items():
        for extent in row:
            inside[extent.key].append((path, extent))
    return sorted(inside.items())


async def check_object(store: Store, key: str, extents: list[tuple[str, Extent]]) -> CheckedObject:
    """An object compared with the digest of each of these extents in it; StoreError if it cannot be read."""
    try:
        body = (await store.get(key)).body
    except Missing:
        return CheckedObject(key, 0, len(extents), "it is gone")
    return CheckedObject(key, len(body), len(extents), trouble_in(body, extents))


def trouble_in(body: bytes, extents: list[tuple[str, Extent]]) -> str:
    """What is wrong with the object with these extents; empty if nothing is."""
    damaged = [path for path, extent in extents if not _is_intact(extent, memoryview(body))]
    return f"the checkpoint knows another digest of {', '.join(damaged)} in it" if damaged else ""


def _is_intact(extent: Extent, body: memoryview) -> bool:
    part = body[extent.place : extent.place + extent.size]
    return len(part) == extent.size and digest_of([part]).hex() == extent.digest
