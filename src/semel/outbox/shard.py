"""One shard of a relay: takes the shard over, and then brings batch after batch from the database into the log.

The guarantee is the order of steps. For a batch: the relay commits its number and its rows, publishes it under that
number, and then deletes its rows in the transaction that makes the next batch. For a start: the relay takes the shard
over in the database, so that no other relay changes its batches; then the publisher claims its name, which fences the
earlier relay; only then is it certain whether the batch at hand is in the log. Only the log says that, never the
database.

While the database or the brokers are away, a shard waits, logs that once a minute, and continues when they are back. It
also waits after a refused login, because a password may be changed on either side first; but a drain fails at once. A
shard must never wait for a fault that waiting does not mend.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from semel.database import is_passing
from semel.database.clock import Clock
from semel.database.errors import one_line
from semel.metrics import traces
from semel.metrics.traces import TRACEPARENT
from semel.outbox import ledger
from semel.outbox.counters import QUARANTINED
from semel.outbox.errors import OutOfStep, RelayFailed
from semel.outbox.ledger import Batch, Owner, Size
from semel.outbox.sender import Divided, Sender
from semel.publish import (
    Fenced,
    LoginRefused,
    PublishError,
    PublishFailed,
    PublishUncertain,
    RecordRefused,
)
from semel.retries.budget import PROCESS_BUDGET, RetryBudget

# -- patience ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")

logger = logging.getLogger("semel.outbox")

DATABASE: Final = "the database"
BROKERS: Final = "the brokers"
PUBLISHER: Final = "the publisher's name"
_PAUSE_SECONDS: Final = 0.5
# The brokers are away if they have not answered a call for this time.
_LATE_SECONDS: Final = 5.0
# How long a probe waits for their answer.
_ASK_SECONDS: Final = 3.0
# How often the log repeats what the relay waits for.
SAY_AGAIN_SECONDS: Final = 60.0


class Stopped(Exception):
    """The relay was told to stop while it waited."""


class PatienceOver(Exception):
    """The database or the brokers have been away for longer than the relay may wait."""


class Patience:
    """Waits for the database and the brokers. Each thread of a relay has its own; any thread may read `waits_for`."""

    def __init__(
        self,
        stopping: threading.Event,
        seconds_max: float | None = None,
        budget: RetryBudget = PROCESS_BUDGET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds_max` is the longest wait for one thing; None means no limit."""
        self._stopping = stopping
        self._budget = budget
        self._seconds_max = seconds_max
        self._clock = clock
        self._missing: dict[str, str] = {}
        self._missing_since: dict[str, float] = {}
        self._said_at: dict[str, float] = {}

    @property
    def waits_for(self) -> str | None:
        """What is missing, and why; None if nothing is."""
        return next((f"{what}: {why}" for what, why in self._missing.copy().items()), None)

    def with_database(self, work: Callable[[], T]) -> T:
        """Does the work, and repeats it as a whole while the database is away; so the work has to be repeatable."""
        while True:
            try:
                done = work()
            except SQLAlchemyError as error:
                if not is_passing(error):
                    raise
                self.wait_for(DATABASE, one_line(error))
            else:
                self.is_back(DATABASE)
                return done

    def wait_for(self, what: str, why: str) -> None:
        """Waits for a moment. Raises `Stopped` if the relay is to stop, and `PatienceOver` if it has waited long
        enough."""
        now = self._clock()
        self._missing[what] = why
        since = self._missing_since.setdefault(what, now)
        if what not in self._said_at or now - self._said_at[what] >= SAY_AGAIN_SECONDS:
            self._said_at[what] = now
            logger.warning("waiting for %s: %s", what, why)
        if self._seconds_max is not None and now - since >= self._seconds_max:
            raise PatienceOver(f"gave up after waiting {self._seconds_max:g} s for {what}: {why}")
        if self._stopping.wait(max(_PAUSE_SECONDS, self._budget.take_on_credit())):
            raise Stopped

    def wait_for_login(self, refused: LoginRefused) -> None:
        """The same for a refused login; with a limit, this raises at once."""
        if self._seconds_max is not None:
            raise PatienceOver(str(refused)) from refused
        self.wait_for(BROKERS, str(refused))

    def is_back(self, what: str) -> None:
        self._missing_since.pop(what, None)
        self._said_at.pop(what, None)
        if self._missing.pop(what, None) is not None:
            logger.warning("%s: there again", what)


# -- the shard ---------------------------------------------------------------------------------------------------------


Begin = Callable[[], AbstractContextManager[Connection]]
"""Begins a transaction for the relay, and commits it."""


class Shard:
    """One thread uses it. `counted` is called with each batch that is in the log."""

    def __init__(
        self,
        owner: Owner,
        owner_name: str,
        begin: Begin,
        make_publisher: Callable[[], Divided | Sender],
        patience: Patience,
        size: Size,
        clock: Clock,
        counted: Callable[[Batch], None],
    ) -> None:
        self._owner = owner
        self._owner_name = owner_name
        self._begin = begin
        self._make_publisher = make_publisher
        self._patience = patience
        self._size = size
        # Smaller after a refusal, until the refused message is found.
        self._rows_max = size.rows_max
        self._clock = clock
        self._counted = counted
        self._publisher: Divided | Sender | None = None
        # The batch that is in the log, and that the database does not know to be there yet.
        self._published: Batch | None = None
        # The number of the last batch that is known to be in the log.
        self._in_log = ledger.NOTHING
        # Whether there may be a batch at hand, besides the waiting messages.
        self._is_unsettled = True
        # When the present call to the brokers began; None if there is none.
        self._asking_since: float | None = None

    def open(self) -> None:
        """Take the shard over."""
        self._with_database(
            lambda connection: ledger.take_over(connection, self._owner, self._owner_name, self._clock())
        )
        self._publisher = self._claimed_publisher()
        logger.info("shard %d of %d: publishing", self._owner.shard, self._owner.shards)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def step(self) -> bool:
        """Publish one batch; False if there is nothing to publish."""
        if not self._is_unsettled and not self._with_database(self._is_waiting):
            return False
        batch = self._with_database(self._advance)
        self._published = None
        self._is_unsettled = batch is not None
        if batch is None:
            return False
        for row in batch.unreadable:
            _count_put_aside(row.number, "cannot be a record and was put aside", row.reason)
        self._publish(batch)
        return True

    @property
    def is_open(self) -> bool:
        """Whether this relay has taken the shard over."""
        return self._publisher is not None

    def are_brokers_there(self) -> bool:
        """Whether the call to the brokers that is under way is no late one, and if there is none, whether they answer.
        From any thread."""
        since, publisher = self._asking_since, self._publisher
        if since is not None:
            return time.monotonic() - since < _LATE_SECONDS
        return publisher is None or publisher.is_answered(_ASK_SECONDS)

    @property
    def is_behind(self) -> bool:
        """Whether the last batch was full, so that more may wait already."""
        return self._published is None or len(self._published.records) >= self._rows_max

    def settle(self) -> None:
        """Bring the batch at hand into the log and note that in the database, and make no other batch."""
        self._size = self._size._replace(rows_max=0)
        while self.step():
            pass

    # -- the database ------------------------------------------------------------------------------------------------

    def _is_waiting(self, connection: Connection) -> bool:
        return ledger.is_waiting(connection, self._owner)

    def _advance(self, connection: Connection) -> Batch | None:
        size = self._size._replace(rows_max=min(self._rows_max, self._size.rows_max))
        published = None if self._published is None else self._published.number
        return ledger.advance(connection, self._owner, published, self._in_log, size, self._clock())

    def _with_database(self, work: Callable[[Connection], T]) -> T:
        def in_transaction() -> T:
            with self._begin() as connection:
                return work(connection)

        return self._patience.with_database(in_transaction)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _claimed_publisher(self) -> Divided | Sender:
        """Fence the former publisher of the name, and check that the log and the database have the same batches."""
        while True:
            publisher = self._make_publisher()
            try:
                self._check_in_step(self._with_brokers(publisher.last))
                return publisher
            except Fenced as fenced:
                self._check_still_ours(fenced)

    def _check_in_step(self, in_log: int) -> None:
        known = self._with_database(lambda connection: ledger.standing(connection, self._owner))
        ledger.check_not_older(self._owner, known, in_log)
        if in_log < known.done_batch:
            raise OutOfStep(
                f"batch {known.done_batch} of shard {self._owner.shard} was published, and the log knows of none after "
                f"{in_log}: it is another cluster, the topic of the publisher's cursor was deleted, or a relay that "
                f"only sends through a function (send=...) has been at work on this outbox. "
                f"{ledger.BEGIN_AGAIN}; a test empties the tables by semel.schema.empty(engine)"
            )
        self._in_log = in_log

    def _check_still_ours(self, fenced: Fenced) -> None:
        """Raise if the database says that another relay has taken the shard over. Otherwise the brokers fenced this one
        because it sent nothing for too long, or two relays began at once: then the name is still this relay's."""
        self._with_database(lambda connection: ledger.standing(connection, self._owner))
        self._patience.wait_for(PUBLISHER, str(fenced))

    def _publish(self, batch: Batch) -> None:
        try:
            with _span_of(batch):
                self._put(batch)
        except RecordRefused as refusal:
            self._narrow(batch, refusal)
            return
        self._published = batch
        self._in_log = batch.number
        if len(batch.records) == self._rows_max:
            self._rows_max = min(2 * self._rows_max, self._size.rows_max)
        self._counted(batch)

    def _put(self, batch: Batch) -> None:
        """Returns when the batch is in the log, whether it was published now or before."""
        while True:
            assert self._publisher is not None
            publisher = self._publisher
            try:
                if self._with_brokers(publisher.last) < batch.number:
                    self._with_brokers(partial(publisher.put, batch))
            except Fenced as fenced:
                self._check_still_ours(fenced)
                self._publisher = self._claimed_publisher()
            else:
                self._patience.is_back(PUBLISHER)
                return

    def _with_brokers(self, work: Callable[[], T]) -> T:
        while True:
            self._asking_since = time.monotonic()
            try:
                done = work()
            except LoginRefused as refused:
                self._patience.wait_for_login(refused)
            except (PublishFailed, PublishUncertain) as error:
                self._patience.wait_for(BROKERS, str(error))
            except (Fenced, RecordRefused):
                raise
            except PublishError as error:
                raise RelayFailed(str(error)) from error
            else:
                self._patience.is_back(BROKERS)
                return done
            finally:
                self._asking_since = None

    def _narrow(self, batch: Batch, refusal: RecordRefused) -> None:
        """No message of the batch was written. Has the next steps publish the messages before the refused one, then
        that one alone: if it is refused again, it goes into the quarantine."""
        place = next((place for place, record in enumerate(batch.records) if record is refusal.record), None)
        if place is None:
            # It is the publisher's own record.
            raise RelayFailed(str(refusal)) from refusal
        refused = batch.numbers[place]
        if len(batch.records) > 1:
            first_number = batch.numbers[max(place, 1)]
            self._with_database(lambda connection: ledger.put_back(connection, self._owner, batch.number, first_number))
            self._rows_max = 1
            return
        self._with_database(
            lambda connection: ledger.put_aside(
                connection, self._owner, batch.number, refused, refusal.reason, self._clock()
            )
        )
        self._rows_max = self._size.rows_max
        _count_put_aside(refused, f"for topic {refusal.record.topic!r} was refused and put aside", refusal.reason)


def _span_of(batch: Batch) -> AbstractContextManager[object]:
    """The span of a batch: in the trace of its first message, with links to those of others. One for each message would
    cost as much as publishing it."""
    if not traces.is_on():
        return traces.NO_SPAN
    # As `rows.record_of` makes them.
    pairs: Any = (pair for record in batch.records for pair in record.headers)
    found: Any = dict.fromkeys(value.decode(errors="replace") for name, value in pairs if name == TRACEPARENT and value)
    parent, *others = found or (None,)
    topics = {record.topic for record in batch.records}
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(batch.records),
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = min(topics)
    links: list[str] = others[: traces.LINKS_MAX]
    return traces.span(" ".join(["send", *topics][:2]), "PRODUCER", attributes, parent, links)


def _count_put_aside(number: int, what: str, reason: str) -> None:
    QUARANTINED.add()
    logger.error(
        "message %d of semel_outbox %s, and what follows of its aggregate waits: %s",
        *(number, what, reason),
        extra={"number": number},
    )
