"""Carries out decisions: the runtime that transactions, groups, handlers and chores share.

The rules decide by returning an entry. `commit` appends the entry to the journal and applies it; the answer to the
client waits until the pump has made the journal durable up to there. Later work gets a deadline on the alarm, and long
work is done in turns. This file must never decide anything, and must never know a particular API.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from semel.log.broker.alarm import Alarm
from semel.log.broker.clock import Clock
from semel.log.broker.events import Events
from semel.log.broker.journal_pump import JournalPump
from semel.log.broker.limits import Limits
from semel.log.broker.metrics import Metrics
from semel.log.broker.turns import Turns
from semel.log.core.entries import Entry, TransactionEnded
from semel.log.core.producer_ids import NOBODY
from semel.log.core.shares import NoShareLeft
from semel.log.replica.cache import Unreadable
from semel.log.storage.log import Log
from semel.log.storage.markers import PreparedEnd
from semel.log.storage.segment import place_of
from semel.wire.steps import Pace, Steps, at_once

# How many clients with an old library are remembered, so that each is told of once: an address and a user each.
OLD_CLIENTS_MAX: Final = 1_000


class Runtime:
    """The log of one broker with its clock, turns, alarm and pump, and the logging of faults."""

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
        self._old_clients: set[tuple[str, str]] = set()
        log.damage.tell = self._tell_damage

    # -- decisions ----------------------------------------------------------------------------------------------

    def commit(self, entry: Entry, prepared: PreparedEnd | None = None) -> None:
        """Write an entry to the journal and apply it. OSError, after it was counted, if the disk refused the write."""
        try:
            self.log.commit(entry, prepared)
        except OSError as error:
            self.pump.write_refused(error)
            raise

    def prepare_end(self, entry: TransactionEnded) -> Steps[PreparedEnd]:
        """Write the markers of a transaction's end. OSError, after it was counted, if the disk refused the write."""
        try:
            return (yield from self.log.prepare_end(entry))
        except OSError as error:
            self.pump.write_refused(error)
            raise

    def new_producer_id(self, owner: str = NOBODY) -> int:
        """A new producer id. OSError, after it was counted, if the disk refused the write."""
        try:
            return self.log.new_producer_id(self.clock.now_ms(), owner)
        except OSError as error:
            self.pump.write_refused(error)
            raise

    # -- work that no client waits for --------------------------------------------------------------------------

    def attempt(self, job: Callable[[], None]) -> None:
        """Do work that no client asked for. If it fails, the error is logged here; a later chore tries again."""
        self.turns.begin(at_once(job), self.note_end)

    def note_end(self, error: Exception | None) -> None:
        """Log the error with which such work ended, if it failed."""
        if isinstance(error, OSError):
            self.pump.write_refused(error)
        elif error is not None:
            self.tell_of_slip("housekeeping_failed", error)
        self.pump.sync_soon()

    def _tell_of_fault(self, error: Exception) -> None:
        """Log that the work of a deadline failed. An error of the disk was logged when the entry was committed."""
        self.note_end(None if isinstance(error, OSError) else error)

    # -- telling ------------------------------------------------------------------------------------------------

    def tell_of_slip(self, event: str, error: Exception, **fields: object) -> None:
        """Log work that failed because of a bug."""
        if self.log.torn is None:  # Otherwise the broker stops, and its last event says why.
            self.events.tell(logging.ERROR, event, error=error, **fields)

    def producer_refused(self, refusal: NoShareLeft) -> None:
        """Count a refused producer, and log it."""
        self.metrics.refused_producers += 1
        self.events.tell(logging.WARNING, "producer_refused", reason=refusal)

    def note_repeated_nonce(self, client_host: str, user: str) -> None:
        """Count a login in the form of librdkafka before 2.6.1, and log each of its clients once."""
        self.metrics.repeated_nonces += 1
        client = (client_host, user)
        if client not in self._old_clients and len(self._old_clients) < OLD_CLIENTS_MAX:
            self._old_clients.add(client)
            reason = "its librdkafka is older than 2.6.1; Apache Kafka 4 refuses its logins by SCRAM"
            self.events.tell(logging.WARNING, "old_scram_client", client=client_host, user=user, reason=reason)

    def read_failed(self, error: Exception) -> None:
        """Log that records cannot be read, whether they are elsewhere, and what to do."""
        self.metrics.failed_reads += 1
        remedy = error.remedy if isinstance(error, Unreadable) else self.log.damage.remedy
        self.events.tell(logging.ERROR, "read_failed", reason=error, remedy=remedy)

    def segment_damaged(self, line: str) -> None:
        self.events.tell(logging.ERROR, "segment_damaged", reason=line, remedy=self.log.damage.remedy)

    def _tell_damage(self, path: str, line: str) -> None:
        """A reader has met damage. New records go to another segment, so that they can be read."""
        self.metrics.failed_reads += 1
        self.segment_damaged(line)
        partition = self.log.state.partitions.at(*place_of(path))
        if partition is not None and partition.segments and partition.segments[-1].path == path:
            self.attempt(partial(partition.roll, self.clock.now_ms()))
