"""What a log holds: all state machines, the partitions with their records, and what each entry makes of them.

Whether an entry is made now or comes back from the journal after a crash, it is applied here and nowhere else. What a
checkpoint remembers of all this is taken and put back here, too. Nothing here writes to the journal, and nothing knows
what is durable.
"""

import contextlib
from dataclasses import replace
from typing import Any, Final, NamedTuple

from semel.core import batch as batches
from semel.core.batch import BatchHeader
from semel.core.entries import BatchAppended, Entry, LogStartMoved, TopicDeleted, TransactionEnded
from semel.core.groups.groups import Groups
from semel.core.producer_room import ProducerRoom
from semel.core.steps import APPEND_PIECES, Steps
from semel.core.topics import Catalog, Topic
from semel.core.transactions import Transactions
from semel.storage import checkpoint, journal
from semel.storage.aborted_blocks import BlockLayout
from semel.storage.encoding import decode, name_of
from semel.storage.files import Files
from semel.storage.journal import Damaged
from semel.storage.machines import Machines
from semel.storage.partition_log import PartitionLog
from semel.storage.repairing import Repair
from semel.storage.segment import Mark, Segment, SegmentFiles

TOPICS: Final = "topics"

# Markers that are written between two steps; the first in a partition makes a file.
MARKERS_AT_ONCE: Final = 10
# What taking the state of a partition takes, beside what there is much of in it.
_SNAPSHOT_PIECES: Final = 5

# A marker's partition and header, once it has been written to its segment.
Markers = list[tuple[PartitionLog, BatchHeader]]


def directory_of(topic: Topic) -> str:
    """Where a topic's files are, those of each partition in a directory of its own that has its index for a name."""
    # The name is for people; a file system has no room for the longest ones behind a number.
    return f"{TOPICS}/{topic.number}-{topic.name[:200]}"


class PreparedEnd(NamedTuple):
    """An end whose markers are written already: the entry, but for its partitions, and which write of each it was."""

    entry: TransactionEnded
    written: dict[PartitionLog, tuple[int, Mark]]


class Contents(Machines):
    """Everything that is kept, in memory and in segments."""

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        transactions: Transactions,
        groups: Groups,
        layout: BlockLayout,
        producer_room: ProducerRoom,
    ) -> None:
        super().__init__(catalog, transactions, groups)
        self.files = files
        self.cluster_id = ""
        # Rises at a start that may have lost what was acknowledged or read; every batch bears the one it came in.
        self.leader_epoch = 0
        # Pairs of producer and partition on record.
        self.producer_states = 0
        self.producer_room = producer_room
        self._segment_files = SegmentFiles(files)
        self._layout = layout
        self._partitions: dict[int, list[PartitionLog]] = {}
        # Files and directories that nothing needs any more, once the next checkpoint is durable.
        self._unnamed: list[str] = []

    # -- looking up ---------------------------------------------------------------------------------------------

    def partition(self, topic: Topic, index: int) -> PartitionLog | None:
        partitions = self._partitions[topic.number]
        return partitions[index] if 0 <= index < len(partitions) else None

    def partitions_of(self, topic: Topic) -> list[PartitionLog]:
        return self._partitions[topic.number]

    def partitions(self) -> list[PartitionLog]:
        return [partition for partitions in self._partitions.values() for partition in partitions]

    # -- changing -----------------------------------------------------------------------------------------------

    def check(self, entry: Entry) -> None:
        """ValueError unless this entry can follow on those before it.

        To be asked before an entry becomes part of the journal, and of one that comes back from there: what could not
        be applied would stop every start at that place.
        """
        try:
            if isinstance(entry, BatchAppended | LogStartMoved):
                self._check_place(entry)
            else:
                self._check_against_machines(entry)
        except (LookupError, TypeError) as error:
            raise ValueError(repr(error)) from error

    def _check_place(self, entry: BatchAppended | LogStartMoved) -> None:
        _, partition = self._named_by(entry)
        if isinstance(entry, LogStartMoved):
            partition.state.check_log_start(entry.offset)
            return
        header = batches.read_header(entry.batch)
        partition.state.check_append(header)
        if header.is_transactional:
            self.transactions.known(header.producer_id)

    def strays(self) -> list[tuple[PartitionLog, int]]:
        """The transactions that are open in a partition, by producer id, and of which the register does not know.

        There are none, or a checkpoint contradicts itself: nobody would ever end them.
        """
        return [
            (partition, producer_id)
            for partition in self.partitions()
            for producer_id in partition.state.open_transactions
            if not self.transactions.takes_part(producer_id, partition.name)
        ]

    def _apply_append(self, partition: PartitionLog, header: BatchHeader, at_ms: int) -> None:
        """A batch that was written to its segment is part of the log."""
        producers = partition.state.producers
        before = len(producers)
        partition.apply_append(header, at_ms)
        self.producer_states += len(producers) - before
        if header.is_transactional:
            self.transactions.apply_batch(header.producer_id, partition.name, at_ms)

    def prepare_end(self, entry: TransactionEnded) -> Steps[PreparedEnd]:
        """Write the markers of an end that is to come, some at a time: they lie behind the end of everything, where
        nobody sees them. Those that others have written over meanwhile are written again when it comes, and so are
        those whose segment does not grow any more: it may have been sealed, or its records deleted.
        """
        written: dict[PartitionLog, tuple[int, Mark]] = {}
        for some in range(0, len(entry.partitions), MARKERS_AT_ONCE):
            partitions = entry.partitions[some : some + MARKERS_AT_ONCE]
            for partition, _ in self._write_markers(replace(entry, partitions=partitions), None):
                written[partition] = partition.last_write
            yield APPEND_PIECES * len(partitions)
        yield from self.groups.take(entry.groups)
        return PreparedEnd(replace(entry, partitions=()), written)

    def _write_markers(self, entry: TransactionEnded, prepared: PreparedEnd | None) -> Markers:
        """Write the marker of a transaction's end behind each of its partitions that still exist."""
        markers: Markers = []
        is_same = prepared is not None and prepared.entry == replace(entry, partitions=())
        written = prepared.written if prepared is not None and is_same else {}
        # One for all of them: only the offset is different, which the checksum does not cover.
        marker = batches.control_batch(entry.producer_id, entry.marker_epoch, 0, entry.at_ms, entry.committed)
        header = batches.read_header(marker)
        for number, index in entry.partitions:
            topic = self.catalog.numbered(number)
            partition = self.partition(topic, index) if topic is not None else None
            if topic is not None and partition is not None:
                placed = batches.place(marker, header, partition.state.next_offset, self.leader_epoch)
                if written.get(partition) != partition.last_write:
                    partition.write(placed, marker, entry.at_ms, topic.parsed)
                markers.append((partition, placed))
        return markers

    def _apply_end(self, entry: TransactionEnded, markers: Markers) -> None:
        """A transaction whose markers were written is over, everywhere at once."""
        for partition, header in markers:
            before = len(partition.state.producers)
            partition.apply_marker(header, entry.at_ms, entry.committed)
            self.producer_states += len(partition.state.producers) - before
        self._apply_to_machines(entry)

    def swap(self, partition: PartitionLog, old: list[Segment], new: Segment | None) -> bool:
        """Let a segment that compaction wrote and synced, or none, take the place of others; False if they are gone.

        No entry says so, because nothing depends on it: after a crash before the next checkpoint the old segments are
        as they were, and the new one is a stranger.
        """
        if self.catalog.numbered(partition.topic_number) is None:
            return False
        freed = partition.swap(old, new)
        if freed is None:
            return False
        self._segment_files.grown.add(partition.directory)
        self._unnamed += freed
        return True

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, LogStartMoved):
            _, partition = self._named_by(entry)
            self._unnamed += partition.apply_log_start(entry.offset)
            return
        if isinstance(entry, BatchAppended | TransactionEnded):
            raise AssertionError("batches and markers are written before they are applied")
        topic = self._apply_to_machines(entry)
        if isinstance(entry, TopicDeleted):
            self._drop(entry.number)
        elif topic is not None:
            partitions = self._partitions.setdefault(topic.number, [])
            partitions += self._new_partitions(topic, len(partitions))

    def _named_by(self, entry: BatchAppended | LogStartMoved) -> tuple[Topic, PartitionLog]:
        """The partition that an entry speaks of; ValueError if there is none, as only a damaged journal says."""
        topic = self.catalog.numbered(entry.number)
        partition = self.partition(topic, entry.partition) if topic is not None else None
        if topic is None or partition is None:
            raise ValueError(f"there is no partition {entry.partition} of a topic with number {entry.number}")
        return topic, partition

    def _new_partitions(self, topic: Topic, first: int) -> list[PartitionLog]:
        """A topic's partitions from this one on; there may be twenty thousand, while everybody waits."""
        directory = directory_of(topic)
        files, layout, forgotten_below = self._segment_files, self._layout, self.catalog.lenient_below(topic.name)
        return [
            PartitionLog(topic.number, index, f"{directory}/{index}", files, layout, forgotten_below)
            for index in range(first, topic.partition_count)
        ]

    def _drop(self, topic_number: int) -> None:
        for partition in self._partitions.pop(topic_number):
            self.producer_states -= len(partition.state.producers)
            self._unnamed += partition.paths
            for watcher in tuple(partition.watchers):
                watcher.moved(partition)

    # -- recovery -----------------------------------------------------------------------------------------------

    def _bring_back(self, state: dict[str, Any], packed: memoryview, repair: Repair) -> None:
        """What the checkpoint holds; `Damaged`, with the reason, where its bytes are right and its words are not."""
        try:
            self._restore(repair.mended(state), packed)
        except (OSError, Damaged):
            raise
        except Exception as error:
            raise Damaged(f"{self.files.describe(checkpoint.NAME)}: {error!r}") from error

    def _replay(self, entry: journal.JournalEntry) -> None:
        """Make an entry of the journal true, or say which one cannot be."""
        name = f"kind {entry.kind}"
        try:
            change = decode(entry.kind, entry.payload)
            name = name_of(change)
            self.check(change)
            if isinstance(change, BatchAppended):
                topic, partition = self._named_by(change)
                header = batches.read_header(change.batch)
                partition.write(header, change.batch, change.at_ms, topic.parsed)
                self._apply_append(partition, header, change.at_ms)
            elif isinstance(change, TransactionEnded):
                self._apply_end(change, self._write_markers(change, None))
            else:
                self._apply(change)
        except (OSError, Damaged):
            raise
        except Exception as error:
            why = error if isinstance(error, ValueError) else repr(error)
            raise journal.Misfit(self.files, entry, name, why) from error

    def _check_strays(self, repair: Repair) -> None:
        for partition, producer_id in self.strays():
            entries = repair.adoption(partition, producer_id, self.transactions)
            if not entries:
                raise Damaged(
                    f"{self.files.describe(partition.directory)}: a transaction of producer {producer_id} is open from "
                    f"offset {partition.state.open_transactions[producer_id]} on, and no transactional id has it"
                )
            for entry in entries:
                self._apply(entry)

    def _remove_strangers(self) -> None:
        """Remove what a crash left of files that were being made or removed. The checkpoint before may name them."""
        known = {path for partition in self.partitions() for path in partition.paths}
        for topic_name in self.files.names(TOPICS):
            for partition_name in self.files.names(f"{TOPICS}/{topic_name}"):
                directory = f"{TOPICS}/{topic_name}/{partition_name}"
                for name in self.files.names(directory):
                    if f"{directory}/{name}" not in known:
                        self.files.remove(f"{directory}/{name}")
                self._remove_empty(directory)
            self._remove_empty(f"{TOPICS}/{topic_name}")

    def _remove_empty(self, directory: str) -> None:
        """Remove a partition's directory, and the topic's above it, if nothing is left in them."""
        while directory.count("/") >= 1 and not self.files.names(directory):
            self._segment_files.grown.discard(directory)
            with contextlib.suppress(FileNotFoundError):
                self.files.remove_directory(directory)
            directory = directory.rpartition("/")[0]

    # -- for checkpoints ----------------------------------------------------------------------------------------

    def _begin_snapshot(self) -> dict[str, Any]:
        """All state as of now but for the partitions, in words; nothing that happens later changes it. The groups come
        with the partitions.
        """
        return {
            "cluster_id": self.cluster_id,
            "leader_epoch": self.leader_epoch,
            "producer_room": self.producer_room.snapshot(),
            **self._begin_machines_snapshot(),
        }

    def _snapshots(self, records: list[dict[str, Any]], parts: list[checkpoint.PartitionParts]) -> Steps[None]:
        """Put the state of all partitions as of now into these lists, in words and packed, and that of all groups where
        `_begin_snapshot` said.

        There may be twenty thousand of them, so they come one after the other; one that is about to change meanwhile
        is taken at that moment.
        """

        def take(partition: PartitionLog) -> None:
            partition.keeper = None
            if partition.has_history:
                records.append(partition.to_record())
                parts.append(partition.to_parts())

        partitions = self.partitions()
        for partition in partitions:
            partition.keeper = take
        try:
            for partition in partitions:
                if partition.keeper is not None:
                    take(partition)
                yield _SNAPSHOT_PIECES + partition.weight
            yield from self.groups.take_all()
        finally:
            self.groups.end_snapshot()
            for partition in partitions:
                partition.keeper = None

    def _restore(self, state: dict[str, Any], packed: memoryview) -> None:
        self.cluster_id = state["cluster_id"]
        self.leader_epoch = state.get("leader_epoch", 0)
        self.producer_room.restore(state.get("producer_room", ()))
        self._restore_machines(state)
        for topic in self.catalog:
            self._partitions[topic.number] = self._new_partitions(topic, 0)
        for record, parts in checkpoint.unpack(state["partitions"], packed):
            partition = self._partitions[record["topic"]][record["index"]]
            partition.restore(record, parts)
            self.producer_states += len(partition.state.producers)
