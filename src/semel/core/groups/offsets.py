"""The offsets of one group: those that it committed, and those that are pending in open transactions.

An offset in a transaction is pending until the transaction ends. Until then no client sees it, and a client that asks
for stable offsets gets UNSTABLE_OFFSET_COMMIT. If a partition has two commits, the later one counts. The time of a
commit in a transaction is the time of its request, and not of the transaction's end: so the end of a transaction does
not undo a plain commit that came after the transaction's own.

Partitions are named by their topic's number, so an offset never passes to a recreated topic. `groups` decides how long
offsets are kept, because it knows the members; this file must not know any.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from semel.core.entries import PartitionName, StoredOffset
from semel.core.values import value

# The retention time in the broker's settings.
DEFAULT_RETENTION: Final = -1


@value
class Committer:
    """The sender of a commit, as its request says, in a form for both group protocols: member, instance, and its
    generation or member epoch (-1: it names no member). The group's machine decides whether that is true.

    `version` is the version of the request. `partitions` are those whose offsets it commits, or None if the group must
    not look at them.
    """

    member_id: str
    instance_id: str | None
    generation_or_epoch: int
    is_transactional: bool
    version: int
    partitions: Collection[PartitionName] | None = None


class CommittedOffset(NamedTuple):
    """A committed offset of one partition. `order` numbers the commits of the group."""

    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int
    retention_ms: int
    order: int


class Tally:
    """The number of offsets of all groups together, and the size of their metadata."""

    __slots__ = ("metadata_characters", "offsets")

    def __init__(self) -> None:
        self.offsets = 0
        self.metadata_characters = 0


class OffsetTable:
    """Offsets by topic and partition, so that a topic can be removed as a whole. Every change is counted in a tally.

    A snapshot shares the offsets of each topic with the table until they change: there may be a million of them, and
    every request would wait while they were copied.
    """

    __slots__ = ("_by_topic", "_shared", "_tally")

    def __init__(self, tally: Tally, kept: Mapping[str, Mapping[str, Iterable[Any]]] | None = None) -> None:
        """`kept` is a result of `snapshot`, written as JSON and read again."""
        self._tally = tally
        self._by_topic: dict[int, dict[int, CommittedOffset]] = {}
        # The topics whose offsets a snapshot may share.
        self._shared: set[int] = set()
        for number, partitions in (kept or {}).items():
            for partition, fields in partitions.items():
                self.put(PartitionName(int(number), int(partition)), CommittedOffset(*fields))

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __iter__(self) -> Iterator[tuple[PartitionName, CommittedOffset]]:
        for number, partitions in self._by_topic.items():
            for partition, offset in partitions.items():
                yield PartitionName(number, partition), offset

    def get(self, name: PartitionName) -> CommittedOffset | None:
        return self._by_topic.get(name.number, {}).get(name.partition)

    def of_topic(self, number: int) -> Mapping[int, CommittedOffset]:
        return self._by_topic.get(number, {})

    def perhaps_too_old(self, until_ms: int) -> list[tuple[PartitionName, CommittedOffset]]:
        """The offsets from `until_ms` or before, and those whose client set a retention time. Reads all offsets."""
        return [
            (PartitionName(number, partition), offset)
            for number, partitions in self._by_topic.items()
            for partition, offset in partitions.items()
            if offset.at_ms <= until_ms or offset.retention_ms != DEFAULT_RETENTION
        ]

    def put(self, name: PartitionName, offset: CommittedOffset) -> None:
        self.discard(name)
        self._own(name.number)[name.partition] = offset
        self._tally.offsets += 1
        self._tally.metadata_characters += len(offset.metadata)

    def discard(self, name: PartitionName) -> None:
        offset = self.get(name)
        if offset is None:
            return
        partitions = self._own(name.number)
        del partitions[name.partition]
        if not partitions:
            del self._by_topic[name.number]
        self._tally.offsets -= 1
        self._tally.metadata_characters -= len(offset.metadata)

    def discard_topic(self, number: int) -> None:
        """Remove a topic as a whole. A snapshot that shares its offsets keeps them."""
        partitions = self._by_topic.pop(number, {})
        self._shared.discard(number)
        self._tally.offsets -= len(partitions)
        self._tally.metadata_characters -= sum(len(offset.metadata) for offset in partitions.values())

    def clear(self) -> None:
        for number in list(self._by_topic):
            self.discard_topic(number)

    def snapshot(self) -> dict[int, dict[int, CommittedOffset]]:
        self._shared = set(self._by_topic)
        return dict(self._by_topic)

    def _own(self, number: int) -> dict[int, CommittedOffset]:
        """The offsets of a topic, for a change: copied if a snapshot shares them."""
        partitions = self._by_topic.get(number)
        if partitions is None or number in self._shared:
            partitions = self._by_topic[number] = dict(partitions or {})
            self._shared.discard(number)
        return partitions


def growth(table: OffsetTable | None, offsets: Iterable[StoredOffset]) -> tuple[int, int]:
    """By how many offsets and characters of metadata a table would grow. `table` is None if it does not exist yet."""
    new = {PartitionName(offset.number, offset.partition): len(offset.metadata) for offset in offsets}
    replaced = [] if table is None else [offset for offset in map(table.get, new) if offset is not None]
    return len(new) - len(replaced), sum(new.values()) - sum(len(offset.metadata) for offset in replaced)


class OffsetsView(NamedTuple):
    """The offsets of a group at one moment, by topic and partition; later changes do not affect them."""

    committed: Mapping[int, Mapping[int, CommittedOffset]]
    # One for each open transaction with offsets of the group.
    pending: Sequence[Mapping[int, Mapping[int, CommittedOffset]]]

    def is_pending(self, name: PartitionName) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(name.partition in table.get(name.number, ()) for table in self.pending)


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_commits", "_tally", "committed", "pending")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._commits = 0
        self.committed = OffsetTable(tally)
        # The pending offsets, by the producer id of the open transaction.
        self.pending: dict[int, OffsetTable] = {}

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.pending)

    def table_of(self, producer_id: int | None) -> OffsetTable | None:
        """The pending offsets of a producer, or, without a producer, the committed ones."""
        return self.committed if producer_id is None else self.pending.get(producer_id)

    def is_pending(self, name: PartitionName) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(table.get(name) is not None for table in self.pending.values())

    def view(self, *, with_pending: bool) -> OffsetsView:
        """All offsets as of now, for a caller that takes several steps, between which a transaction may end."""
        pending = [table.snapshot() for table in self.pending.values()] if with_pending else []
        return OffsetsView(self.committed.snapshot(), pending)

    def commit(self, offsets: Iterable[StoredOffset], at_ms: int, retention_ms: int) -> None:
        self._note(self.committed, offsets, at_ms, retention_ms)

    def commit_when_ended(self, producer_id: int, offsets: Iterable[StoredOffset], at_ms: int) -> None:
        """Add pending offsets to the transaction of this producer."""
        table = self.pending.setdefault(producer_id, OffsetTable(self._tally))
        self._note(table, offsets, at_ms, DEFAULT_RETENTION)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commit the pending offsets of this producer, or drop them."""
        table = self.pending.pop(producer_id, None)
        if table is None:
            return
        if committed:
            for name, offset in table:
                before = self.committed.get(name)
                if before is None or before.order < offset.order:
                    self.committed.put(name, offset)
        table.clear()

    def forget(self, partitions: Iterable[PartitionName]) -> None:
        """Forget the offsets of these partitions, committed and pending."""
        for number, partition in partitions:
            for table in self._tables():
                table.discard(PartitionName(number, partition))
        self._drop_empty()

    def includes_topic(self, number: int) -> bool:
        """Whether the group has a committed or pending offset in this topic."""
        return any(table.of_topic(number) for table in self._tables())

    def forget_topic(self, number: int) -> None:
        for table in self._tables():
            table.discard_topic(number)
        self._drop_empty()

    def clear(self) -> None:
        for table in self._tables():
            table.clear()
        self.pending.clear()

    def _note(self, table: OffsetTable, offsets: Iterable[StoredOffset], at_ms: int, retention_ms: int) -> None:
        for number, partition, offset, leader_epoch, metadata in offsets:
            self._commits += 1
            record = CommittedOffset(offset, leader_epoch, metadata, at_ms, retention_ms, self._commits)
            table.put(PartitionName(number, partition), record)

    def _tables(self) -> list[OffsetTable]:
        return [self.committed, *self.pending.values()]

    def _drop_empty(self) -> None:
        self.pending = {producer_id: table for producer_id, table in self.pending.items() if table}

    def snapshot(self) -> dict[str, Any]:
        return {
            "commits": self._commits,
            "committed": self.committed.snapshot(),
            "pending": {producer_id: table.snapshot() for producer_id, table in self.pending.items()},
        }

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any], tally: Tally) -> "GroupOffsets":
        offsets = cls(tally)
        offsets._commits = snapshot["commits"]
        offsets.committed = OffsetTable(tally, snapshot["committed"])
        offsets.pending = {int(producer): OffsetTable(tally, kept) for producer, kept in snapshot["pending"].items()}
        return offsets
