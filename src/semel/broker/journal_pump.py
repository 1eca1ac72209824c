"""Makes what was appended durable, over and over, and then lets the waiting answers leave.

How a part of the journal becomes durable is the business of a `Sync`: on a disk one thread syncs the journal, and
everything that was appended during a sync shares the next one; in a store of objects several parts are under way at
once. So it is with checkpoints, which give files of the journal back. If a sync fails, or the log is torn, the
broker has to stop: this calls `fail`, and begins nothing any more. This file must never know what an entry says or
which request waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, Protocol

from semel.broker.clock import Clock
from semel.broker.disk_thread import DiskThread, Outcome
from semel.broker.events import Events
from semel.broker.metrics import Metrics
from semel.broker.turns import Turns
from semel.core.steps import Steps
from semel.storage.checkpoint import CheckpointJob
from semel.storage.files import OUT_OF_SPACE
from semel.storage.log import Log

Durability = Literal["fsync", "os"]

# Turns of the event loop that a sync waits at most. Clients send a request for each partition, one right behind the
# other: a sync that begins with the first has the others wait for two. More turns would leave the disk idle under load.
GATHERING_TURNS_MAX: Final = 8


class Sync(Protocol):
    """Makes the journal durable, part by part."""

    # Whether what was appended outlives the process before it is durable.
    outlives_kills: bool

    @property
    def is_busy(self) -> bool:
        """Whether no part can be begun now."""

    @property
    def has_work(self) -> bool:
        """Whether there is something that is neither durable nor under way."""

    def begin(self, done: Callable[[int, Outcome], None]) -> int:
        """Begin with the next part; answer the position behind it. `done` gets that position when all before it is
        durable, or the reason why it never will be."""

    def stop(self) -> None:
        """Begin nothing any more, and return when what is under way on the disk is done."""


class DiskSync:
    """The sync of a journal in the directory."""

    # It is written at once, and only a loss of power takes it.
    outlives_kills = True

    def __init__(self, log: Log, thread: DiskThread) -> None:
        self.is_busy = False
        self._log = log
        self._thread = thread

    @property
    def has_work(self) -> bool:
        """Whether something was appended since the last sync was begun, or is not durable."""
        return self._log.end > self._log.synced

    def begin(self, done: Callable[[int, Outcome], None]) -> int:
        """Sync all that is there."""
        job = self._log.begin_sync()
        self.is_busy = True

        def end(error: Outcome) -> None:
            self.is_busy = False
            if error is None:
                try:
                    self._log.finish_sync(job)
                except Exception as slip:
                    error = slip
            done(job.target, error)

        self._thread.run(job.run, end)
        return job.target

    def stop(self) -> None:
        """Wait for the disk."""
        self._thread.stop()


class Checkpoints(Protocol):
    """Keeps checkpoints, one at a time."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for one, for a reason that the log does not know."""

    def begin(self, job: CheckpointJob, done: Callable[[Outcome], None]) -> None:
        """Write one; `done` is told on the event loop how that ended."""

    def stop(self) -> None:
        """Begin none any more, and return when what is under way on the disk is done."""


class DiskCheckpoints:
    """The checkpoint of a log in a directory."""

    is_due = False

    def __init__(self, thread: DiskThread) -> None:
        self._thread = thread

    def begin(self, job: CheckpointJob, done: Callable[[Outcome], None]) -> None:
        """Replace the file."""
        self._thread.run(job.run, done)

    def stop(self) -> None:
        """Wait for the disk."""
        self._thread.stop()


class Waiter(Protocol):
    """Has answers that may not go before more of the journal is durable."""

    def send_answers(self) -> None:
        """Send those that may go now."""


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
        """`fail` stops the broker for good; `note_progress` is called when answers may have left. A sync waits
        `gather_seconds` for more to share it, or without them a turn or two of the event loop."""
        # The position of the journal before which every change counts: answers that depend on it may go.
        self.settled = log.end
        self._log = log
        self._durability = durability
        self._clock = clock
        self._turns = turns
        self._metrics = metrics
        self._events = events
        self._sync = sync
        self._gather_seconds = gather_seconds
        # Up to where the journal is durable or on its way there.
        self._begun = log.synced
        self._checkpoints = checkpoints
        self._fail = fail
        self._note_progress = note_progress
        # In the order in which they came, so that the same events have the same outcome.
        self._waiting: dict[Waiter, None] = {}
        self._sync_scheduled = False
        self._makes_checkpoints = True
        self._halted = False
        # After a checkpoint found no space there is a pause before the next one.
        self._checkpoint_postponed = False
        # Whether something was done about a full disk since the house was kept last.
        self._space_sought = False

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def begin_here(self) -> None:
        """All that is in the log by now is durable: it was read from there."""
        self.settled = self._begun = self._log.end

    def wait(self, waiter: Waiter) -> None:
        """`waiter` has answers that may go once more of the journal is settled."""
        self._waiting[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        """Forget a waiter whose connection is gone."""
        self._waiting.pop(waiter, None)

    @property
    def end_to_outlive_kills(self) -> int:
        """Up to where the journal has to be durable before an answer that need not outlive more than this process."""
        return 0 if self._sync.outlives_kills else self._log.end

    def follow(self) -> None:
        """The journal may have grown: let it become durable, or count at once where the user chose so."""
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
        """A write was refused, most often by a full disk: nothing was changed, and the client is told to try again."""
        self._metrics.storage_errors += 1
        self._events.tell(logging.ERROR, "write_refused", reason=error)
        if error.errno in OUT_OF_SPACE and not self._space_sought:
            # A checkpoint gives files of the journal and deleted segments back; then retention can be written down.
            self._space_sought = True
            asyncio.get_running_loop().call_soon(self.begin_checkpoint)

    def look_for_space(self) -> Steps[None]:
        """If the disk was full, delete what retention allows; and write a checkpoint if it is time."""
        self._checkpoint_postponed = False
        if self._space_sought:
            self._space_sought = False
            yield from self._log.retain(self._clock.now_ms())
        self._checkpoint_if_due()

    def begin_checkpoint(self) -> None:
        """Write a checkpoint, unless one is under way or the last one found no space a moment ago."""
        if not self._makes_checkpoints or self._halted or self._checkpoint_postponed or self._log.checkpoint_running:
            return
        if self._durability == "os" and not self._sync.is_busy:
            # No answer waits for this one; it closes the journal's files that are full.
            self._begin_sync()
        self._turns.begin(self._checkpoint(), self._fail_over)

    def make_no_more_checkpoints(self) -> None:
        """The broker begins to stop; the log makes the last one as it is closed."""
        self._makes_checkpoints = False

    def halt(self) -> None:
        """Begin nothing any more."""
        self._halted = True

    def stop(self) -> None:
        """Begin nothing any more, and return when what is under way in the threads is done."""
        self.halt()
        self._sync.stop()
        self._checkpoints.stop()

    # -- syncs --------------------------------------------------------------------------------------------------

    def _gather_for_sync(self, end_before: int, turns_left: int) -> None:
        """Begin a sync once a turn of the event loop has brought nothing that could share it."""
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

    def _end_sync(self, target: int, error: Outcome) -> None:
        """If this breaks off in the middle, what is durable is unknown, and clients would wait."""
        try:
            if error is not None:
                self._fail(error)
                return
            self._metrics.sync_waiters += len(self._waiting)
            if self._durability == "os":
                self.follow()
            else:
                self._settle(target)
                if self._gather_seconds:
                    self.follow()
                else:
                    self._begin_sync()
            self._checkpoint_if_due()
        except Exception as slip:
            self._fail(slip)

    def _settle(self, position: int) -> None:
        self.settled = position
        self._log.settle(position)
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.send_answers()
        self._note_progress()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        if self._log.checkpoint_due or self._checkpoints.is_due:
            self.begin_checkpoint()

    def _checkpoint(self) -> Steps[None]:
        job = yield from self._log.begin_checkpoint()
        self._checkpoints.begin(job, self._or_fail(lambda error: self._end_checkpoint(job, error)))

    def _end_checkpoint(self, job: CheckpointJob, error: Outcome) -> None:
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
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

    def _or_fail(self, take_note: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """Call `take_note`, and fail if it breaks off: then it is unknown what is durable, and clients would wait."""

        def guarded(outcome: Outcome) -> None:
            try:
                take_note(outcome)
            except Exception as error:
                self._fail(error)

        return guarded
