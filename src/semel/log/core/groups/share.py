"""A share group (KIP-932): many members read the same partitions, and each record is delivered to one of them.

What a share group adds to a group that the broker assigns (`assigned_group`): several members may have the same
partition, so each moves to its target at once, and the group has no offsets but its share partitions
(`share_partition`). What a member may acquire does not depend on its assignment: as in Apache Kafka, that only says
where it should look for records.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from semel.log.core.entries import (
    ConsumerSubscription,
    PartitionName,
    ShareGroupChanged,
    ShareStartsSet,
    ShareStatesChanged,
)
from semel.log.core.groups.assigned_group import AssignedGroup
from semel.log.core.groups.assignors import Assignor, assign_shares
from semel.log.core.groups.consumer_owners import NoOwners
from semel.log.core.groups.offsets import Committer
from semel.log.core.groups.share_partition import SharePartition
from semel.wire.refusals import GROUP_ID_NOT_FOUND, Refused


class ShareTally:
    """What the share partitions of all groups together take."""

    def __init__(self) -> None:
        self.partitions = 0
        # The records between the start and the end of each, which is the most that they could have of runs.
        self.records = 0

    def add(self, partition: SharePartition) -> None:
        self.partitions += 1
        self.records += partition.window

    def remove(self, partitions: Collection[SharePartition]) -> None:
        """There may be very many of them."""
        self.partitions -= len(partitions)
        self.records -= sum(map(attrgetter("window"), partitions))


class ShareGroup(AssignedGroup):
    """One group. Only `apply...` changes its stored state."""

    KIND = "share"
    CHANGED = ShareGroupChanged

    def __init__(self, tally: ShareTally) -> None:
        super().__init__()
        self._owners = NoOwners()
        self._tally = tally
        # By the number of the topic and the index of the partition.
        self._partitions: dict[int, dict[int, SharePartition]] = {}

    # Looking up

    @property
    def state_name(self) -> str:
        """The group's state under Kafka's name. No member ever waits for another."""
        return "Stable" if self.members else "Empty"

    @property
    def assignor(self) -> str:
        return "simple"

    def assignor_of(self, subscriptions: Iterable[ConsumerSubscription]) -> Assignor:
        return assign_shares

    def partition(self, name: PartitionName) -> SharePartition | None:
        """The share partition, if somebody has used it."""
        return self._partitions.get(name.number, {}).get(name.partition)

    def partitions(self) -> Iterator[tuple[PartitionName, SharePartition]]:
        """All of them that somebody has used."""
        for number, of_topic in self._partitions.items():
            for index, partition in of_topic.items():
                yield PartitionName(number, index), partition

    def indexes_of(self, number: int) -> list[int]:
        """Those of them in the topic of this number."""
        return list(self._partitions.get(number, ()))

    def includes_topic(self, number: int) -> bool:
        return number in self._partitions

    # Questions about offsets, which consumers of this group do not have

    def check_commit(self, who: Committer) -> None:
        raise Refused(GROUP_ID_NOT_FOUND, "a share group has no committed offsets")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise Refused(GROUP_ID_NOT_FOUND, "a share group has no committed offsets")

    def check_forget(self) -> None:
        raise Refused(GROUP_ID_NOT_FOUND, "a share group has no committed offsets")

    # Applying

    def check_states(self, entry: ShareStatesChanged) -> None:
        """ValueError for an entry that cannot follow those before it."""
        for number, index, batches in entry.changes:
            partition = self.partition(PartitionName(number, index))
            if partition is None:
                raise ValueError(f"partition {index} of topic {number} is no share partition of this group")
            partition.check(batches)

    def apply_states(self, entry: ShareStatesChanged) -> None:
        for number, index, batches in entry.changes:
            partition = self._partitions[number][index]
            before = partition.window
            partition.apply(batches)
            self._tally.records += partition.window - before

    def apply_starts(self, entry: ShareStartsSet) -> None:
        for number, index, offset in entry.starts:
            before = self._partitions.get(number, {}).pop(index, None)
            if before is not None:
                self._tally.remove([before])
            if offset >= 0:
                self._add(number, index, SharePartition(offset))
            elif not self._partitions.get(number, True):
                del self._partitions[number]

    def _add(self, number: int, index: int, partition: SharePartition) -> None:
        self._partitions.setdefault(number, {})[index] = partition
        self._tally.add(partition)

    def forget_topic(self, number: int) -> None:
        """The topic was deleted."""
        self._tally.remove(self._partitions.pop(number, {}).values())

    def clear(self) -> None:
        """The group was deleted."""
        for number in list(self._partitions):
            self.forget_topic(number)

    # Checkpoints

    def snapshot(self) -> dict[str, Any]:
        shares = [[*name, partition.snapshot()] for name, partition in self.partitions()]
        return {**super().snapshot(), "shares": shares}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        super().restore({name: value for name, value in snapshot.items() if name != "shares"})
        for number, index, partition in snapshot["shares"]:
            self._add(number, index, SharePartition.restore(partition))
