"""The log: the state machines, the journal that makes their changes durable, and the segments with the records.

Every change goes through the same steps:

    decide (core, pure) -> write (segment, then journal) -> apply (core) -> settle, once it is durable

A change whose write failed is not applied, and the bytes that the failed write left lie after the end of the log,
where the next write overwrites them. If an error occurs after the write to the journal and before the end of `apply`,
the state in memory lacks a change that the journal has: the log is then torn (`Torn`), and does nothing more. Nothing
here waits for the disk: a sync and a checkpoint begin and end here, and the caller runs them in a thread.

`Log.open` is recovery: the last checkpoint, then `apply` for every entry of the journal after it, then a new
checkpoint. A file is removed only when a durable checkpoint no longer names it.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from semel.log.core.batch_checks import LOCAL, Sender, Verdict, judge_batch
from semel.log.core.entries import (
    AccessChange,
    Entry,
    LogStartMoved,
    ProducerIdsReserved,
    TopicChange,
    TransactionalIdClaimed,
    TransactionEnded,
)
from semel.log.core.groups.groups import Groups
from semel.log.core.partition import Partition, answered_timestamp
from semel.log.core.producer_ids import NOBODY
from semel.log.core.shares import Shares
from semel.log.core.state import State
from semel.log.core.topics import Catalog, Topic
from semel.log.storage.aside import Aside
from semel.log.storage.checkpoint import CheckpointJob, Content, PartitionFiles, PartitionParts
from semel.log.storage.encoding import BATCH_HEAD, BATCH_KIND, encode, name_of
from semel.log.storage.end_notes import EndNotes, begin_notes
from semel.log.storage.files import Files
from semel.log.storage.journal import Entries, Journal, SyncJob
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.markers import PreparedEnd, prepare_end, write_markers
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.producer_pages import ProducerPages
from semel.log.storage.recovery import bring_back, put_away_strangers, recover, replay, take_partitions
from semel.log.storage.repair import Repair
from semel.log.storage.segment import Mark, Proven, Segment, Stretch, directory_of, warm
from semel.log.storage.segment_files import SegmentFiles
from semel.log.storage.verification import Verification
from semel.wire import batch as batches
from semel.wire.batch import BatchHeader
from semel.wire.sequences import ACCEPTED
from semel.wire.steps import APPEND_PIECES, Steps, finish

# How old the `seen_ms` in a checkpoint may become. After a crash, the time since then counts as an absence.
SEEN_MS_MAX: Final = 86_400_000
# A checkpoint in a store is expensive, so superfluous files may wait this long for the next one.
STORE_WASTE_MS_MAX: Final = 600_000
# How many producers of a partition one step forgets.
FORGOTTEN_AT_ONCE: Final = 200
# The size of a producer's state in a checkpoint, with a full window.
PRODUCER_STATE_BYTES: Final = 60


class Torn(Exception):
    """An entry was written and could not be applied, so the state in memory is wrong until a restart."""


class Log:
    """All durable state and all records of a broker. `Log.open` makes one."""

    def __init__(self, files: Files, settings: LogSettings) -> None:
        self.files = files
        self.settings = settings
        self._segment_files = SegmentFiles(files, settings.open_segments_max)
        # The segments that are known to be damaged.
        self.damage = self._segment_files.damage
        self.state: State[PartitionLog] = State(
            Catalog(topics_max=settings.topics_max, partitions_max=settings.partitions_max),
            Groups(
                groups_max=settings.groups_max,
                name_bytes_max=settings.group_name_bytes_max,
                offsets_max=settings.group_offsets_max,
                transaction_offsets_max=settings.transaction_offsets_max,
            ),
            Shares(settings.producer_states_max),
            self._new_partition,
            settings.transactions,
            settings.access_rules_max,
        )
        self.replayed_bytes = 0
        # Appends that readers must not see yet: the position that must be durable first, the partition, and its
        # readable and stable ends from then on.
        self._unsettled: deque[tuple[int, PartitionLog, Mark, Mark]] = deque()
        self._checkpoint_position = 0
        # The position after the last entry that gave a client a producer id or an epoch, or changed rights, users or
        # quotas. It must be durable before the answer even with `--durability os`, or a crash could undo it unnoticed.
        self.identity_end = 0
        # The position after the last entry that changed what clients are told: topics, and rights.
        self.shown_end = 0
        # How much the last checkpoint has of the files that grow.
        self._proven: dict[str, Proven] = {}
        # The `seen_ms` in the last checkpoint.
        self._checkpoint_seen_ms = 0
        self.checkpoint_running = False
        # How large the indexes of active segments were in the last checkpoint.
        self._index_bytes = 0
        self.torn: Torn | None = None
        # Called for a partition when more of it can be read, and when its topic was deleted.
        self.note_moved: Callable[[PartitionLog], None] = _tell_watchers
        self._journal: Entries
        # Whether the journal is in a store. Then the directory is only a cache, and recovery does not start from it.
        self._is_cache = False
        self._producer_pages = ProducerPages(files, settings.pages_inline_bytes_max)
        # Where the durable end of a journal in the directory is noted; None while it is being recovered.
        self._notes: EndNotes | None = None
        # The files that the start put aside, because nothing in the log claims them.
        self.put_aside: list[str] = []

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        new_cluster_id: str | None,
        settings: LogSettings | None = None,
        on_progress: Callable[[int], None] | None = None,
        repair: Repair | None = None,
        time_of_day: Callable[[], float] = time.time,
    ) -> "Log":
        """Lock the directory and recover its log, or begin one if there is a `new_cluster_id`. `on_progress` gets the
        number of bytes replayed so far, and `repair` says which entries to skip and which lost data to go on without.
        """
        log = cls(files, settings or LogSettings())
        files.lock()
        try:
            log._recover(new_cluster_id, on_progress, repair or Repair(), Aside(files, time_of_day))
        except BaseException:
            log._segment_files.close()
            files.close()
            raise
        return log

    @classmethod
    def beside(
        cls, files: Files, entries: Entries, cluster_id: str, settings: LogSettings, beginning: Content | None
    ) -> "Log":
        """A log whose journal, `entries`, is in a store. It begins with the state of a checkpoint, or empty, and
        `replay` adds the rest. The directory is only a cache: files that the checkpoint does not name are removed.
        """
        log = cls(files, settings)
        if beginning is not None:
            bring_back(files, log.state, *beginning, Repair(), Verification(files, None))
        put_away_strangers(files, log._segment_files, log.state, lambda paths: finish(log._segment_files.remove(paths)))
        log.state.cluster_id = cluster_id
        log._journal = entries
        log._checkpoint_position = entries.end
        log._is_cache = True
        return log

    def replay(self, kind: int, payload: memoryview) -> None:
        """Apply an entry that another broker wrote; raises CannotFollow."""
        replay(self.state, kind, payload)

    def clear(self) -> Steps[None]:
        """Remove files that are no longer needed, in a cache from which no checkpoints are made."""
        unnamed, self._segment_files.unnamed = self._segment_files.unnamed, []
        return self._segment_files.remove(unnamed)

    def enter_epoch(self, epoch: int) -> None:
        """Append later batches with this leader epoch."""
        self.state.partitions.leader_epoch = epoch

    def show_all(self) -> None:
        """Make everything that was replayed readable."""
        for partition in self.state.partitions.used():
            partition.readable = partition.end_mark()
            partition.stable = partition.stable_mark(partition.readable)

    def _recover(
        self, new_cluster_id: str | None, on_progress: Callable[[int], None] | None, repair: Repair, aside: Aside
    ) -> None:
        files, state, settings = self.files, self.state, self.settings
        recovery = recover(files, state, new_cluster_id, on_progress, repair, settings.verified_bytes_max, aside)
        self.replayed_bytes, self._proven = recovery.replayed_bytes, recovery.proven
        self.show_all()
        notes = begin_notes(files, recovery.note, state.cluster_id, settings.journal_file_bytes)
        with ExitStack() as on_error:
            on_error.callback(notes.close)
            self._journal = Journal(files, recovery.life + 1, recovery.position, settings.journal_file_bytes, notes)
            on_error.callback(self._journal.close)
            self.checkpoint_now()
            notes.start(recovery.position)
            self._notes = notes
            put_away_strangers(files, self._segment_files, state, aside.move)
            on_error.pop_all()
        self.put_aside = aside.paths

    def _new_partition(self, topic: Topic, index: int, lenient_blocks: int) -> PartitionLog:
        settings = self.settings
        state = Partition(lenient_blocks, settings.producer_bounds)
        directory = f"{directory_of(topic)}/{index}"
        return PartitionLog(topic.number, index, directory, self._segment_files, settings.aborted_blocks, state)

    def close(self) -> None:
        """Write a last checkpoint, so that the next start has nothing to replay; then release the directory."""
        try:
            if not self._is_cache:
                self.checkpoint_now(clean=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the directory without a checkpoint, as after a failure."""
        if self._notes is not None:
            self._notes.close()
        self._journal.close()
        self._segment_files.close()
        self.files.close()

    # -- positions ----------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The position after the last entry of the journal, for which an answer may have to wait."""
        return self._journal.end

    @property
    def synced(self) -> int:
        """The position up to which the journal is durable."""
        return self._journal.synced

    # -- changing -----------------------------------------------------------------------------------------------

    def append(
        self,
        topic: Topic,
        partition: PartitionLog,
        header: BatchHeader,
        batch: bytearray | memoryview,
        now_ms: int,
        sender: Sender = LOCAL,
        earliest_ms: int | None = None,
    ) -> Verdict:
        """Judge a batch that `check_sent` and `check_records` have accepted and, if it is new, append it and write its
        base offset into it.

        After an OSError nothing has changed; after Torn the state in memory is wrong. Whatever the verdict, the answer
        must wait until `end`, as of the return of this call, is durable. That holds for a duplicate too, because its
        original may not be on disk yet.
        """
        self._check_whole()
        state, configs = self.state, topic.parsed
        expiration_ms = self.settings.producer_expiration_ms
        verdict = judge_batch(state, partition, header, configs, sender, now_ms, expiration_ms, earliest_ms)
        if verdict.outcome is not ACCEPTED:
            return verdict
        if configs.log_append_time:
            header = batches.stamp(batch, header, now_ms)
        base_offset = partition.state.next_offset
        header = batches.place(batch, header, base_offset, state.partitions.leader_epoch)
        head = BATCH_HEAD.pack(partition.topic_number, partition.index, now_ms)
        end = 0
        try:
            partition.write(header, batch, now_ms, configs)
            end = self._journal.append(BATCH_KIND, [head, batch])
            state.apply_batch(partition, header, now_ms, sender.address)
            self._expect(end, partition)
        except BaseException as error:
            self._note_broken_off(f"a batch for {partition.directory}", end, error)
            raise
        return Verdict(ACCEPTED, base_offset, answered_timestamp(header))

    def commit(self, entry: Entry, prepared: PreparedEnd | None = None) -> None:
        """Write any other entry to the journal and apply it. `prepared` is for the end of a transaction.

        After an OSError nothing has changed, nor after a ValueError, for an entry that cannot follow those before it;
        after Torn the state in memory is wrong.
        """
        self._check_whole()
        self.state.check(entry)
        kind, parts = encode(entry)
        end, dropped = 0, self.state.partitions.dropped_by(entry)
        try:
            # One entry ends the transaction in all its partitions. Without the entry, none of the markers counts.
            partitions = write_markers(self.state, entry, prepared) if isinstance(entry, TransactionEnded) else []
            end = self._journal.append(kind, parts)
            self.state.apply(entry)
            for partition in partitions:
                self._expect(end, partition)
            for partition in dropped:
                self.note_moved(partition)
            is_of_access = isinstance(entry, AccessChange)
            if is_of_access or isinstance(entry, ProducerIdsReserved | TransactionalIdClaimed):
                self.identity_end = end
            if is_of_access or isinstance(entry, TopicChange):
                self.shown_end = end
        except BaseException as error:
            self._note_broken_off(name_of(entry), end, error)
            raise

    def prepare_end(self, entry: TransactionEnded) -> Steps[PreparedEnd]:
        """Write the markers of a transaction's end in steps. They lie beyond the end of each partition, where no reader
        sees them until `commit` is called with the entry.
        """
        return prepare_end(self.state, entry)

    def _expect(self, end: int, partition: PartitionLog) -> None:
        """Everything in the partition up to now may be read when the journal is durable up to `end`."""
        readable = partition.end_mark()
        self._unsettled.append((end, partition, readable, partition.stable_mark(readable)))

    def _note_broken_off(self, what: str, end: int, error: BaseException) -> None:
        """A change failed. If the disk refused the write, nothing has changed; otherwise memory may hold half of the
        change, and the log stops for good. `end` is the position after the change's entry, 0 if it has none.
        """
        if end or not isinstance(error, OSError):
            self.torn = Torn(f"{what} failed after a part of it was applied: {error!r}")
            self.torn.__cause__ = error
            if isinstance(error, Exception):
                raise self.torn from error

    def _check_whole(self) -> None:
        if self.torn is not None:
            raise self.torn

    def new_producer_id(self, now_ms: int, owner: str = NOBODY) -> int:
        """A new producer id, which no client may get before `end`, as of the return of this call, is durable."""
        producer_ids = self.state.producer_ids
        reservation = producer_ids.decide_reserve(now_ms, owner)
        if reservation is not None:
            self.commit(reservation)
            producer_ids.open_block(reservation)
        return producer_ids.hand_out(owner)

    def settle(self, position: int) -> None:
        """The journal is durable up to this position: make the records before it readable."""
        self._check_whole()
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= position:
            _, partition, readable, stable = unsettled.popleft()
            partition.readable = readable
            partition.stable = stable
            self.note_moved(partition)

    def retain(self, now_ms: int) -> Steps[None]:
        """Delete the segments beyond the retention time and the retention size of their topics."""
        for partition in self.state.partitions.used():
            topic = self.state.catalog.numbered(partition.topic_number)
            # The topic may have been deleted since the last step.
            configs = None if topic is None else topic.parsed
            if configs is not None and configs.is_deleted:
                start = partition.retained_from(now_ms, configs.retention_ms, configs.retention_bytes)
                if start > partition.state.log_start:
                    self.commit(LogStartMoved(partition.topic_number, partition.index, start))
                    yield APPEND_PIECES
            yield 1 + len(partition.segments) // 10

    def note_time(self, now_ms: int, steady_ms: int) -> None:
        """Note the time of both clocks: time during which the broker was down does not count as silence."""
        self.state.silence.note_time(now_ms, steady_ms, self.settings.producer_expiration_ms)

    def forget(self, now_ms: int, steady_ms: int) -> Steps[int]:
        """Forget producers that were silent for too long, and data kept only for them; return how many, counted in each
        partition. `steady_ms` is the time of a clock that cannot be set.
        """
        self.note_time(now_ms, steady_ms)
        state = self.state
        allowed_ms = state.silence.producer_allowed_ms(now_ms, self.settings.producer_expiration_ms)
        state.producer_ids.forget_old(now_ms, allowed_ms)
        state.catalog.expire(now_ms, allowed_ms)
        in_all = 0
        for partition in state.partitions.used():
            count = FORGOTTEN_AT_ONCE
            while count == FORGOTTEN_AT_ONCE and state.catalog.numbered(partition.topic_number) is not None:
                count = state.partitions.forget_silent(partition, now_ms - allowed_ms, FORGOTTEN_AT_ONCE)
                in_all += count
                yield 1 + count
        return in_all

    def swap(self, partition: PartitionLog, old: list[Segment], new: Segment | None) -> bool:
        """Replace segments by one that compaction wrote and synced, or by none; False if they no longer exist.

        This needs no entry: after a crash before the next checkpoint the old segments are used again, and the new one
        is removed as a stray file.
        """
        return self.state.catalog.numbered(partition.topic_number) is not None and partition.swap(old, new)

    # -- syncing ------------------------------------------------------------------------------------------------

    def begin_sync(self) -> SyncJob:
        """The job, for any thread, that makes everything up to `end` durable. Only for a journal in the directory."""
        assert isinstance(self._journal, Journal)
        return self._journal.begin_sync()

    def finish_sync(self, job: SyncJob) -> None:
        assert isinstance(self._journal, Journal)
        self._journal.finish_sync(job)

    def sync_now(self) -> None:
        """Make everything durable and readable. Waits for the disk."""
        job = self.begin_sync()
        job.run()
        self.finish_sync(job)
        self.settle(self.synced)

    def is_written_again(self, path: str) -> bool:
        """Whether the next start writes the end of this segment again, because no checkpoint has it."""
        return path in self._segment_files.dirty

    def warm(self, stretches: list[Stretch]) -> None:
        """Read these parts of segments into the page cache. For a thread, because it waits for the disk."""
        warm(self.files, stretches)

    # -- checkpoints --------------------------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint: the journal has grown enough, or files wait to be removed."""
        if self.checkpoint_running:
            return False
        unseen_ms = (self.state.silence.seen_ms or 0) - self._checkpoint_seen_ms
        is_waste = self._segment_files.unnamed and (not self._is_cache or unseen_ms >= STORE_WASTE_MS_MAX)
        if is_waste or unseen_ms >= SEEN_MS_MAX:
            return True
        growth = self.end - self._checkpoint_position
        if growth < self.settings.checkpoint_bytes:
            return False
        # With very many producers or active segments a checkpoint is large, and is made more rarely.
        size = self.state.partitions.producer_count * PRODUCER_STATE_BYTES + self._index_bytes
        return growth >= size

    def begin_checkpoint(self, *, clean: bool = False) -> Steps[CheckpointJob]:
        """The state as of the first step, to be written in any thread. `clean`: nothing will be appended any more."""
        self._check_whole()
        self.checkpoint_running = True
        self._checkpoint_seen_ms = self.state.silence.seen_ms or 0
        records: list[dict[str, Any]] = []
        parts: list[PartitionParts] = []
        partition_files: list[PartitionFiles] = []
        dirty, grown, unnamed = self._segment_files.take_changes()
        state = {
            "journal": self._journal.mark(),
            "clean": clean,
            "acknowledges_unsynced": self.settings.acknowledges_unsynced,
            **self.state.begin_snapshot(),
            "partitions": records,
        }
        pages = None if self._is_cache else self._producer_pages
        job = CheckpointJob(
            *(self.files, self.end, dirty, grown, state, parts),
            *(partition_files, pages, self._notes, unnamed, self._proven, self.damage.marks),
        )
        try:
            yield from take_partitions(self.state, records, parts, partition_files)
        except BaseException:
            # The job will not run. The next one syncs its files.
            self.fail_checkpoint(job)
            raise
        self._index_bytes = sum(part.growing_index.size_bytes for part in parts)
        return job

    def finish_checkpoint(self, job: CheckpointJob) -> Steps[None]:
        """The job ran without an error: recycle or remove the files that only the earlier checkpoint needed.

        After an OSError some were not removed; the next start removes them.
        """
        self._checkpoint_position, self._proven = job.position, job.proven
        try:
            self._journal.recycle(job.position)
            yield from self._segment_files.remove(job.unnamed)
        finally:
            self.checkpoint_running = False

    def fail_checkpoint(self, job: CheckpointJob) -> None:
        """The job failed for lack of space: undo `begin_checkpoint`, so that another one may be tried."""
        self.checkpoint_running = False
        self._segment_files.take_back(job.dirty, job.grown, job.unnamed)

    def checkpoint_now(self, *, clean: bool = False) -> None:
        """Write a checkpoint. Waits for the disk."""
        job = finish(self.begin_checkpoint(clean=clean))
        try:
            job.run()
        except OSError:
            self.fail_checkpoint(job)
            raise
        finish(self.finish_checkpoint(job))
        self.settle(job.position)


def _tell_watchers(partition: PartitionLog) -> None:
    for watcher in tuple(partition.watchers):
        watcher.moved(partition)
