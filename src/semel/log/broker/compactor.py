"""Finds the partitions that are due for compaction, runs the work in a thread, and swaps the new segments in.

One thread compacts one partition at a time: it surveys the keys, then rewrites one group of segments after the other,
and after each group the event loop swaps the new segment in. The thread and the event loop share the interpreter, so
the thread releases it again and again: a request never waits longer than one batch takes.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from semel.log.broker.disk_thread import DiskThread, JobError
from semel.log.broker.runtime import Runtime
from semel.log.compaction.passes import Pass, Rewritten
from semel.log.compaction.plan import Bounds, Plan, is_to_roll, plan
from semel.log.core.entries import PartitionName
from semel.log.core.topics import Topic
from semel.log.replica.cache import Cache, Unreadable
from semel.log.storage.damage import Misread
from semel.log.storage.files import NotHere
from semel.log.storage.journal import Damaged
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import FilePart, Segment, Stretch
from semel.log.store import StoreError
from semel.wire.steps import Steps

# How often the broker looks for partitions to compact, as in Apache Kafka.
LOOK_SECONDS: Final = 15.0
# How long the thread works, and how long it then sleeps. A request may wait this long a few times, each time it needs
# the interpreter. Measured: with twice the work time a request took twice as long, and with half of it a pass took
# twice as long.
_WORK_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.00005


class _Interrupted(Exception):
    """Ends a pass in the thread, because the broker stops."""


class Compactor:
    """The compaction of one broker."""

    def __init__(self) -> None:
        self.look_seconds = LOOK_SECONDS
        self._runtime: Runtime
        self._thread: DiskThread
        self._cache: Cache | None
        # None while no pass is under way.
        self._plan: Plan | None = None
        # Where the partition began when the pass did.
        self._log_start = 0
        self._is_looking = False
        # Set while no pass is under way, and none is being looked for.
        self._idle = asyncio.Event()
        self._pass: Pass
        self._groups: deque[list[Segment]]
        self._rewritten: Rewritten | None = None
        self._began_at = 0.0
        self._resumes_at = 0.0
        self._stopping = False
        # The partition whose keys did not fit into the last pass.
        self._unfinished: PartitionName | None = None
        # Partitions in which a pass met damage or a bug; they are left alone until the next start.
        self._given_up: set[PartitionName] = set()

    def begin(self, runtime: Runtime, thread: DiskThread, cache: Cache | None) -> None:
        """Compact the log of `runtime` in this thread from now on. `cache` is None without a store."""
        self._runtime = runtime
        self._thread = thread
        self._cache = cache
        self._stopping = self._is_looking = False
        self._rest()

    def stop(self) -> None:
        """Interrupt the thread, and return when it has stopped."""
        self._stopping = True
        self._thread.stop()

    async def compact(self) -> None:
        """Look for work now, and return when there is none left."""
        self.look()
        await self._idle.wait()

    def look(self) -> None:
        """Look for the partition with the highest dirty ratio, and begin a pass over it if one is due."""
        if self._plan is None and not self._is_looking and not self._stopping:
            self._is_looking = True
            self._idle.clear()
            self._runtime.turns.begin(self._look(), self._note_looked)

    def _note_looked(self, error: Exception | None) -> None:
        self._is_looking = False
        if self._plan is None:
            self._idle.set()
        self._runtime.note_end(error)

    def _look(self) -> Steps[None]:
        state, now_ms = self._runtime.log.state, self._runtime.clock.now_ms()
        best: Plan | None = None
        for topic in list(state.catalog):
            # It may have been deleted since the last step; then it has no partitions.
            for partition in state.partitions.used_of(topic.number) if topic.parsed.is_compacted else ():
                candidate = self._plan_for(partition, topic, now_ms)
                if candidate is not None and (best is None or candidate.dirty_ratio > best.dirty_ratio):
                    best = candidate
                yield 1 + len(partition.segments) // 10
            yield 1
        if best is not None:
            # It may have changed since, or been deleted.
            topic_now = state.catalog.numbered(best.partition.topic_number)
            best = None if topic_now is None else self._plan_for(best.partition, topic_now, now_ms)
        if best is not None and not self._stopping:
            self._begin(best)

    def _plan_for(self, partition: PartitionLog, topic: Topic, now_ms: int) -> Plan | None:
        if is_to_roll(partition, topic.parsed, now_ms):
            partition.roll(now_ms)
        if partition.name in self._given_up:
            return None
        return plan(partition, topic.parsed, now_ms, is_unfinished=partition.name == self._unfinished)

    def _begin(self, best: Plan) -> None:
        limits = self._runtime.limits
        bounds = Bounds(limits.compaction_key_bytes_max, limits.compacted_batch_bytes_max)
        self._plan = best
        self._log_start = best.partition.state.log_start
        self._pass = best.begin(self._runtime.log.files, bounds, self._runtime.clock.now_ms(), self._pause)
        self._pass.refuses_damage = self._cache is not None
        self._began_at = self._runtime.clock.uptime()
        self._run(self._pass.survey, self._pass.to_survey, self._surveyed)

    def _run(self, job: Callable[[], None], segments: list[Segment], then: Callable[[], None]) -> None:
        """Run a job on these segments in the thread, and then `then` on the event loop; or end the pass if the job
        failed.
        """

        def done(outcome: JobError) -> None:
            self._runtime.attempt(then if outcome is None else lambda: self._break_off(outcome))

        if self._cache is None:
            self._thread.run(job, done)
            return
        assert self._plan is not None
        # Together with the aborted transactions, in which each job looks up those of its segments.
        parts = [FilePart(each.path, each.size) for each in segments if each.size]
        parts += self._plan.partition.aborted.contents()
        stretches = [Stretch(path, 0, size or 0) for path, size in parts]
        self._cache.run_held(stretches, self._thread, job, done)

    def _pause(self) -> None:
        """Called in the thread after every batch."""
        if self._stopping:
            raise _Interrupted
        now = time.monotonic()
        if now >= self._resumes_at:
            time.sleep(_PAUSE_SECONDS)
            self._resumes_at = time.monotonic() + _WORK_SECONDS

    def _surveyed(self) -> None:
        self._groups = deque(self._pass.groups())
        self._rewrite_next()

    def _rewrite_next(self) -> None:
        if not self._groups:
            self._finish()
            return
        group = self._groups.popleft()

        def rewrite() -> None:
            self._rewritten = self._pass.rewrite(group)

        self._run(rewrite, self._pass.to_read(group), self._swap)

    def _swap(self) -> None:
        segment, self._rewritten = self._rewritten, None
        assert self._plan is not None
        assert segment is not None
        log = self._runtime.log
        if not segment.is_changed:
            segment.forget_horizons()
        elif not log.swap(self._plan.partition, segment.old, segment.new):
            # Retention or DeleteRecords has removed the old segments meanwhile, so the new one is not needed.
            self._rest()
            if segment.new is not None:
                log.files.remove(segment.new.path)
            return
        self._rewrite_next()

    def _rest(self) -> None:
        self._plan = None
        self._idle.set()

    def _break_off(self, error: BaseException) -> None:
        """End a pass that failed. The groups that were swapped stay so; everything else is unchanged."""
        assert self._plan is not None
        partition = self._plan.partition
        self._rest()
        if isinstance(error, _Interrupted):
            return
        is_deleted = self._runtime.log.state.catalog.numbered(partition.topic_number) is None
        is_shortened = is_deleted or partition.state.log_start > self._log_start
        if is_shortened and isinstance(error, FileNotFoundError | Damaged | StoreError):
            # Retention, DeleteRecords or DeleteTopics has removed files that the pass was still to read, here or in the
            # store. If it was something else, the next pass meets it again.
            return
        if isinstance(error, Unreadable) and error.is_gone:
            # Usually another broker has taken over, and has deleted what its own checkpoints do not need.
            self._runtime.read_failed(error)
            return
        if isinstance(error, OSError):
            # Usually the disk is full.
            if not is_deleted:
                self._runtime.pump.write_refused(error)
            return
        if isinstance(error, Misread):
            try:
                self._runtime.log.damage.met(error)
            except NotHere:
                # The next pass has what the store has.
                return
        self._given_up.add(partition.name)
        mistake = None if isinstance(error, Damaged | StoreError) else error
        self._runtime.events.tell(
            logging.ERROR, "compaction_given_up", error=mistake, partition=partition.directory, reason=error
        )

    def _finish(self) -> None:
        """All groups are swapped: the partition is clean up to the end of the pass. Look for the next one."""
        assert self._plan is not None
        partition, compaction = self._plan.partition, self._pass
        self._plan = None
        partition.cleaned_until = compaction.until
        # If the keys did not fit into the table, another pass over the rest follows at once.
        self._unfinished = None if compaction.is_complete else partition.name
        seconds = self._runtime.clock.uptime() - self._began_at
        metrics, tally = self._runtime.metrics, compaction.tally
        metrics.compactions += 1
        metrics.compacted_bytes += tally.read_bytes
        metrics.compaction_removed_records += tally.removed_records
        metrics.compaction_unopened_batches += tally.unopened_batches
        metrics.compaction_seconds += seconds
        self._runtime.events.tell(
            logging.INFO,
            "compacted",
            partition=partition.directory,
            until=compaction.until,
            removed_records=tally.removed_records,
            unopened_batches=tally.unopened_batches,
            read_bytes=tally.read_bytes,
            written_bytes=tally.written_bytes,
            seconds=seconds,
        )
        self.look()
