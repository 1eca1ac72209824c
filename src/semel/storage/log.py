"""The log: all state machines, the journal that makes their changes durable, and the segments that hold the records.

Every change takes the same way:

    decide (core, pure) -> write (segment, then journal) -> apply (core) -> settle, once it is durable

A change whose write failed was never applied, and what the failed write left on disk lies behind the end of everything
and is overwritten by the next. Nothing here waits: a sync and a checkpoint are begun here, run by whoever has a thread
for it, and finished here.

`Log.open` is recovery: the last checkpoint, then `apply` for every entry of the journal behind it, then a new
checkpoint. A file is removed only when a durable checkpoint no longer names it.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from semel.core import batch as batches
from semel.core import refusals
from semel.core.batch import BatchHeader
from semel.core.entries import (
    BatchAppended,
    Entry,
    GroupDeleted,
    LogStartMoved,
    OffsetsCommitted,
    OffsetsForgotten,
    ProducerIdsReserved,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)
from semel.core.groups.groups import Groups
from semel.core.partition import PRODUCER_EXPIRATION_MS, answered_timestamp
from semel.core.producer_ids import ProducerIds
from semel.core.producers import ACCEPTED, Outcome, Producers
from semel.core.topics import Catalog, Topic
from semel.core.transactions import Transactions
from semel.storage import checkpoint, journal
from semel.storage.checkpoint import CheckpointJob
from semel.storage.encoding import BATCH_HEAD, BATCH_KIND, decode, encode
from semel.storage.files import Files
from semel.storage.journal import Bookmark, Damaged, Journal, SyncJob
from semel.storage.partition_log import Mark, PartitionLog, Stretch
from semel.storage.segment import Index, Segment, SegmentFiles

TOPICS: Final = "topics"

# One state is at most 350 bytes with its place in the table: a million of them is what a small machine can carry.
PRODUCER_STATES_MAX: Final = 1_000_000
# What one of them takes in a checkpoint, with a full window.
PRODUCER_STATE_BYTES: Final = 140


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the log keeps its house; every number may be changed between one start and the next."""

    journal_file_bytes: int = journal.FILE_BYTES
    # A checkpoint is due when the journal has grown by this much, so recovery never replays much more.
    # Small, because the files of the journal go round in that many bytes of cached pages, and only those are cheap.
    checkpoint_bytes: int = 64 * 1024 * 1024
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    producer_states_max: int = PRODUCER_STATES_MAX
    topics_max: int = 10_000
    partitions_max: int = 20_000


class Appended(NamedTuple):
    """What became of a batch, and what its sender is told. A duplicate is told what the original was."""

    outcome: Outcome
    base_offset: int = -1
    timestamp_ms: int = batches.NO_TIMESTAMP
    error: int = refusals.NONE
    message: str | None = None


class Log:
    """Everything that is kept. Make one with `Log.open`."""

    def __init__(self, files: Files, settings: LogSettings) -> None:
        self.files = files
        self.settings = settings
        self.catalog = Catalog(topics_max=settings.topics_max, partitions_max=settings.partitions_max)
        self.producer_ids = ProducerIds()
        self.transactions = Transactions()
        self.groups = Groups()
        self.cluster_id = ""
        self.producer_states = 0
        # What recovery had to read, for the operator.
        self.replayed_bytes = 0
        self._segment_files = SegmentFiles(files)
        self._partitions: dict[int, list[PartitionLog]] = {}
        self._unsettled: deque[tuple[int, PartitionLog, Mark]] = deque()
        # Files and directories that nothing needs any more, once the next checkpoint is durable.
        self._unnamed: list[str] = []
        self._checkpoint_position = 0
        self.checkpoint_running = False
        self._journal: Journal

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        new_cluster_id: str,
        settings: LogSettings | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> "Log":
        """Take the directory, recover what is there, or begin. `on_progress` hears how many bytes were replayed."""
        log = cls(files, settings or LogSettings())
        files.lock()
        try:
            log._recover(new_cluster_id, on_progress)
        except BaseException:
            log._segment_files.close()
            files.close()
            raise
        return log

    def _recover(self, new_cluster_id: str, on_progress: Callable[[int], None] | None) -> None:
        position = life = 0
        found = checkpoint.read(self.files)
        if found is None:
            self.cluster_id = new_cluster_id
            if not journal.is_untouched(self.files):
                raise Damaged(f"{self.files.describe(journal.DIRECTORY)}: a journal without a checkpoint")
        else:
            state, packed = found
            bookmark = Bookmark(*state["journal"])
            life, position = bookmark.life, bookmark.position
            self._restore(state, packed)
            for entry in () if state["clean"] else journal.read(self.files, bookmark):
                self._replay(entry)
                position = entry.end
                self.replayed_bytes = position - bookmark.position
                if on_progress is not None:
                    on_progress(self.replayed_bytes)
        for partition in self.partitions():
            partition.cut_behind_end()
            partition.readable = partition.end_mark()
        self._journal = Journal(self.files, life + 1, position, self.settings.journal_file_bytes)
        try:
            self.checkpoint_now()
            self._remove_strangers()
        except BaseException:
            self._journal.close()
            raise

    def _restore(self, state: dict[str, Any], packed: memoryview) -> None:
        self.cluster_id = state["cluster_id"]
        self.catalog.restore(state["catalog"])
        self.producer_ids = ProducerIds.restore(state["producer_ids"])
        for topic in self.catalog:
            self._partitions[topic.number] = [self._new_partition(topic, i) for i in range(topic.partition_count)]
        at = 0
        for record in state["partitions"]:
            partition = self._partitions[record["topic"]][record["index"]]
            index_bytes, producers_bytes = record["packed"]
            index = Index.from_bytes(packed[at : at + index_bytes])
            at += index_bytes
            partition.state.producers = Producers(checkpoint.unpack_producers(packed[at : at + producers_bytes]))
            at += producers_bytes
            partition.state.log_start = record["log_start"]
            partition.state.next_offset = record["next_offset"]
            self.producer_states += len(partition.state.producers)
            segments = [Segment.from_record(partition.directory, fields) for fields in record["segments"]]
            if segments:
                segments[-1].index = index
            self._check_segments(segments)
            partition.adopt(segments)

    def _check_segments(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.size == 0:
                continue
            try:
                file = self.files.open(segment.path)
            except FileNotFoundError:
                raise Damaged(f"{self.files.describe(segment.path)}: missing, the checkpoint names it") from None
            size = file.size()
            file.close()
            if size < segment.size:
                raise Damaged(
                    f"{self.files.describe(segment.path)}: ends at offset {size}, "
                    f"the checkpoint knows {segment.size} bytes"
                )

    def _replay(self, entry: journal.JournalEntry) -> None:
        try:
            change = decode(entry.kind, entry.payload)
            if isinstance(change, BatchAppended):
                topic, partition = self._named_by(change)
                header = batches.read_header(change.batch)
                partition.write(header, change.batch, change.at_ms, topic.parsed)
                self._apply_append(partition, header, change.at_ms)
            else:
                self._apply(change)
        except ValueError as error:
            raise Damaged(
                f"{self.files.describe(journal.DIRECTORY)}: entry at position {entry.position}: {error}"
            ) from None

    def _named_by(self, entry: BatchAppended | LogStartMoved) -> tuple[Topic, PartitionLog]:
        """The partition that an entry speaks of; ValueError if there is none, as only a damaged journal says."""
        topic = self.catalog.numbered(entry.number)
        partition = self.partition(topic, entry.partition) if topic is not None else None
        if topic is None or partition is None:
            raise ValueError(f"there is no partition {entry.partition} of a topic with number {entry.number}")
        return topic, partition

    def _remove_strangers(self) -> None:
        """Remove what a crash left of files that were being made or removed. The checkpoint before may name them."""
        known = {segment.path for partition in self.partitions() for segment in partition.segments}
        for topic_name in self.files.names(TOPICS):
            for partition_name in self.files.names(f"{TOPICS}/{topic_name}"):
                directory = f"{TOPICS}/{topic_name}/{partition_name}"
                for name in self.files.names(directory):
                    if f"{directory}/{name}" not in known:
                        self.files.remove(f"{directory}/{name}")
                self._remove_empty(directory)
            self._remove_empty(f"{TOPICS}/{topic_name}")

    def close(self) -> None:
        """A last checkpoint, after which the next start has nothing to replay; then let go of the directory."""
        try:
            self.checkpoint_now(clean=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the directory as it is, as after a failure."""
        self._journal.close()
        self._segment_files.close()
        self.files.close()

    # -- looking up ---------------------------------------------------------------------------------------------

    def partition(self, topic: Topic, index: int) -> PartitionLog | None:
        partitions = self._partitions[topic.number]
        return partitions[index] if 0 <= index < len(partitions) else None

    def partitions_of(self, topic: Topic) -> list[PartitionLog]:
        return self._partitions[topic.number]

    def partitions(self) -> list[PartitionLog]:
        return [partition for partitions in self._partitions.values() for partition in partitions]

    @property
    def end(self) -> int:
        """The position behind the last entry of the journal: an answer may have to wait until this is durable."""
        return self._journal.end

    @property
    def synced(self) -> int:
        """The position up to which the journal is durable."""
        return self._journal.synced

    # -- changing -----------------------------------------------------------------------------------------------

    def append(
        self, topic: Topic, partition: PartitionLog, header: BatchHeader, batch: bytearray | memoryview, now_ms: int
    ) -> Appended:
        """Judge a batch that was found consistent and, if it is new, append it; its base offset is written into it.

        OSError means that nothing happened. Whatever the outcome, the answer is due when `end` as it stands after this
        call is durable: for a duplicate, too, whose original may still be on its way to the disk.
        """
        state = partition.state
        decision = state.decide_append(header, self.producer_ids, now_ms, self.settings.producer_expiration_ms)
        if decision.outcome is not ACCEPTED:
            original = decision.original
            if original is None:
                return Appended(decision.outcome, error=decision.error, message=decision.message)
            return Appended(decision.outcome, original.base_offset, original.timestamp_ms)
        if self.producer_states >= self.settings.producer_states_max and header.producer_id != batches.NO_PRODUCER:
            self._refuse_one_more_producer(state.producers, header.producer_id)
        configs = topic.parsed
        if configs.log_append_time:
            header = batches.stamp(batch, header, now_ms)
        else:
            batches.check_timestamps(header, now_ms, configs.timestamp_before_max_ms, configs.timestamp_after_max_ms)
        base_offset = state.next_offset
        header = batches.place(batch, header, base_offset)
        partition.write(header, batch, now_ms, configs)
        head = BATCH_HEAD.pack(partition.topic_number, partition.index, now_ms)
        end = self._journal.append(BATCH_KIND, [head, batch])
        self._apply_append(partition, header, now_ms)
        self._unsettled.append((end, partition, partition.end_mark()))
        return Appended(ACCEPTED, base_offset, answered_timestamp(header))

    def commit(self, entry: Entry) -> None:
        """Make any other decision part of the log. OSError means that nothing happened."""
        kind, parts = encode(entry)
        self._journal.append(kind, parts)
        self._apply(entry)

    def new_producer_id(self, now_ms: int) -> int:
        """A producer id that was never handed out before; durable when `end`, as it stands afterwards, is."""
        reservation = self.producer_ids.decide_reserve(now_ms)
        if reservation is not None:
            self.commit(reservation)
            self.producer_ids.open_block(reservation)
        return self.producer_ids.hand_out()

    def settle(self, position: int) -> None:
        """Everything before this position of the journal counts from now on: let it be read."""
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= position:
            _, partition, mark = unsettled.popleft()
            partition.readable = mark
            for watcher in tuple(partition.watchers):
                watcher.moved()

    def retain(self, now_ms: int) -> None:
        """Let go of what is older or more than the topics' configurations want to keep."""
        for topic in self.catalog:
            configs = topic.parsed
            for partition in self._partitions[topic.number] if configs.is_deleted else ():
                start = partition.retained_from(now_ms, configs.retention_ms, configs.retention_bytes)
                if start > partition.state.log_start:
                    self.commit(LogStartMoved(topic.number, partition.index, start))

    def forget(self, now_ms: int) -> None:
        """Forget producers that were silent for too long, and what was only kept for their sake."""
        expiration_ms = self.settings.producer_expiration_ms
        for partition in self.partitions():
            self.producer_states -= partition.state.producers.forget_silent(now_ms - expiration_ms)
        self.producer_ids.forget_old(now_ms, expiration_ms)
        self.catalog.expire(now_ms, expiration_ms)

    def _refuse_one_more_producer(self, producers: Producers, producer_id: int) -> None:
        if producers.get(producer_id) is None:
            raise refusals.Refused(
                refusals.POLICY_VIOLATION,
                f"{self.settings.producer_states_max} producers are on record, no more are allowed",
            )

    def _apply_append(self, partition: PartitionLog, header: BatchHeader, at_ms: int) -> None:
        producers = partition.state.producers
        before = len(producers)
        partition.apply_append(header, at_ms)
        self.producer_states += len(producers) - before

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, ProducerIdsReserved):
            self.producer_ids.apply(entry)
        elif isinstance(entry, LogStartMoved):
            _, partition = self._named_by(entry)
            self._unnamed += partition.apply_log_start(entry.offset)
        elif isinstance(entry, BatchAppended):
            raise AssertionError("batches are applied with their headers")
        elif isinstance(entry, TransactionalIdClaimed | TransactionGrew | TransactionalIdsForgotten):
            self.transactions.apply(entry)
        elif isinstance(entry, TransactionalOffsets | TransactionEnded):
            self.transactions.apply(entry)
            self.groups.apply(entry)
        elif isinstance(entry, OffsetsCommitted | OffsetsForgotten | GroupDeleted):
            self.groups.apply(entry)
        else:
            topic = self.catalog.apply(entry)
            if isinstance(entry, TopicDeleted):
                self._drop(topic)
            else:
                partitions = self._partitions.setdefault(topic.number, [])
                more = range(len(partitions), topic.partition_count)
                partitions.extend(self._new_partition(topic, index) for index in more)

    def _new_partition(self, topic: Topic, index: int) -> PartitionLog:
        # The name is for people; a file system has no room for the longest ones behind a number.
        directory = f"{TOPICS}/{topic.number}-{topic.name[:200]}/{index}"
        partition = PartitionLog(topic.number, index, directory, self._segment_files)
        partition.state.forgotten_below = self.catalog.lenient_below(topic.name)
        return partition

    def _drop(self, topic: Topic) -> None:
        for partition in self._partitions.pop(topic.number):
            self.producer_states -= len(partition.state.producers)
            self._unnamed += [segment.path for segment in partition.segments]
            for watcher in tuple(partition.watchers):
                watcher.moved()

    # -- syncing ------------------------------------------------------------------------------------------------

    def begin_sync(self) -> SyncJob:
        """What to run, in any thread, so that everything up to `end` is durable."""
        return self._journal.begin_sync()

    def finish_sync(self, job: SyncJob) -> None:
        self._journal.finish_sync(job)

    def sync_now(self) -> None:
        """Make everything durable and readable, waiting for the disk."""
        job = self.begin_sync()
        job.run()
        self.finish_sync(job)
        self.settle(self.synced)

    def warm(self, stretches: list[Stretch]) -> None:
        """Have the disk bring these parts of segments into memory. For a thread; takes as long as the disk."""
        for path, position, size in stretches:
            # Whatever is wrong with it will be found by whoever reads it for good.
            with contextlib.suppress(OSError):
                file = self.files.open(path)
                try:
                    file.read_at(size, position)
                finally:
                    file.close()

    # -- checkpoints --------------------------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether the journal has grown so much, or files wait to be removed, that it is time for a checkpoint."""
        if self.checkpoint_running:
            return False
        # Where there are very many producers a checkpoint is large, and is made so much more rarely.
        grown = self.end - self._checkpoint_position
        return bool(self._unnamed) or grown >= max(
            self.settings.checkpoint_bytes, self.producer_states * PRODUCER_STATE_BYTES
        )

    def begin_checkpoint(self, *, clean: bool = False) -> CheckpointJob:
        """All state as of now, to be written by `run` in any thread. `clean`: nothing will be appended any more."""
        self.checkpoint_running = True
        partitions = [partition for partition in self.partitions() if partition.has_history]
        dirty, self._segment_files.dirty = self._segment_files.dirty, set()
        grown, self._segment_files.grown = self._segment_files.grown, set()
        unnamed, self._unnamed = self._unnamed, []
        state = {
            "journal": self._journal.bookmark,
            "clean": clean,
            "cluster_id": self.cluster_id,
            "catalog": self.catalog.snapshot(),
            "producer_ids": self.producer_ids.snapshot(),
            "partitions": [partition.to_record() for partition in partitions],
        }
        return CheckpointJob(
            self.files,
            self.end,
            frozenset(dirty),
            frozenset(grown),
            state,
            [partition.growing_index() for partition in partitions],
            [partition.state.producers.snapshot() for partition in partitions],
            unnamed,
        )

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """The job ran without an error: let go of all that only the checkpoint before it needed.

        OSError means that some of it could not be let go of; the next start sees to that.
        """
        self.checkpoint_running = False
        self._checkpoint_position = job.position
        for path in job.unnamed:
            self._segment_files.forget(path)
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(path)
        for directory in {path.rpartition("/")[0] for path in job.unnamed}:
            self._remove_empty(directory)
        self._journal.recycle(job.position)

    def fail_checkpoint(self, job: CheckpointJob) -> None:
        """The job could not be run for want of space: all is as it was, and another one may be tried."""
        self.checkpoint_running = False
        self._segment_files.dirty |= job.dirty
        self._segment_files.grown |= job.grown
        self._unnamed = job.unnamed + self._unnamed

    def checkpoint_now(self, *, clean: bool = False) -> None:
        """A whole checkpoint, waiting for the disk."""
        job = self.begin_checkpoint(clean=clean)
        try:
            job.run()
        except OSError:
            self.fail_checkpoint(job)
            raise
        self.finish_checkpoint(job)
        self.settle(job.position)

    def _remove_empty(self, directory: str) -> None:
        """Remove a partition's directory, and the topic's above it, if nothing is left in them."""
        while directory.count("/") >= 1 and not self.files.names(directory):
            self._segment_files.grown.discard(directory)
            with contextlib.suppress(FileNotFoundError):
                self.files.remove_directory(directory)
            directory = directory.rpartition("/")[0]
