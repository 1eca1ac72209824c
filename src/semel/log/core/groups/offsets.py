"""The offsets of one group: those that it committed, and those that are pending in open transactions.

An offset in a transaction is pending until the transaction ends. Until then no client sees it, and a client that asks
for stable offsets gets UNSTABLE_OFFSET_COMMIT. If a partition has two commits, the later one counts. The time of a
commit in a transaction is the time of its request, and not of the transaction's end: so the end of a transaction does
not undo a plain commit that came after the transaction's own.

There may be thousands of open transactions with offsets of one group, so an index says which of them have an offset for
a partition: nothing here looks through all of them, except a checkpoint.

Partitions are named by their topic's number, so an offset never passes to a recreated topic. `groups` decides how long
offsets are kept, because it knows the members; this file must not know any.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from semel.log.core.entries import PartitionName, StoredOffset
from semel.log.core.values import value

# Up to this many offsets of a deleted topic are freed with it; more are freed later.
_FREED_AT_ONCE: Final = 50
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

    __slots__ = ("metadata_characters", "of_producers", "offsets", "waste")

    def __init__(self) -> None:
        self.offsets = 0
        self.metadata_characters = 0
        # The number of pending offsets of each producer, in all groups together.
        self.of_producers: dict[int, int] = {}
        # The offsets of deleted topics. Python takes 0.1 us to free each of them, and there may be a million.
        self.waste: list[Mapping[int, CommittedOffset]] = []

    def note_pending(self, producer_id: int, more: int) -> None:
        count = self.of_producers.get(producer_id, 0) + more
        if count:
            self.of_producers[producer_id] = count
        else:
            self.of_producers.pop(producer_id, None)


class OffsetTable:
    """Offsets by topic and partition, so that a topic can be removed as a whole. Every change is counted in a tally.

    A snapshot shares the offsets of each topic with the table until they change: there may be a million of them, and
    every request would wait while they were copied.
    """

    __slots__ = ("_by_topic", "_characters", "_shared", "_tally")

    def __init__(self, tally: Tally, kept: Mapping[str, Mapping[str, Iterable[Any]]] | None = None) -> None:
        """`kept` is a result of `snapshot`, written as JSON and read again."""
        self._tally = tally
        self._by_topic: dict[int, dict[int, CommittedOffset]] = {}
        # The size of the metadata in each topic.
        self._characters: dict[int, int] = {}
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

    def by_topic(self) -> Iterable[tuple[int, Mapping[int, CommittedOffset]]]:
        return self._by_topic.items()

    def perhaps_too_old(self, until_ms: int) -> list[PartitionName]:
        """The partitions with offsets from `until_ms` or before, or with a retention time of the client. Reads all
        offsets.
        """
        return [
            PartitionName(number, partition)
            for number, partitions in self._by_topic.items()
            for partition, offset in partitions.items()
            if offset.at_ms <= until_ms or offset.retention_ms != DEFAULT_RETENTION
        ]

    def put(self, name: PartitionName, offset: CommittedOffset) -> None:
        self.discard(name)
        self._own(name.number)[name.partition] = offset
        self._count(name.number, 1, len(offset.metadata))

    def discard(self, name: PartitionName) -> None:
        offset = self.get(name)
        if offset is None:
            return
        partitions = self._own(name.number)
        del partitions[name.partition]
        self._count(name.number, -1, -len(offset.metadata))
        if not partitions:
            del self._by_topic[name.number]
            del self._characters[name.number]

    def discard_topic(self, number: int) -> None:
        """Remove a topic as a whole. A snapshot that shares its offsets keeps them."""
        partitions = self._by_topic.pop(number, {})
        self._shared.discard(number)
        self._tally.offsets -= len(partitions)
        self._tally.metadata_characters -= self._characters.pop(number, 0)
        if len(partitions) > _FREED_AT_ONCE:
            self._tally.waste.append(partitions)

    def clear(self) -> None:
        for number in list(self._by_topic):
            self.discard_topic(number)

    def snapshot(self) -> dict[int, dict[int, CommittedOffset]]:
        self._shared = set(self._by_topic)
        return dict(self._by_topic)

    def take_over(self, other: "OffsetTable") -> None:
        """Put those offsets of the other table that were committed later than the ones here."""
        for number, partitions in other._by_topic.items():
            own = self._own(number)
            more = more_characters = 0
            for partition, offset in partitions.items():
                before = own.get(partition)
                if before is None:
                    more += 1
                elif before.order < offset.order:
                    more_characters -= len(before.metadata)
                else:
                    continue
                own[partition] = offset
                more_characters += len(offset.metadata)
            self._count(number, more, more_characters)

    def _count(self, number: int, more: int, more_characters: int) -> None:
        self._characters[number] = self._characters.get(number, 0) + more_characters
        self._tally.offsets += more
        self._tally.metadata_characters += more_characters

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
    # The partitions for which an open transaction has an offset.
    pending: Mapping[int, Collection[int]]

    def is_pending(self, name: PartitionName) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return name.partition in self.pending.get(name.number, ())


class _Pending:
    """The producers whose open transactions have offsets of a group, by topic and partition."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        # One producer is kept as its id, several as a dict, because nearly always there is one.
        self._by_topic: dict[int, dict[int, int | dict[int, None]]] = {}

    def includes_topic(self, number: int) -> bool:
        return number in self._by_topic

    def of_topic(self, number: int) -> Collection[int]:
        """The partitions of a topic for which there are pending offsets."""
        return self._by_topic.get(number, ())

    def producers(self, number: int, partition: int) -> Collection[int]:
        """The producers with a pending offset for this partition."""
        those = self._by_topic.get(number, {}).get(partition, ())
        return (those,) if isinstance(those, int) else those

    def add(self, number: int, partition: int, producer_id: int) -> bool:
        """Note a pending offset; return whether it is the first of this producer for this partition."""
        partitions = self._by_topic.setdefault(number, {})
        those = partitions.get(partition)
        if those is None:
            partitions[partition] = producer_id
        elif isinstance(those, int):
            if those == producer_id:
                return False
            partitions[partition] = {those: None, producer_id: None}
        elif producer_id in those:
            return False
        else:
            those[producer_id] = None
        return True

    def remove(self, number: int, partition: int, producer_id: int) -> None:
        partitions = self._by_topic[number]
        those = partitions[partition]
        if not isinstance(those, int):
            del those[producer_id]
            if those:
                return
        del partitions[partition]
        if not partitions:
            del self._by_topic[number]

    def take_topic(self, number: int) -> Iterable[int]:
        """Remove a topic; return the producers that have pending offsets in it."""
        those: dict[int, None] = {}
        for one in self._by_topic.pop(number, {}).values():
            if isinstance(one, int):
                those[one] = None
            else:
                those.update(one)
        return those

    def snapshot(self) -> dict[int, Collection[int]]:
        """The partitions with pending offsets; later changes do not affect it."""
        return {number: frozenset(partitions) for number, partitions in self._by_topic.items()}


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_commits", "_pending_in", "_tally", "committed", "pending")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._commits = 0
        self.committed = OffsetTable(tally)
        # The pending offsets, by the producer id of the open transaction.
        self.pending: dict[int, OffsetTable] = {}
        self._pending_in = _Pending()

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.pending)

    def table_of(self, producer_id: int | None) -> OffsetTable | None:
        """The pending offsets of a producer, or, without a producer, the committed ones."""
        return self.committed if producer_id is None else self.pending.get(producer_id)

    def is_pending(self, name: PartitionName) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return name.partition in self._pending_in.of_topic(name.number)

    def count_at(self, name: PartitionName) -> int:
        """How many offsets there are for this partition, committed and pending."""
        is_committed = self.committed.get(name) is not None
        return is_committed + len(self._pending_in.producers(name.number, name.partition))

    def view(self, *, with_pending: bool) -> OffsetsView:
        """All offsets as of now, for a caller that takes several steps, between which a transaction may end."""
        pending = self._pending_in.snapshot() if with_pending else {}
        return OffsetsView(self.committed.snapshot(), pending)

    def commit(self, offsets: Iterable[StoredOffset], at_ms: int, retention_ms: int) -> None:
        self._note(self.committed, offsets, at_ms, retention_ms)

    def commit_when_ended(self, producer_id: int, offsets: Iterable[StoredOffset], at_ms: int) -> None:
        """Add pending offsets to the transaction of this producer."""
        table = self.pending.get(producer_id)
        if table is None:
            table = self.pending[producer_id] = OffsetTable(self._tally)
        offsets = tuple(offsets)
        self._note(table, offsets, at_ms, DEFAULT_RETENTION)
        more = sum([self._pending_in.add(offset[0], offset[1], producer_id) for offset in offsets])
        self._tally.note_pending(producer_id, more)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commit the pending offsets of this producer, or drop them."""
        table = self.pending.pop(producer_id, None)
        if table is None:
            return
        if committed:
            self.committed.take_over(table)
        for number, partitions in table.by_topic():
            for partition in partitions:
                self._pending_in.remove(number, partition, producer_id)
        self._tally.note_pending(producer_id, -len(table))
        table.clear()

    def forget(self, partitions: Iterable[PartitionName]) -> None:
        """Forget the offsets of these partitions, committed and pending."""
        for number, partition in partitions:
            name = PartitionName(number, partition)
            self.committed.discard(name)
            for producer_id in tuple(self._pending_in.producers(number, partition)):
                self._discard_pending(name, producer_id)

    def includes_topic(self, number: int) -> bool:
        """Whether the group has a committed or pending offset in this topic."""
        return bool(self.committed.of_topic(number)) or self._pending_in.includes_topic(number)

    def forget_topic(self, number: int) -> None:
        self.committed.discard_topic(number)
        for producer_id in self._pending_in.take_topic(number):
            table = self.pending[producer_id]
            self._tally.note_pending(producer_id, -len(table.of_topic(number)))
            table.discard_topic(number)
            if not table:
                del self.pending[producer_id]

    def clear(self) -> None:
        self.committed.clear()
        for producer_id in list(self.pending):
            self.end_transaction(producer_id, committed=False)

    def _note(self, table: OffsetTable, offsets: Iterable[StoredOffset], at_ms: int, retention_ms: int) -> None:
        for number, partition, offset, leader_epoch, metadata in offsets:
            self._commits += 1
            record = CommittedOffset(offset, leader_epoch, metadata, at_ms, retention_ms, self._commits)
            table.put(PartitionName(number, partition), record)

    def _discard_pending(self, name: PartitionName, producer_id: int) -> None:
        table = self.pending[producer_id]
        table.discard(name)
        self._pending_in.remove(name.number, name.partition, producer_id)
        self._tally.note_pending(producer_id, -1)
        if not table:
            del self.pending[producer_id]

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
        for key, kept in snapshot["pending"].items():
            producer_id = int(key)
            table = offsets.pending[producer_id] = OffsetTable(tally, kept)
            for name, _ in table:
                offsets._pending_in.add(name.number, name.partition, producer_id)
            tally.note_pending(producer_id, len(table))
        return offsets
