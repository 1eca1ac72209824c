"""Every interleaving of a few brokers on a few slots: what was acknowledged is read by everybody who comes later.

The model knows what `semel.log.core.slots` and `semel.log.replica` do, but not how: a broker reads to the first slot
that is missing, creates its fence there, and has as many slots under way as the depth allows. A create may arrive at
any time, also long after its broker has died; an answer may come at any time, or never. Each rule that is left out
loses something, or has a reader find what it must not believe.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

READING, ACTIVE, DEAD = "reading", "active", "dead"


class Slot(NamedTuple):
    """What was created there: by which broker, in which epoch, and whether it is a fence."""

    broker: int
    epoch: int
    is_fence: bool


class Broker(NamedTuple):
    """One process, from its start to its end."""

    phase: str = READING
    # What it found: the first slot that is missing, and the epoch before it.
    missing: int = -1
    epoch: int = 0
    next_slot: int = 0
    # The slots under way, and whether it knows that they are there.
    under_way: tuple[tuple[int, bool], ...] = ()


class World(NamedTuple):
    """All there is."""

    slots: tuple[Slot | None, ...]
    brokers: tuple[Broker, ...]
    # Slots, and the brokers that acknowledged what they had sent there.
    acknowledged: frozenset[tuple[int, int]] = frozenset()


class Lost(AssertionError):
    """Something acknowledged is not read, or something is read that must not be there."""


class Rules(NamedTuple):
    """The protocol, with what may be left out of it."""

    depth: int
    # How many slots a broker has under way, and how many are closed behind a fence.
    under_way_max: int
    closed: int
    answers_in_order: bool = True
    checks_nonce: bool = True
    fence_beyond_missing: int = 0


def rules(depth: int, **left_out: Any) -> Rules:
    return Rules(depth, depth, depth - 1)._replace(**left_out)


def read(rules: Rules, slots: tuple[Slot | None, ...]) -> tuple[int, int, set[int]]:
    """The first slot that is missing, the epoch before it, and the slots with entries that were read."""
    at, epoch = 0, 0
    entries: set[int] = set()
    while at < len(slots) and (slot := slots[at]) is not None:
        if slot.epoch < epoch or (slot.epoch > epoch and not slot.is_fence):
            raise Lost(f"slot {at} is of epoch {slot.epoch}, and epoch {epoch} came before it")
        epoch = slot.epoch
        if not slot.is_fence:
            entries.add(at)
        at += 1 + rules.closed if slot.is_fence else 1
    return at, epoch, entries


def following(rules: Rules, world: World) -> Iterator[World]:
    """All worlds that may come next."""
    for number, broker in enumerate(world.brokers):
        if broker.phase == READING:
            yield from take_over(rules, world, number, broker)
        else:
            yield from write(rules, world, number, broker)
        if broker.phase == ACTIVE:
            yield changed(world, number, broker._replace(phase=DEAD))


def changed(world: World, number: int, broker: Broker, slot: int = -1, content: Slot | None = None) -> World:
    brokers = (*world.brokers[:number], broker, *world.brokers[number + 1 :])
    slots = world.slots if slot < 0 else (*world.slots[:slot], content, *world.slots[slot + 1 :])
    return world._replace(slots=slots, brokers=brokers)


def take_over(rules: Rules, world: World, number: int, broker: Broker) -> Iterator[World]:
    """Read, and some time later create the fence; if the slot was taken meanwhile, read again."""
    if broker.missing < 0 or (broker.missing < len(world.slots) and world.slots[broker.missing] is not None):
        missing, epoch, _ = read(rules, world.slots)
        missing += rules.fence_beyond_missing
        if (missing, epoch) != (broker.missing, broker.epoch):
            yield changed(world, number, broker._replace(missing=missing, epoch=epoch))
    elif broker.missing < len(world.slots):
        active = Broker(ACTIVE, epoch=broker.epoch + 1, next_slot=broker.missing + 1 + rules.closed)
        yield changed(world, number, active, broker.missing, Slot(number, active.epoch, is_fence=True))


def write(rules: Rules, world: World, number: int, broker: Broker) -> Iterator[World]:
    """Send the next slot, have one of those under way arrive, or learn what lies in it."""
    is_active = broker.phase == ACTIVE
    if is_active and len(broker.under_way) < rules.under_way_max and broker.next_slot < len(world.slots):
        sent = (*broker.under_way, (broker.next_slot, False))
        yield changed(world, number, broker._replace(next_slot=broker.next_slot + 1, under_way=sent))
    for place, (slot, is_known) in enumerate(broker.under_way):
        content = world.slots[slot]
        if content is None:
            yield changed(world, number, broker, slot, Slot(number, broker.epoch, is_fence=False))
        elif is_active and not is_known:
            if content.broker != number and rules.checks_nonce:
                yield changed(world, number, broker._replace(phase=DEAD))
                continue
            known = (*broker.under_way[:place], (slot, True), *broker.under_way[place + 1 :])
            yield answered(rules, changed(world, number, broker._replace(under_way=known)), number)


def answered(rules: Rules, world: World, number: int) -> World:
    """Acknowledge what may be acknowledged."""
    broker = world.brokers[number]
    rest = list(broker.under_way)
    acknowledged = set(world.acknowledged)
    if not rules.answers_in_order:
        acknowledged |= {(slot, number) for slot, is_known in rest if is_known}
    while rest and rest[0][1]:
        acknowledged.add((rest.pop(0)[0], number))
    return changed(world, number, broker._replace(under_way=tuple(rest)))._replace(acknowledged=frozenset(acknowledged))


def explore(rules: Rules, brokers: int, slots: int) -> int:
    """Visit every world there can be; answer how many. Raises Lost."""
    first = World((None,) * slots, (Broker(),) * brokers)
    seen = {first}
    ahead = [first]
    while ahead:
        world = ahead.pop()
        _, _, entries = read(rules, world.slots)
        for slot, number in world.acknowledged:
            content = world.slots[slot]
            if slot not in entries or content is None or content.broker != number:
                raise Lost(f"slot {slot} was acknowledged and is not read")
        for after in following(rules, world):
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    return len(seen)


@pytest.mark.parametrize(
    ("brokers", "slots", "depth"),
    [
        *((2, 7, 2), (2, 8, 3), (2, 9, 4)),
        *(pytest.param(*large, marks=pytest.mark.slow) for large in ((3, 7, 2), (2, 12, 4))),
    ],
)
def test_nothing_acknowledged_is_lost_in_any_interleaving(brokers: int, slots: int, depth: int) -> None:
    assert explore(rules(depth), brokers, slots) > 1000


@pytest.mark.parametrize(
    "left_out",
    [
        {"answers_in_order": False},
        {"checks_nonce": False},
        {"under_way_max": 3},
        {"closed": 0},
        {"fence_beyond_missing": 1},
    ],
    ids=lambda left_out: next(iter(left_out)),
)
def test_each_rule_that_is_left_out_loses_something(left_out: dict[str, int]) -> None:
    """Or the model would prove nothing."""
    with pytest.raises(Lost):
        explore(rules(2, **left_out), 2, 8)
