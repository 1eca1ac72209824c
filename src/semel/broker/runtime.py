"""What carries out a decision: the one runtime under transactions, groups, handlers and chores.

A decision of the rules is an entry. `commit` appends it to the journal and applies it; the answer that shows it waits
until the pump has made the journal durable up to there. Work for later gets a deadline on the alarm, and long work is
done in turns. This file must never decide anything, and must never know a particular API.
"""

import logging
from collections.abc import Callable
from typing import Final

from semel.broker.alarm import Alarm
from semel.broker.clock import Clock
from semel.broker.events import Events
from semel.broker.journal_pump import JournalPump
from semel.broker.limits import Limits
from semel.broker.metrics import Metrics
from semel.broker.turns import Turns
from semel.core.entries import Entry, TransactionEnded
from semel.core.shares import NoShareLeft
from semel.core.steps import Pace, Steps, at_once
from semel.storage.log import Log
from semel.storage.markers import PreparedEnd

# The event that tells of a refused producer comes no more often than this.
PRODUCER_REFUSED_EVERY_MS: Final = 60_000


class Runtime:
    """The log of one broker with what moves it: clock, turns, alarm and pump; and what tells of faults."""

    def __init__(
        self,
        log: Log,
        limits: Limits,
        pace: Pace,
        *,
        metrics: Metrics,
        events: Events,
        clock: Clock,
        turns: Turns,
        pump: JournalPump,
    ) -> None:
        self.log = log
        self.limits = limits
        self.pace = pace
        self.metrics = metrics
        self.events = events
        self.clock = clock
        self.turns = turns
        self.pump = pump
        self.alarm = Alarm(clock, lambda steps: turns.begin(steps, self.note_end), self._tell_of_fault)
        self._producer_refused_ms = -PRODUCER_REFUSED_EVERY_MS

    # -- decisions ----------------------------------------------------------------------------------------------

    def commit(self, entry: Entry, prepared: PreparedEnd | None = None) -> None:
        """Make a decision part of the log. OSError, after it was counted, if the disk would not take it."""
        try:
            self.log.commit(entry, prepared)
        except OSError as error:
            self.pump.write_refused(error)
            raise

    def prepare_end(self, entry: TransactionEnded) -> Steps[PreparedEnd]:
        """Write the markers of an end that is to come. OSError, after it was counted, if the disk would not take it."""
        try:
            return (yield from self.log.prepare_end(entry))
        except OSError as error:
            self.pump.write_refused(error)
            raise

    def new_producer_id(self) -> int:
        """A producer id that was never handed out. OSError, after it was counted, if the disk would not take it."""
        try:
            return self.log.new_producer_id(self.clock.now_ms())
        except OSError as error:
            self.pump.write_refused(error)
            raise

    # -- work that no client waits for --------------------------------------------------------------------------

    def attempt(self, job: Callable[[], None]) -> None:
        """Do work that no client asked for. If it breaks off, the error is logged here; a later chore tries again."""
        self.turns.begin(at_once(job), self.note_end)

    def note_end(self, error: Exception | None) -> None:
        """Log the error that such work broke off with, if it did."""
        if isinstance(error, OSError):
            self.pump.write_refused(error)
        elif error is not None:
            self.tell_of_slip("housekeeping_failed", error)
        self.pump.follow()

    def _tell_of_fault(self, error: Exception) -> None:
        """Log that the work of a deadline broke off. An error of the disk was logged when the entry was committed."""
        self.note_end(None if isinstance(error, OSError) else error)

    # -- telling ------------------------------------------------------------------------------------------------

    def tell_of_slip(self, event: str, error: Exception, **fields: object) -> None:
        """Tell the operator about work that broke off because of a bug."""
        if self.log.torn is None:  # Otherwise the broker ends, and its last event says why.
            self.events.tell(logging.ERROR, event, error=error, **fields)

    def producer_refused(self, refusal: NoShareLeft) -> None:
        """One more producer was refused. Its client may try again at once, so the event comes once a minute."""
        self.metrics.refused_producers += 1
        now_ms = self.clock.steady_ms()
        if now_ms >= self._producer_refused_ms + PRODUCER_REFUSED_EVERY_MS:
            self._producer_refused_ms = now_ms
            self.events.tell(logging.WARNING, "producer_refused", reason=refusal)

    def read_failed(self, error: Exception) -> None:
        """Records that should be there cannot be read."""
        self.metrics.storage_errors += 1
        self.events.tell(logging.ERROR, "read_failed", reason=error)
