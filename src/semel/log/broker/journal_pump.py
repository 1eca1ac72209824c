"""Makes the journal durable again and again, and then sends the answers that wait for it.

A `Sync` makes parts of the journal durable: on a disk one thread syncs the journal, and all entries appended during a
sync share the next one; in a store several parts are written at the same time. In the same way `Checkpoints` write
checkpoints, which free files of the journal. If a sync fails, or the log is torn, the broker must stop: the pump calls
`fail`, and does nothing more. This file must never know what an entry says or which request waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, Protocol

from semel.log.broker.clock import Clock
from semel.log.broker.disk_thread import DiskThread, JobError
from semel.log.broker.events import Events
from semel.log.broker.metrics import Metrics
from semel.log.broker.turns import Turns
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.files import OUT_OF_SPACE, TRIED_AGAIN
from semel.log.storage.log import Log
from semel.wire.steps import Steps

Durability = Literal["fsync", "os"]

# The most turns of the event loop for which a sync waits. Clients send a request for each partition, one right after
# the other: if a sync began with the first, the others would wait for two. More turns would leave the disk idle under
# load.
GATHERING_TURNS_MAX: Final = 8


class Sync(Protocol):
    """Makes the journal durable, part by part."""

    # Whether appended entries survive the end of the process before they are durable.
    outlives_kills: bool

    @property
    def is_busy(self) -> bool:
        """Whether no further part can be begun now."""

    @property
    def has_work(self) -> bool:
        """Whether there are entries that are neither durable nor under way."""

    def begin(self, done: Callable[[int, JobError], None]) -> int:
        """Begin with the next part; return the position after it. `done` gets that position when everything before it
        is durable, or the error.
        """

    def prove(self, done: Callable[[int, JobError], None]) -> int:
        """Prove that no other broker had the log before now; the number of this proof. `done` gets a number when all
        proofs up to it are given, or the error. 0 if there is nothing to prove.
        """

    def stop(self) -> None:
        """Begin nothing more, and wait for the disk."""


class DiskSync:
    """The sync of a journal in the directory."""

    # An entry is written to the page cache at once, and only a power failure can lose it then.
    outlives_kills = True

    def __init__(self, log: Log, thread: DiskThread) -> None:
        self.is_busy = False
        self._log = log
        self._thread = thread

    @property
    def has_work(self) -> bool:
        """Whether there are entries that the last sync did not include."""
        return self._log.end > self._log.synced

    def begin(self, done: Callable[[int, JobError], None]) -> int:
        """Sync everything that has been appended."""
        job = self._log.begin_sync()
        self.is_busy = True

        def end(error: JobError) -> None:
            self.is_busy = False
            if error is None:
                try:
                    self._log.finish_sync(job)
                except Exception as slip:
                    error = slip
            done(job.target, error)

        self._thread.run(job.run, end)
        return job.target

    def prove(self, done: Callable[[int, JobError], None]) -> int:
        """The log is locked, so no other broker can have it."""
        return 0

    def stop(self) -> None:
        """Wait for the disk."""
        self._thread.stop()


class Checkpoints(Protocol):
    """Writes checkpoints, one at a time."""

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due for a reason that the log does not know."""

    def begin(self, job: CheckpointJob, done: Callable[[JobError], None]) -> None:
        """Write a checkpoint; `done` gets the outcome on the event loop."""

    def make_room(self) -> None:
        """The disk is full: free what can be freed without a checkpoint."""

    def stop(self) -> None:
        """Begin no more checkpoints, and wait for the disk."""


class DiskCheckpoints:
    """The checkpoint of a log in a directory."""

    is_due = False

    def __init__(self, thread: DiskThread) -> None:
        self._thread = thread

    def begin(self, job: CheckpointJob, done: Callable[[JobError], None]) -> None:
        """Replace the checkpoint file."""
        self._thread.run(job.run, done)

    def make_room(self) -> None:
        """Do nothing: this directory is all there is of the log."""

    def stop(self) -> None:
        """Wait for the disk."""
        self._thread.stop()


class Waiter(Protocol):
    """A connection with answers that wait until more of the journal is durable."""

    def send_answers(self) -> None:
        """Send the answers that need not wait any longer."""


class JournalPump:
    """The syncs and checkpoints of one broker."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        *,
        clock: Clock,
        turns: Turns,
        metrics: Metrics,
        events: Events,
        sync: Sync,
        checkpoints: Checkpoints,
        fail: Callable[[BaseException], None],
        note_progress: Callable[[], None],
        gather_seconds: float = 0.0,
    ) -> None:
        """`fail` stops the broker for good; `note_progress` is called when answers may have been sent. A sync waits
        `gather_seconds` for more entries to share it; if that is 0, it waits a turn or two of the event loop.
        """
        # The position up to which the journal is settled: answers that depend on entries before it may be sent.
        self.settled = log.end
        # The newest proof that no other broker had the log when the proof was requested.
        self.proved = 0
        self._log = log
        self._durability = durability
        self._clock = clock
        self._turns = turns
        self._metrics = metrics
        self._events = events
        self._sync = sync
        self._gather_seconds = gather_seconds
        # The position up to which syncs have been begun.
        self._begun = log.synced
        self._checkpoints = checkpoints
        self._fail = fail
        self._note_progress = note_progress
        # In the order of arrival, so that a simulation is deterministic.
        self._waiting: dict[Waiter, None] = {}
        self._sync_scheduled = False
        self._makes_checkpoints = True
        self._halted = False
        # Whether a checkpoint found no space on the disk, or could open no file: the next one waits until housekeeping.
        self._checkpoint_postponed = False
        # Whether a full disk was already dealt with since the last housekeeping.
        self._space_sought = False

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def begin_here(self) -> None:
        """Everything in the log up to now is durable, because it was read from the store."""
        self.settled = self._begun = self._log.end

    def wait(self, waiter: Waiter) -> None:
        """Have `waiter` send its answers when more of the journal is settled."""
        self._waiting[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        """Forget a waiter whose connection was lost."""
        self._waiting.pop(waiter, None)

    def prove(self, after: int) -> int:
        """The number of the proof for which an answer has to wait, besides waiting for the journal up to `after`. 0 if
        no proof is needed, because the part up to `after` is still to be sent.
        """
        return 0 if after > self._begun else self._sync.prove(self._end_proof)

    def _end_proof(self, number: int, error: JobError) -> None:
        if error is not None:
            self._fail(error)
            return
        self.proved = number
        self._wake()
        self._note_progress()

    @property
    def end_to_outlive_kills(self) -> int:
        """The position up to which the journal must be durable before an answer that need only survive the process."""
        return 0 if self._sync.outlives_kills else self._log.end

    def sync_soon(self) -> None:
        """The journal may have grown: begin a sync, or, with `--durability os`, settle it at once."""
        if self._log.torn is not None:
            self._fail(self._log.torn)
        if self._log.end == self.settled or self._halted:
            return
        if self._durability == "os" and self._log.identity_end <= self._log.synced:
            self._settle(self._log.end)
            self._checkpoint_if_due()
        elif not self._sync_scheduled and not self._sync.is_busy:
            self._sync_scheduled = True
            loop = asyncio.get_running_loop()
            if self._gather_seconds:
                loop.call_later(self._gather_seconds, self._begin_sync)
            else:
                loop.call_soon(self._gather_for_sync, -1, GATHERING_TURNS_MAX)

    def write_refused(self, error: OSError) -> None:
        """A write failed, usually because the disk is full. Nothing was changed, and the client is told to
        try again.
        """
        self._metrics.storage_errors += 1
        self._events.tell(logging.ERROR, "write_refused", reason=error)
        if error.errno in OUT_OF_SPACE and not self._space_sought:
            # A checkpoint frees files of the journal and deleted segments; then there is space for the entries of
            # retention.
            self._space_sought = True
            self._checkpoints.make_room()
            asyncio.get_running_loop().call_soon(self.begin_checkpoint)

    def look_for_space(self) -> Steps[None]:
        """If the disk was full, delete what retention allows; and write a checkpoint if one is due."""
        self._checkpoint_postponed = False
        if self._space_sought:
            self._space_sought = False
            yield from self._log.retain(self._clock.now_ms())
        self._checkpoint_if_due()

    def begin_checkpoint(self) -> None:
        """Write a checkpoint, unless one is under way or the last one has just found no space."""
        if not self._makes_checkpoints or self._halted or self._checkpoint_postponed or self._log.checkpoint_running:
            return
        if self._durability == "os" and not self._sync.is_busy:
            # No answer waits for this sync; it closes the full files of the journal.
            self._begin_sync()
        self._turns.begin(self._checkpoint(), self._fail_over)

    def make_no_more_checkpoints(self) -> None:
        """The broker begins to stop; `Log.close` writes the last checkpoint."""
        self._makes_checkpoints = False

    def halt(self) -> None:
        """Begin nothing more."""
        self._halted = True

    def stop(self) -> None:
        """Begin nothing more, and wait for the threads."""
        self.halt()
        self._sync.stop()
        self._checkpoints.stop()

    # -- syncs --------------------------------------------------------------------------------------------------

    def _gather_for_sync(self, end_before: int, turns_left: int) -> None:
        """Begin a sync after a turn of the event loop in which no entry was added that could share it."""
        end = self._log.end
        if end != end_before and turns_left:
            asyncio.get_running_loop().call_soon(self._gather_for_sync, end, turns_left - 1)
        else:
            self._begin_sync()

    def _begin_sync(self) -> None:
        self._sync_scheduled = False
        while self._sync.has_work and not self._sync.is_busy and not self._halted:
            target = self._sync.begin(self._end_sync)
            self._metrics.syncs += 1
            self._metrics.synced_entries_bytes += target - self._begun
            self._begun = target

    def _end_sync(self, target: int, error: JobError) -> None:
        """A sync has ended. If this function fails half-way, it is unknown what is durable, and clients would wait."""
        try:
            if error is not None:
                self._fail(error)
                return
            self._metrics.sync_waiters += len(self._waiting)
            if self._durability == "os":
                self.sync_soon()
            else:
                self._settle(target)
                if self._gather_seconds:
                    self.sync_soon()
                else:
                    self._begin_sync()
            self._checkpoint_if_due()
        except Exception as slip:
            self._fail(slip)

    def _settle(self, position: int) -> None:
        self.settled = position
        self._log.settle(position)
        if self._waiting:
            self._wake()
        self._note_progress()

    def _wake(self) -> None:
        """Send the answers that need not wait any longer."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.send_answers()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        if self._log.checkpoint_due or self._checkpoints.is_due:
            self.begin_checkpoint()

    def _checkpoint(self) -> Steps[None]:
        job = yield from self._log.begin_checkpoint()
        self._checkpoints.begin(job, self._or_fail(lambda error: self._end_checkpoint(job, error)))

    def _end_checkpoint(self, job: CheckpointJob, error: JobError) -> None:
        if isinstance(error, OSError) and error.errno in TRIED_AGAIN:
            self.write_refused(error)
            self._log.fail_checkpoint(job)
            self._checkpoint_postponed = True
        elif error is not None:
            self._fail(error)
        else:
            self._metrics.checkpoints += 1
            self._events.tell(logging.INFO, "checkpoint_written", journal_position=self._log.end)
            self._turns.begin(self._finish_checkpoint(job), self._fail_over)

    def _finish_checkpoint(self, job: CheckpointJob) -> Steps[None]:
        try:
            yield from self._log.finish_checkpoint(job)
        except OSError as refusal:
            self.write_refused(refusal)

    # -- failing ------------------------------------------------------------------------------------------------

    def _fail_over(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)

    def _or_fail(self, take_note: Callable[[JobError], None]) -> Callable[[JobError], None]:
        """Call `take_note`. If it raises, stop the broker: it is unknown what is durable, and clients would wait."""

        def guarded(outcome: JobError) -> None:
            try:
                take_note(outcome)
            except Exception as error:
                self._fail(error)

        return guarded
