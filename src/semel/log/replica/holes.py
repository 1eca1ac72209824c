"""Finds a slot of the journal that was created and is gone, before a fence replaces it.

Such a slot looks like one that nobody has created yet. What tells them apart is a witness: a later object, or the
lease, that names a higher slot below which all were created. A broker that wants to act on a missing slot asks here
first. What is found counts only if the slot is still missing afterwards, and if the floor, read after that, does
not allow its deletion. Nothing here may create or change an object.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from semel.log.core.slots import (
    DEPTH,
    NOTHING_BEFORE,
    BrokenHistory,
    Evidence,
    History,
    SlotHead,
    created_below_by_place,
    next_slot_after,
    replaced_a_slot,
)
from semel.log.replica.floor import read_floor
from semel.log.replica.lease import LEASE_KEY, Lease
from semel.log.replica.slot import HEAD_BYTES, JOURNAL, decode_head, digest_of, encode_head, key_of, slot_of
from semel.log.replica.writer import Fenced
from semel.log.store import Missing, Store


class Overtaken(Fenced):
    """The slots that this broker read last, or would have read next, may have been deleted. The broker can be started
    again.
    """


class Hole(BrokenHistory):
    """A slot was created and is gone. The one-line message says which one, what says so, and what to do."""

    def __init__(self, where: str, slot: int, evidence: Evidence, lost: str) -> None:
        key = key_of(slot)
        super().__init__(
            f"{where}: {key} is gone: {evidence.witness} says that all slots below {evidence.created_below} were "
            f"created. {lost}. Put {key} back and start again: no slot was written. If it is lost for ever, start once "
            f"with --accept-loss {key}, which gives up that slot and all that was written after it"
        )
        self.slot = slot
        self.evidence = evidence


class FenceInHole(BrokenHistory):
    """A fence replaced a slot that had been created."""

    def __init__(self, where: str, fence: SlotHead, witness: str) -> None:
        key = key_of(fence.slot)
        super().__init__(
            f"{where}: {key} is the fence of epoch {fence.epoch}, and {witness} says that another object was there "
            f"before, which was acknowledged and would be lost. Replace {key} by that object and start again. If it is "
            f"lost for ever, start with --accept-loss {key}"
        )
        self.slot = fence.slot


class _Place(NamedTuple):
    """What is in a slot."""

    is_taken: bool
    # None if the slot is missing, or has no head of its own.
    head: SlotHead | None


async def find_hole(store: Store, history: History, lease: Lease | None) -> Hole | None:
    """The hole at the next slot of this history, if there is one. `lease` is the one that was read last. Raises
    Overtaken if the slot may have been deleted, or need not be read because a checkpoint covers it, and StoreError.
    """
    slot = history.next_slot
    behind = await _look_behind(store, slot)
    evidence = _evidence(behind, lease)
    if evidence.created_below <= slot or (await _place(store, slot)).is_taken:
        return None
    floor, _ = await read_floor(store)
    if floor.slot > slot:
        raise Overtaken(f"slot {slot} of {store.describe()} is gone, and a checkpoint covers it: start again")
    return Hole(store.describe(), slot, evidence, _lost(history, behind, lease))


async def find_replaced(store: Store, fence: SlotHead) -> FenceInHole | None:
    """Whether this fence, which was read or created, has replaced another object."""
    behind = await _places(store, range(fence.created_below + 1, fence.created_below + DEPTH + 1))
    for slot, place in behind.items():
        if place.head is not None and replaced_a_slot(fence, place.head):
            return FenceInHole(store.describe(), fence, key_of(slot))
    return None


async def fence_behind(store: Store, hole: Hole, nonce: bytes) -> SlotHead:
    """The fence that the next broker would have created if the slot were there. A broker that gives up the hole creates
    it first, so that another one which still writes after the hole acknowledges nothing more.
    """
    slot, last = hole.evidence.created_below, None
    for before in (slot - 1, slot - DEPTH):
        head = (await _place(store, before)).head
        if head is not None and next_slot_after(head) == slot:
            last = head
    while (place := await _place(store, slot)).is_taken:
        last = place.head
        slot = slot + 1 if last is None else next_slot_after(last)
    epoch, digest, position = hole.evidence.epoch, NOTHING_BEFORE, 0
    if last is not None:
        epoch, digest = max(epoch, last.epoch), digest_of([encode_head(last)])
        position = last.position + last.body_bytes
    return SlotHead(slot, epoch + 1, nonce, digest, position, slot, 0, digest_of([]))


async def _look_behind(store: Store, slot: int) -> dict[int, _Place]:
    """The slots after this one that are taken, as far as they are needed: the nearest, and the last ones. The nearest
    are read one by one, because a listing may miss what has just come.
    """
    places = await _places(store, range(slot + 1, slot + DEPTH + 1))
    listed = [number async for key, _ in store.list(JOURNAL, key_of(slot)) if (number := slot_of(key)) is not None]
    if listed:
        ends = {min(listed), *range(max(listed) - DEPTH + 1, max(listed) + 1)}
        places |= await _places(store, ends.intersection(listed).difference(places))
    return dict(sorted(places.items()))


async def _places(store: Store, slots: Iterable[int]) -> dict[int, _Place]:
    """Those of these slots that are taken."""
    numbers = list(slots)
    found = await asyncio.gather(*(_place(store, slot) for slot in numbers))
    return {slot: place for slot, place in zip(numbers, found, strict=True) if place.is_taken}


async def _place(store: Store, slot: int) -> _Place:
    try:
        head = decode_head(slot, await store.get_range(key_of(slot), 0, HEAD_BYTES))
    except Missing:
        return _Place(is_taken=False, head=None)
    except BrokenHistory:
        head = None
    return _Place(is_taken=True, head=head if head is not None and head.slot == slot else None)


def _evidence(behind: Mapping[int, _Place], lease: Lease | None) -> Evidence:
    """The strongest evidence, with the highest epoch that any of them names."""
    found = [Evidence(0, 0, "")]
    for slot, (_, head) in behind.items():
        if head is None:
            found.append(Evidence(created_below_by_place(slot), 0, key_of(slot)))
        else:
            found.append(Evidence(head.created_below, head.epoch, key_of(slot)))
    if lease is not None:
        found.append(Evidence(lease.created_below, lease.epoch, f"the {LEASE_KEY}"))
    return max(found)._replace(epoch=max(evidence.epoch for evidence in found))


def _lost(history: History, behind: Mapping[int, _Place], lease: Lease | None) -> str:
    """What is known to be lost at least, as a sentence without its full stop."""
    heads = [place.head for place in behind.values() if place.head is not None]
    if heads:
        gone, end = heads[0].position - history.position, max(head.position + head.body_bytes for head in heads)
        unreadable = end - heads[0].position
        after_it = f"{unreadable:,} bytes after it cannot be read without it"
        return f"At least {gone:,} bytes of acknowledged entries are gone with it, and {after_it}"
    if lease is not None and lease.position > history.position:
        return f"The last {lease.position - history.position:,} bytes that the active broker had sent are gone"
    return "What was acknowledged from there on is gone"
