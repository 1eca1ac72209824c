"""Objects of the model's store that go although nobody may delete them, and what tells a writer of it.

A slot that was acknowledged and is gone looks like one that was never created. What is left says more: a head, and the
lease, name the slot up to which all was known to be created. An object may go in the model as long as something that is
left names its slot; what nothing names any more cannot be missed by anybody. Two more removals are left out, because no
reader can do anything about them: of a fence while a writer still runs that it keeps out, and of what the floor covers.
"""

from __future__ import annotations

from collections.abc import Iterator

from failover.states import ACTIVE, CHECKING, FENCE, FENCING, Object, World, Writer


def removals(world: World) -> Iterator[tuple[str, World]]:
    """Each object that may go next."""
    for slot, lying in enumerate(world.slots):
        if lying is None or slot < world.floor.covers or any(slot == gone for gone, _ in world.removed):
            continue
        if lying.kind == FENCE and any(_is_kept_out(writer, lying) for writer in world.writers):
            continue
        slots = (*world.slots[:slot], None, *world.slots[slot + 1 :])
        after = world._replace(slots=slots, removed=(*world.removed, (slot, lying)))
        if all(is_named(after, gone) for gone, _ in after.removed):
            kind = f"{lying.kind} of epoch {lying.epoch}" if lying.kind == FENCE else f"{lying.kind} {lying.value}"
            yield f"the {kind} in slot {slot} is removed by a person", after


def _is_kept_out(writer: Writer, fence: Object) -> bool:
    """Whether this writer would go on if the fence were not there."""
    return writer.phase in (FENCING, CHECKING, ACTIVE) and writer.epoch < fence.epoch


def is_named(world: World, slot: int) -> bool:
    """Whether something that is left says that this slot was created."""
    return slot < world.lease or any(
        lying is not None and lying.created_below > slot for lying in world.slots[slot + 1 :]
    )


def created_below(world: World, depth: int, lease: int, *, heads: bool, after: int) -> int:
    """All slots below this one were created once, as far as the lease and the objects behind slot `after` say."""
    behind = range(after + 1, len(world.slots))
    return max([lease, *(_named(world, slot, depth, heads=heads) for slot in behind)])


def is_fenced_hole(world: World, depth: int, slot: int, fence: Object, *, heads: bool) -> bool:
    """Whether an object behind the fence in this slot says that the slot was created before the fence. Its own writer
    writes nothing to the slots that it closes, and neither does anybody who has read it.
    """
    for behind in range(slot + 1, min(slot + depth + 1, len(world.slots))):
        lying = world.slots[behind]
        if lying is None or _named(world, behind, depth, heads=heads) <= slot:
            continue
        if behind < slot + depth or (lying.writer != fence.writer and lying.epoch <= fence.epoch):
            return True
    return False


def _named(world: World, slot: int, depth: int, *, heads: bool) -> int:
    """Up to which slot all was created, as the object in this slot says; or, where heads name nothing, as it shows by
    being there.
    """
    lying = world.slots[slot]
    if lying is None:
        return 0
    return lying.created_below if heads else slot - depth + 1


def with_removed(world: World) -> World:
    """The world with all that was removed where it was. Something else may have come there since: the fence of a writer
    that found out and ended.
    """
    slots = list(world.slots)
    for slot, lying in world.removed:
        slots[slot] = lying
    return world._replace(slots=tuple(slots))


def served_cut(world: World, number: int) -> str:
    """Whether a writer that is active does not have what this one had acknowledged before; in words."""
    older = world.writers[number]
    acknowledged = older.log[: older.acknowledged]
    for other, newer in enumerate(world.writers):
        cut = newer.phase == ACTIVE and newer.epoch > older.epoch and newer.log[: len(acknowledged)] != acknowledged
        if cut:
            return f"writer {number} acknowledged {list(acknowledged)}, and writer {other} serves {list(newer.log)}"
    return ""
