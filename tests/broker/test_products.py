"""Two bounds that are each fine hold nobody up together: the corners of the limits, in counted steps.

Each corner is built smaller than the limits allow, in two sizes: the steps of the smaller one and their growth give
those at the limits. A loop over one limit within a loop over another grows with the product, and fails here.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from counted_steps import steps_of
from semel.broker.broker import Broker
from semel.broker.wakeups import TOLD_AT_ONCE, told
from semel.core.entries import (
    OffsetsCommitted,
    PartitionName,
    StoredOffset,
    TopicDeleted,
    TransactionalOffsets,
    TransactionEnded,
)
from semel.core.groups.groups import FORGOTTEN_AT_ONCE, Groups
from semel.core.partition import Partition
from semel.core.refusals import Refused
from semel.storage.aborted_blocks import BLOCK_LAYOUT
from semel.storage.files import MemoryFiles
from semel.storage.partition_log import PartitionLog, Watcher
from semel.storage.segment import SegmentFiles
from stepping import create, in_a_broker

TABLE: dict[str, Any] = {
    product.name: product
    for product in runpy.run_path(str(Path(__file__).parent.parent.parent / "tools/products.py"))["PRODUCTS"]
}
TOPIC, OTHER_TOPIC = 1, 2
GROUP = "readers"


class Corner(NamedTuple):
    """What is done in one turn at a size, and the size at which all limits are reached."""

    build: Callable[[int], Callable[[], object]]
    small: int
    at_limits: int


CORNERS: dict[str, Corner] = {}


def corner(name: str, *, small: int, at_limits: int) -> Callable[[Callable[[int], Callable[[], object]]], None]:
    def note(build: Callable[[int], Callable[[], object]]) -> None:
        CORNERS[name] = Corner(build, small, at_limits)

    return note


def offsets(count: int, *, number: int = TOPIC, first: int = 0, value: int = 5) -> tuple[StoredOffset, ...]:
    return tuple([StoredOffset(number, partition, value, -1, "") for partition in range(first, first + count)])


def open_transactions(groups: Groups, count: int, *, partition: int = 0, group: str = GROUP) -> None:
    """So many, each with a pending offset in one partition."""
    for producer_id in range(count):
        groups.apply(TransactionalOffsets(producer_id, 0, group, offsets(1, first=partition), 0))


def names(count: int) -> list[PartitionName]:
    return [PartitionName(TOPIC, partition) for partition in range(count)]


@corner("offsets deleted", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(20_000), -1, 0))
    open_transactions(groups, size)
    group = groups.existing(GROUP)

    def delete() -> None:
        wanted = names(20_000)
        entry = group.decide_forget("t", wanted[: group.at_once(wanted)])
        assert entry is not None
        groups.apply(entry)

    return delete


@corner("offsets expired", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(size), -1, 0))
    open_transactions(groups, size // 5, partition=1)
    entries = groups.decide_expiry(groups.existing(GROUP), 1_000_000, 1, lambda _: "t")
    return lambda: groups.apply(next(entries))


@corner("offsets committed by a transaction", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(size), -1, 0))
    groups.apply(TransactionalOffsets(1, 0, GROUP, offsets(size, value=6), 0))
    return lambda: groups.apply(TransactionEnded(1, 0, 1, 0, True, (), (GROUP,), 0))


@corner("topic deleted with offsets", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    for number in range(50):
        groups.apply(OffsetsCommitted(f"g{number}", offsets(size), -1, 0))
    return lambda: groups.apply(TopicDeleted(TOPIC, 0, 0))


@corner("topic deleted with pending offsets", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    for number in range(size):
        groups.apply(TransactionalOffsets(number, 0, f"g{number}", offsets(1), 0))
    return lambda: groups.apply(TopicDeleted(TOPIC, 0, 0))


@corner("offsets fetched", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    open_transactions(groups, size, partition=1)
    view = groups.existing(GROUP).offsets.view(with_pending=True)
    return lambda: view.is_pending(PartitionName(TOPIC, 0))


class Told(Watcher):
    """A fetch that waits, and counts how often it is told that there is more."""

    def __init__(self) -> None:
        self.count = 0

    def moved(self, partition: PartitionLog) -> None:
        self.count += 1


@corner("fetches told of an append", small=1_000, at_limits=256_000)
def _(size: int) -> Callable[[], object]:
    partition = PartitionLog(1, 0, "", SegmentFiles(MemoryFiles(), 1), BLOCK_LAYOUT, Partition())
    partition.watchers.update((Told(), None) for _ in range(size))
    steps = told(partition)
    return lambda: next(steps)


def test_fetches_that_wait_are_told_and_answered_in_steps() -> None:
    def test(broker: Broker) -> None:
        create(broker, "quiet")
        (partition,) = broker.log.state.partitions.all()
        watchers = [Told() for _ in range(10 * TOLD_AT_ONCE)]
        partition.watchers.update((watcher, None) for watcher in watchers)
        # However often it grows before they are told, they are told once.
        broker.log.note_moved(partition)
        broker.log.note_moved(partition)
        assert not any(watcher.count for watcher in watchers)
        steps = broker.wakeups._steps()
        next(steps)
        assert sum(watcher.count for watcher in watchers) == TOLD_AT_ONCE
        del partition.watchers[watchers[-1]]
        assert len(list(steps)) == 9
        assert [watcher.count for watcher in watchers] == [*[1] * (10 * TOLD_AT_ONCE - 1), 0]

    in_a_broker(test)


def test_every_product_of_limits_has_a_corner_that_is_built_here() -> None:
    assert list(CORNERS) == list(TABLE)


@pytest.mark.parametrize("name", CORNERS)
def test_at_the_limits_one_turn_takes_no_more_steps_than_the_table_says(name: str) -> None:
    build, small, at_limits = CORNERS[name]
    some, more = steps_of(build(small)), steps_of(build(2 * small))
    assert more <= 2.1 * some + 1_000, "it grows with a product"
    assert some + (more - some) * (at_limits - small) / small <= TABLE[name].steps_max


def test_a_transaction_has_a_bound_on_its_offsets_in_all_groups_together() -> None:
    groups = Groups(transaction_offsets_max=10)
    groups.apply(TransactionalOffsets(1, 0, "a", offsets(6), 0))
    # Once more for the same partitions.
    groups.check_offsets("a", offsets(6), 1)
    groups.check_offsets("b", offsets(4), 1)
    with pytest.raises(Refused, match="at most 10 offsets"):
        groups.check_offsets("b", offsets(5), 1)
    groups.check_offsets("b", offsets(10), 2)
    groups.apply(TransactionEnded(1, 0, 1, 0, True, (), ("a",), 0))
    groups.check_offsets("b", offsets(10), 1)
    groups.apply(TransactionalOffsets(1, 0, "b", offsets(10), 0))
    groups.apply(TopicDeleted(TOPIC, 0, 0))
    groups.check_offsets("b", offsets(10, number=OTHER_TOPIC), 1)


def test_offsets_are_deleted_in_entries_that_each_remove_few() -> None:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(2 * FORGOTTEN_AT_ONCE), -1, 0))
    group = groups.existing(GROUP)
    assert group.at_once(names(2 * FORGOTTEN_AT_ONCE)) == FORGOTTEN_AT_ONCE
    assert group.at_once(names(3)) == 3
    open_transactions(groups, FORGOTTEN_AT_ONCE, partition=1)
    assert group.at_once(names(2 * FORGOTTEN_AT_ONCE)) == 2
