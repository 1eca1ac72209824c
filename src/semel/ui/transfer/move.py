"""A move from one cluster into another, from its beginning to the audit and the offsets of groups.

    copying   everything that is committed, transaction by transaction, until no client writes or reads
    audited   both sides were compared, and the offsets of the groups in the target are stored
    moved     the topics have their configurations, and the groups their offsets, all of them in one transaction

Each step is committed in the target, so a move may be killed at any moment and started again. It must never reach the
second step while a transaction is open in the source, or a group has members there.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from semel.client import (
    EARLIEST,
    LATEST,
    Isolation,
    LogClient,
    OffsetOutOfRange,
    Slice,
    Topic,
    TopicPartition,
    UnknownTopic,
    groups,
    transactional_ids,
)
from semel.client.cluster import GROUP
from semel.client.groups import Committed, Listed
from semel.client.patience import Concluding
from semel.client.topics import partitions_of
from semel.client.transaction import Transaction
from semel.ui.transfer import topics
from semel.ui.transfer.comparison import behind, compare, count_differences, count_records
from semel.ui.transfer.pieces import Fetch, Piece, fetches, pieces
from semel.ui.transfer.progress import PREFIX, MoveRefused, Place, Places, Progress, Reached, Stage, read_progress
from semel.ui.transfer.topics import Original

# Large enough that claim and commit cost little in comparison, and small enough for any transaction.max.timeout.ms.
TRANSACTION_BYTES: Final = 16 * 1024 * 1024
_TRANSACTION_MS: Final = 60_000
# Each group takes a few round trips in the last transaction, which has to hold all groups.
_GROUP_MS: Final = 200
# Kafka's default of transaction.max.timeout.ms.
_TRANSACTION_MS_MAX: Final = 900_000
# A transaction gets no more records after this long, so that slow clusters do not exceed its timeout.
_TRANSACTION_SECONDS: Final = 15.0
# Nothing must be written for this long before both sides are compared.
QUIET_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.5
# The committed offsets of a group in the source.
GroupOffsets = dict[TopicPartition, Committed]
# The states of a group without members.
_WITHOUT_MEMBERS: Final = frozenset(("empty", "dead"))


class Moved(NamedTuple):
    """The result of a move."""

    topics: int
    partitions: int
    records: int
    groups: int
    was_moved_before: bool


class Move:
    """One move. `say` gets a line for each step and each wait; `show` gets the number of records that this run has
    copied so far.
    """

    def __init__(
        self,
        source: LogClient,
        target: LogClient,
        say: Callable[[str], None],
        show: Callable[[int], None],
        *,
        quiet_seconds: float = QUIET_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._target = target
        self._say = say
        self._show = show
        self._quiet_seconds = quiet_seconds
        self._steady = steady
        self._copied = 0
        self._last_line = ""
        self._transactional_id = ""
        self._originals: dict[str, Original] = {}

    def run(self) -> Moved:
        """Continue where the last move of this cluster stopped. Raises LogError with the obstacle."""
        progress = self._begin()
        if progress.stage is Stage.MOVED:
            names = {where.topic for where in progress.reached}
            return Moved(len(names), len(progress.reached), 0, len(progress.places), was_moved_before=True)
        records = 0
        if progress.stage is Stage.COPYING:
            records, places = self._copy_and_audit(progress)
            progress.write(self._target, self._transaction(), stage=Stage.AUDITED, places=places)
        else:
            self._check_unchanged(progress)
        self._conclude(progress)
        partitions = sum(original.topic.partitions for original in self._originals.values())
        return Moved(len(self._originals), partitions, records, len(progress.places), was_moved_before=False)

    def _conclude(self, progress: Progress) -> None:
        """Set the configurations of the topics and the offsets of the groups."""
        for name in sorted({where.topic for where in progress.reached} - self._originals.keys()):
            self._say(f"topic {name!r} was deleted in the source after the move began: delete it in the target as well")
        for name, unknown in topics.settle(self._target, self._originals, progress).items():
            self._say(f"topic {name!r} is moved without {', '.join(unknown)}: the target knows no such configuration")
        transaction = self._transaction(len(progress.places))
        transaction.join([progress.where])
        for group, own in progress.places.items():
            transaction.commit_offsets(group, {where: Committed(one.offset, one.note) for where, one in own.items()})
        progress.write(self._target, transaction, stage=Stage.MOVED)
        # On Apache Kafka a group has its offsets a moment after the commit.
        self._target.patiently(self._check_committed)

    def _check_committed(self) -> None:
        if transactional_ids.is_committing(self._target.cluster, self._transactional_id):
            raise Concluding("the offsets of the groups are being committed")

    def _begin(self) -> Progress:
        ids = [client.patiently(client.cluster.cluster_id) for client in (self._source, self._target)]
        if ids[0] == ids[1]:
            raise MoveRefused("the source and the target are the same cluster")
        self._transactional_id = f"{PREFIX}{ids[0]}"
        # From now on an earlier move cannot write, and its open transaction is aborted.
        transactional_ids.claim(self._target.cluster, self._transactional_id)
        topic = topics.progress_topic(self._target, self._transactional_id)
        progress = read_progress(self._target, topic)
        self._originals = topics.originals(self._source)
        return progress

    def _check_unchanged(self, progress: Progress) -> None:
        """Refuse to go on if the source was used after the audit of an earlier run."""
        while waiting := self._in_use():
            self._say_once(f"compared both sides before; waiting {waiting}")
            time.sleep(_LOOK_SECONDS)
        before = {
            group: {where: Committed(one.source_offset, one.note) for where, one in own.items()}
            for group, own in progress.places.items()
        }
        if self._behind(progress) or self._committed() != before:
            raise MoveRefused(
                "records were written to the source, or offsets committed there, after it was compared with the "
                f"target: delete the topics that were moved, and {progress.topic.name!r}, in the target, and start "
                "again when nobody uses the source any more"
            )

    def _transaction(self, groups: int = 0) -> Transaction:
        timeout_ms = min(_TRANSACTION_MS + _GROUP_MS * groups, _TRANSACTION_MS_MAX)
        return Transaction(self._target, self._transactional_id, timeout_ms)

    # -- copying

    def _copy_and_audit(self, progress: Progress) -> tuple[int, dict[str, Places]]:
        """The number of records on both sides, and the offsets of the groups on both."""
        while True:
            try:
                self._copy_until_quiet(progress)
                committed = self._committed()
                records, places = self._audit(progress, committed)
                self._originals = topics.originals(self._source)
                if not self._behind(progress) and not self._in_use() and self._committed() == committed:
                    return records, _translated(committed, places)
            except UnknownTopic:
                # If a topic of the source was deleted at this moment, the others are moved without it.
                before, self._originals = self._originals, topics.originals(self._source)
                if before.keys() <= self._originals.keys():
                    raise
            self._say_once("a client wrote, read or committed meanwhile, or a topic was deleted: going over it again")

    def _copy_until_quiet(self, progress: Progress) -> None:
        quiet_since = self._steady()
        while True:
            self._originals = topics.originals(self._source)
            topics.prepare(self._target, self._originals, progress)
            slices = self._behind(progress)
            if slices:
                self._copy(progress, slices)
                quiet_since = self._steady()
            waiting = self._in_use()
            if not waiting and self._steady() - quiet_since < self._quiet_seconds:
                waiting = f"until no client has written for {self._quiet_seconds:g} s"
            if waiting:
                self._say_once(f"copied everything; waiting {waiting}")
                time.sleep(_LOOK_SECONDS)
            elif not slices:
                return

    def _behind(self, progress: Progress) -> list[Slice]:
        """The records that are committed in the source and not yet in the target."""
        slices = []
        for original in self._originals.values():
            topic = original.topic
            ends = self._source.offsets(partitions_of(topic), LATEST, Isolation.READ_COMMITTED)
            begins = self._source.offsets(partitions_of(topic), EARLIEST, Isolation.READ_COMMITTED)
            for where, end in ends.items():
                reached = progress.reached.get(where)
                if reached is not None and reached.topic_id != str(topic.id):
                    raise MoveRefused(
                        f"topic {topic.name!r} of the source was deleted and recreated since the move began: "
                        f"delete it, and {progress.topic.name!r}, in the target, and start again"
                    )
                start = begins[where] if reached is None else max(reached.next, begins[where])
                if start < end or reached is None:
                    slices.append(Slice(topic, where.partition, start, end))
        return slices

    def _copy(self, progress: Progress, slices: list[Slice]) -> None:
        arrivals = self._fetches(slices)
        for first in arrivals:
            transaction = self._transaction()
            reached: dict[TopicPartition, Reached] = {}
            size = 0
            until = self._steady() + _TRANSACTION_SECONDS
            for wanted, fetch in chain([first], arrivals):
                where = wanted.topic_partition
                size += self._write(transaction, where, fetch.pieces)
                before = progress.reached.get(where)
                begin = wanted.start if before is None else before.first
                reached[where] = Reached(str(wanted.topic.id), begin, fetch.next_offset)
                if size >= TRANSACTION_BYTES or self._steady() >= until:
                    break
            progress.write(self._target, transaction, reached=reached)
            self._show(self._copied)

    def _fetches(self, slices: list[Slice]) -> Iterator[tuple[Slice, Fetch]]:
        for wanted in slices:
            for fetch in self._remaining(wanted):
                yield wanted, fetch
            # There may be none, and compaction may have removed those at the end.
            yield wanted, Fetch([], wanted.end)

    def _remaining(self, wanted: Slice) -> Iterator[Fetch]:
        """The records of a slice, without those that retention removes from its beginning meanwhile."""
        while wanted.start < wanted.end:
            try:
                yield from fetches(self._source, wanted, may_lack_its_end=self._may_lack(wanted.topic))
                return
            except OffsetOutOfRange as error:
                if error.log_start <= error.offset:
                    raise
                wanted = replace(wanted, start=error.log_start)

    def _write(self, transaction: Transaction, where: TopicPartition, batches: list[Piece]) -> int:
        size = 0
        for piece in batches:
            records = piece.records()
            if records is not None:
                transaction.join([where])
                transaction.write(where, records)
                size += len(records.payload)
                self._copied += records.count
        return size

    def _may_lack(self, topic: Topic) -> bool:
        return self._originals[topic.name].is_compacted

    # -- clients that still use the source

    def _in_use(self) -> str:
        """The transaction or the group with members that still uses the source; empty if there is none."""
        for original in self._originals.values():
            places = partitions_of(original.topic)
            ends = self._source.offsets(places, LATEST, Isolation.READ_UNCOMMITTED)
            stable = self._source.offsets(places, LATEST, Isolation.READ_COMMITTED)
            open_in = next((where for where in places if stable[where] < ends[where]), None)
            if open_in is not None:
                return f"until the transaction that is open in {open_in} has ended"
        # One that has only offsets of groups holds back no record.
        name = self._source.patiently(lambda: transactional_ids.under_way(self._source.cluster))
        if name is not None:
            return f"until the transaction of {name!r} has ended"
        group = _with_members(self._source)
        return "" if group is None else f"until group {group!r} has no members"

    def _say_once(self, line: str) -> None:
        if line != self._last_line:
            self._say(line)
        self._last_line = line

    # -- the audit

    def _audit(
        self, progress: Progress, committed: Mapping[str, GroupOffsets]
    ) -> tuple[int, dict[TopicPartition, dict[int, int]]]:
        self._say_once("comparing both sides, record by record")
        wanted: dict[TopicPartition, set[int]] = {}
        for own in committed.values():
            for where, one in own.items():
                wanted.setdefault(where, set()).add(one.offset)
        records, places = 0, {}
        for name, original in self._originals.items():
            theirs = self._target.topics([name]).get(name)
            if theirs is None:
                raise topics.deleted(name, progress)
            for where in partitions_of(original.topic):
                count, place_of = self._compare(progress, original, theirs, where, wanted.get(where, set()))
                records += count
                places[where] = place_of
        return records, places

    def _compare(
        self, progress: Progress, original: Original, theirs: Topic, where: TopicPartition, wanted: set[int]
    ) -> tuple[int, dict[int, int]]:
        reached = progress.reached[where]
        while True:
            begin = max(self._edge(self._source, where, EARLIEST), reached.first)
            try:
                return self._compare_from(begin, progress, original, theirs, where, wanted)
            except (MoveRefused, OffsetOutOfRange):
                # If retention has removed records of the source meanwhile, the rest has to be compared again.
                if self._edge(self._source, where, EARLIEST) <= begin:
                    raise

    def _compare_from(
        self,
        begin: int,
        progress: Progress,
        original: Original,
        theirs: Topic,
        where: TopicPartition,
        wanted: set[int],
    ) -> tuple[int, dict[int, int]]:
        reached = progress.reached[where]
        target_begin, target_end = (self._edge(self._target, where, edge) for edge in (EARLIEST, LATEST))
        ours = Slice(original.topic, where.partition, begin, reached.next)
        slice_of_target = Slice(theirs, where.partition, target_begin, target_end)
        is_compacted = original.is_compacted

        def source() -> Iterator[Piece]:
            return pieces(self._source, ours, may_lack_its_end=is_compacted) if begin < reached.next else iter(())

        def target() -> Iterator[Piece]:
            copies = pieces(self._target, slice_of_target, may_lack_its_end=False)
            # The target still has records that retention has removed from the source since.
            return behind(copies, more) if more > 0 else copies

        begins_later = begin > reached.first
        more = 0
        if begins_later and not is_compacted:
            more = count_records(target()) - count_records(source())
        compared = compare(source(), target(), wanted, may_lack=is_compacted, may_begin_later=begins_later)
        if compared.difference is not None:
            count = count_differences(source(), target())
            at, there = ("the end" if offset < 0 else f"offset {offset}" for offset in compared.difference)
            how = (
                "too many records to count what is wrong"
                if count is None
                else f"{count.lost} records lost, {count.doubled} doubled, {count.foreign} foreign"
            )
            raise MoveRefused(
                f"partition {where} is not the same on both sides: {how}; "
                f"they differ first at {at} of the source and {there} of the target. Delete "
                f"the topic, and {progress.topic.name!r}, in the target, and start again"
            )
        # The next record to be written follows the last one.
        return compared.records, {offset: compared.places.get(offset, target_end) for offset in wanted}

    def _edge(self, client: LogClient, where: TopicPartition, edge: object) -> int:
        isolation = Isolation.READ_UNCOMMITTED
        return client.offsets([where], EARLIEST if edge is EARLIEST else LATEST, isolation)[where]

    # -- groups

    def _committed(self) -> dict[str, GroupOffsets]:
        """The committed offsets of all groups in the moved topics."""
        cluster = self._source.cluster
        by_group = {}
        for name in self._source.patiently(lambda: groups.listed(cluster)):
            if not name:
                # Brokers store offsets for it, and answer no request about its coordinator.
                self._say_once("the offsets of the group without a name are not moved")
                continue
            coordinator = self._source.patiently(partial(cluster.coordinator, name, GROUP))
            own = self._source.patiently(partial(groups.committed, cluster, coordinator, name))
            moved = {
                where: one
                for where, one in own.items()
                if where.topic in self._originals and where.partition < self._originals[where.topic].topic.partitions
            }
            if moved:
                by_group[name] = moved
        return by_group


def _translated(
    committed: Mapping[str, GroupOffsets], places: Mapping[TopicPartition, Mapping[int, int]]
) -> dict[str, Places]:
    """The offsets of the groups on both sides."""
    return {
        group: {where: Place(places[where][one.offset], one.offset, one.note) for where, one in own.items()}
        for group, own in committed.items()
    }


def _with_members(client: LogClient) -> str | None:
    """The first group that has members."""
    cluster = client.cluster
    for group in client.patiently(lambda: groups.listed(cluster)).values():
        if not _is_without_members(client, group):
            return group.name
    return None


def _is_without_members(client: LogClient, group: Listed) -> bool:
    if group.state is not None:
        return group.state.lower() in _WITHOUT_MEMBERS
    cluster = client.cluster
    coordinator = client.patiently(partial(cluster.coordinator, group.name, GROUP))
    return not client.patiently(partial(groups.members, cluster, coordinator, group))
