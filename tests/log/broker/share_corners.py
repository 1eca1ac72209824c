"""The corners of share groups: share partitions with as many runs as they may have, and as many of them."""

from collections.abc import Callable, Iterable

from corners import corner

from semel.log.core.entries import ShareBatch, ShareChange, ShareStart, ShareStartsSet, ShareStatesChanged, TopicDeleted
from semel.log.core.groups.groups import Groups
from semel.log.core.groups.share import ShareGroup
from semel.log.core.groups.share_partition import (
    ACCEPT,
    ACQUIRED,
    AVAILABLE,
    RELEASE,
    Ack,
    LogSpan,
    SharePartition,
    ShareRules,
    Wish,
)
from semel.log.storage.encoding import encode

GROUP = "workers"
TOPIC = 1
# The most that a group may be set to have in flight in a partition.
RULES = ShareRules(locks_max=4_000, deliveries_max=5)


def shared(kinds: Iterable[int]) -> tuple[Groups, SharePartition]:
    """A share partition with a run for each of these, of which no two neighbours were delivered equally often."""
    groups = Groups()
    groups.apply(ShareStartsSet(GROUP, (ShareStart(TOPIC, 0, 0),)))
    partition = next(partition for _, partition in groups.share(GROUP).partitions())
    for offset, kind in enumerate(kinds):
        partition.apply([ShareBatch(offset, offset, kind, 1 + offset % 2)])
    return groups, partition


def commit(groups: Groups, changes: list[ShareBatch]) -> None:
    """As the active broker does; a standby decodes instead of deciding."""
    entry = ShareStatesChanged(GROUP, (ShareChange(TOPIC, 0, tuple(changes)),))
    encode(entry)
    groups.check(entry)
    groups.apply(entry)


@corner("share records acquired", small=1_500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups, partition = shared([AVAILABLE] * size)

    def acquire() -> None:
        wish = Wish(10**6, False, 1)
        outcome = partition.decide_acquire([LogSpan(0, size - 1, True)], 0, 0, wish, RULES)
        commit(groups, outcome.changes)
        partition.hold(outcome.held, "ada", 1)

    return acquire


@corner("share records acknowledged", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups, partition = shared([ACQUIRED])
    partition.apply([ShareBatch(0, size - 1, ACQUIRED, 1)])
    partition.hold([ShareBatch(0, size - 1, ACQUIRED, 1)], "ada", 1)
    acks = [Ack(0, size - 1, [RELEASE, ACCEPT] * (size // 2))]
    return lambda: commit(groups, partition.decide_acknowledge("ada", acks, RULES).changes)


@corner("share records released", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups, partition = shared([ACQUIRED] * size)
    partition.hold([ShareBatch(0, size - 1, ACQUIRED, 1)], "ada", 1)
    return lambda: commit(groups, partition.decide_release(lambda state: state.holder in {"ada"}, RULES))


@corner("share group copied", small=1_000, at_limits=1_000_000)
def _(size: int) -> Callable[[], object]:
    _, partition = shared([])
    partition.apply(ShareBatch(offset, offset, AVAILABLE, 1 + offset % 2) for offset in range(size))
    return partition.snapshot


@corner("topic deleted with share partitions", small=500, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    for name in "abcde":
        groups.apply(ShareStartsSet(name, tuple([ShareStart(TOPIC, index, 0) for index in range(size)])))
    assert isinstance(groups.existing("a").machine, ShareGroup)
    return lambda: groups.apply(TopicDeleted(TOPIC, 0, 0))
