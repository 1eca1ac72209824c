"""The consumer's loop, written once for both clients: it commits to the database first, and only then the offsets of
the messages that are done.

One message at a time, in the order of its partition: claim, handler, commit of the database. After that, the loop
commits offsets to the broker, but not after every message: a message that is delivered again because of that is a
duplicate. However the loop ends, no message is half done. The loop must never commit an offset before the database has
committed.

The methods that wait are procedures (`semel.database.procedures`): `Inbox` drives them in its thread, and `AsyncInbox`
as a coroutine.
"""

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.orm import sessionmaker

from semel.database.clock import Clock, now_ms
from semel.database.effects import listen
from semel.database.kinds import check_callable
from semel.database.procedures import Procedure, transaction
from semel.inbox import quarantine
from semel.inbox.admission import Admission, Due, Identity, reason_of
from semel.inbox.brokers import Brokers, LoopFailed
from semel.inbox.claims import trace_of
from semel.inbox.counters import CLAIMS
from semel.inbox.events import Message, Outcome, Version, checked_consumer
from semel.inbox.quarantine import State
from semel.inbox.reaper import RETENTION_MS, checked_retention, reap_procedure
from semel.inbox.retries import Attempts, Outage, Passing, is_passing, logger
from semel.metrics import traces
from semel.retries import Retries, RetryBudget
from semel.retries.budget import PROCESS_BUDGET

DatabaseT = TypeVar("DatabaseT", bound=Engine | sessionmaker[Any] | AsyncEngine | async_sessionmaker[Any])

Place = tuple[str, int]

# How long to wait for a record before the offsets of the done messages are committed.
POLL_SECONDS: Final = 0.2
# Records whose offsets may wait for the next commit while records keep coming.
UNCOMMITTED_MAX: Final = 100
# If so many records come first, and none has an identity, the topic has no ids, or `identity` looks in the wrong place.
# A few that somebody has sent by mistake must not end the loop; the quarantine must not take a whole topic.
WITHOUT_IDENTITY_MAX: Final = 100
# How often the loop looks in the quarantine for messages to retry, and how many it retries before the next record.
RETRY_EVERY_MS: Final = 1_000
DUE_COUNT_MAX: Final = 100
# How long retries may keep the loop from polling its broker, apart from the handler that then runs.
DUE_MS_MAX: Final = 10_000
REAP_EVERY_MS: Final = 60 * 60 * 1000


class Client(Protocol):
    """What the loop needs of a Kafka client. A method that returns `Any` is an operation of a procedure."""

    def start(self) -> Any: ...

    def poll(self) -> Any:
        """The next message, or None. Its partition is not revoked until `release`."""

    def release(self) -> None: ...

    def read_again(self, message: Message) -> None:
        """Have the next poll return this message again."""

    def commit(self, offsets: dict[Place, int]) -> Any:
        """Wait until the broker has stored these offsets. False if the loop should try again later."""

    def what_is_wrong(self) -> Any:
        """What is wrong with the topics or the brokers; None if nothing is."""

    def leave(self) -> Any: ...


class Loop(ABC, Generic[DatabaseT]):
    """The common part of `Inbox` and `AsyncInbox`; `counts` has the outcomes of the records so far."""

    def __init__(
        self,
        database: DatabaseT,
        *,
        consumer: str,
        identity: Identity,
        first_version: int = 1,
        retries: Retries | None = None,
        passing: Passing = is_passing,
        budget: RetryBudget = PROCESS_BUDGET,
        retention_ms: int = RETENTION_MS,
        clock: Clock = now_ms,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`database` is an engine, and the handler gets a connection; or it is the application's `sessionmaker`, and
        the handler gets a session, which the loop flushes and commits with the claim.

        `identity` finds an event's id, or its `Version`. The loop waits until errors that are `passing` are over,
        and never counts them as attempts. `budget` slows down retries if the process makes many. `chance` returns a
        number from 0 to below 1."""
        self.counts = Counts()
        listen()
        for argument, function in (("identity", identity), ("passing", passing), ("clock", clock), ("chance", chance)):
            check_callable(argument, function)
        self._admission = Admission(checked_consumer(consumer), identity, first_version, passing, clock)
        self._database = database
        self._engine = self._engine_of(database)
        self._retries = retries or Retries()
        self._passing = passing
        self._budget = budget
        self._outage = Outage(self._retries)
        # Whether the last look at the quarantine met an error that passes.
        self._meets_outage = False
        self._retention_ms = checked_retention(retention_ms)
        self._clock = clock
        self._chance = chance
        self._committable = CommittableOffsets()
        # The identity of the last record, or why it has none; and how many had none, until the first one has.
        self._identity: str | Version | Exception = ""
        self._without_identity: int | None = 0
        self._is_stopping = False
        self._brokers: Brokers | None = None
        # The time of the present record, or of when it came; None if there is none.
        self._present_ms: int | None = None
        # When the present commit of offsets began; None if there is none.
        self._committing_since_ms: int | None = None
        self._retrying = Every(RETRY_EVERY_MS, clock)
        self._reaping = Every(REAP_EVERY_MS, clock)

    def stop(self) -> None:
        """Let `run` return after the present message; for any thread or a signal handler. If that message fails, this
        run does not retry it, and leaves it to the next one."""
        self._is_stopping = True

    role: Final = "active"

    def why_not_ready(self, behind_seconds: float) -> str:
        """Why this loop does not handle events as it should, in a line for a probe, from any thread; empty if it does.
        The loop itself asks the database once a second and, while no record comes, the brokers every few seconds, so
        this asks nobody."""
        if self._brokers is None:
            return "it has not begun"
        if why := self._outage.why:
            return f"waiting: {why}"
        if (since_ms := self._committing_since_ms) is not None:
            self._brokers.tell_of_commit(self._clock() - since_ms)
        if why := self._brokers.why_not:
            return why
        present_ms = self._present_ms
        age_seconds = 0.0 if present_ms is None else (self._clock() - present_ms) / 1000
        return f"behind: the present record is {age_seconds:.0f} s old" if age_seconds > behind_seconds else ""

    # -- the operations -----------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def _engine_of(database: Any) -> Any:
        """The engine of the database. Raises TypeError if this loop cannot use it."""

    @abstractmethod
    def _handle(self, work: Callable[[Connection], Due | None], handler: Any) -> Any:
        """Do `work` in a transaction that was checked for claims, then call the handler if it is due."""

    @abstractmethod
    def _pause(self, seconds: float) -> Any: ...

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _run(self, handler: Any, client: Client, brokers: Brokers) -> Procedure[None]:
        self._brokers = brokers
        try:
            yield client.start()
            while not self._is_stopping:
                yield from self._look_after(handler)
                message: Message | None = yield client.poll()
                self._present_ms = None if message is None else self._came_at_ms(message)
                if message is not None:
                    brokers.are_well()
                    try:
                        yield from self._consume(client, handler, message)
                    finally:
                        client.release()
                else:
                    # A broker that hangs looks like a topic without records.
                    brokers.doubt()
                    if brokers.is_time_to_ask():
                        brokers.tell((yield client.what_is_wrong()))
                if message is None or self._committable.is_due:
                    yield from self._commit(client)
        finally:
            # The error that ended the loop is more important than an error of this commit.
            with contextlib.suppress(LoopFailed):
                yield from self._commit(client)
            yield client.leave()

    def _came_at_ms(self, message: Message) -> int:
        return self._clock() if message.timestamp_ms is None else message.timestamp_ms

    def _commit(self, client: Client) -> Procedure[None]:
        """Commit the offsets of the messages that the database has committed."""
        offsets = self._committable.offsets()
        if offsets and (yield from self._has_committed(client, offsets)):
            self._committable.forget(offsets)

    def _has_committed(self, client: Client, offsets: dict[Place, int]) -> Procedure[bool]:
        self._committing_since_ms = self._clock()
        try:
            return bool((yield client.commit(offsets)))
        finally:
            self._committing_since_ms = None

    def give_up(self, client: Client, places: Sequence[Place]) -> Procedure[None]:
        """The partitions are about to be revoked: commit the offsets in them, or another consumer gets the done
        messages as duplicates."""
        offsets = {place: offset for place, offset in self._committable.offsets().items() if place in places}
        if offsets:
            with contextlib.suppress(LoopFailed):
                yield from self._has_committed(client, offsets)
        self._committable.forget(places)

    def forget(self, places: Sequence[Place]) -> None:
        """Another consumer has the partitions already."""
        self._committable.forget(places)

    # -- a message ----------------------------------------------------------------------------------------------------

    def _take(self, handler: Any, message: Message) -> Procedure[Outcome | None]:
        outcome = yield from self._settle(handler, message)
        while outcome is None and not self._is_stopping:
            outcome = yield from self._settle(handler, message)
        self._count(outcome)
        return outcome

    def _consume(self, client: Client, handler: Any, message: Message) -> Procedure[None]:
        outcome = yield from self._settle(handler, message)
        if outcome is not None:
            self._count(outcome)
            self._committable.note(message)
            self._check_identities()
        elif not self._is_stopping:
            # Poll for it again: a member that does not poll during an outage loses its partitions.
            client.read_again(message)

    def _check_identities(self) -> None:
        """End the loop on a topic without ids: each record would be put aside, and none handled."""
        identity = self._identity
        if self._without_identity is None or not isinstance(identity, Exception):
            self._without_identity = None
            return
        self._without_identity += 1
        if self._without_identity == WITHOUT_IDENTITY_MAX:
            raise LoopFailed(
                f"identity has found none in the first {WITHOUT_IDENTITY_MAX} records ({reason_of(identity)}), and the "
                "quarantine has them: it has to return the id that the producer gave the event, from its value or a "
                "header. If the events have none, let the producer add one; without, nobody can tell an event that "
                "comes again from a new one"
            ) from identity

    def _settle(self, handler: Any, message: Message) -> Procedure[Outcome | None]:
        """None if `stop` came before the outcome was known, or if the message was held up so often that the loop has to
        poll."""
        attempts = Attempts(self._retries, self._outage, self._passing, self._chance)
        while True:
            try:
                outcome = yield from self._attempt(handler, message, attempts)
            except Exception as error:
                wait_seconds = attempts.wait_seconds(error, message)
            else:
                self._outage.is_over()
                self._budget.earn()
                attempts.tell(outcome, message)
                return outcome
            if self._is_stopping:
                return None
            # Without a wait, the next attempt puts the message aside, which is no retry.
            if wait_seconds:
                yield self._pause(max(wait_seconds, self._budget.take_on_credit()))
            if attempts.are_held_up:
                return None

    def _attempt(self, handler: Any, message: Message, attempts: Attempts) -> Procedure[Outcome]:
        identity = self._identity = self._admission.identity_of(message)
        attempts.identity = None if isinstance(identity, Exception) else identity
        consumer = self._admission.consumer

        def admit(connection: Connection) -> Due:
            outcome = self._admit(connection, message, identity, attempts)
            if span is not None and outcome is Outcome.DUPLICATE and isinstance(identity, str):
                traces.link(span, trace_of(connection, consumer, identity))
            return Due(outcome, message)

        with _span_of(message, identity, consumer) as span:
            due: Due = yield self._handle(admit, handler)
            if span is not None:
                span.set_attribute("semel.outcome", due.outcome.value)
        return due.outcome

    def _admit(
        self, connection: Connection, message: Message, identity: str | Version | Exception, attempts: Attempts
    ) -> Outcome:
        if isinstance(identity, Exception):
            attempts.failure = identity
            return self._admission.put_undecodable(connection, message, identity)
        if attempts.failure is not None and attempts.are_used_up:
            outcome = self._admission.put_aside(connection, message, identity, attempts.failure, attempts.failed)
        else:
            outcome = self._admission.take(connection, message, identity)
        if outcome is Outcome.DUPLICATE and attempts.broken is not None:
            # No other delivery has claimed it, but the handler has committed the claim itself, and then failed.
            return self._admission.put_half_done(connection, message, identity, attempts.broken, attempts.failed)
        return outcome

    def _count(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self.counts = self.counts.with_one(outcome)
            CLAIMS.add(self._admission.consumer, outcome.value)

    # -- what is done from time to time -------------------------------------------------------------------------------

    def _look_after(self, handler: Any) -> Procedure[None]:
        """Retry the messages that a person has marked, before new ones; and delete old claims."""
        yield from self._waiting_out(self._do_what_is_due(handler))

    def _do_what_is_due(self, handler: Any) -> Procedure[None]:
        if self._retrying.is_due():
            # When the time is over, the rest waits until the loop has polled its broker.
            until_ms = self._clock() + DUE_MS_MAX
            if not (yield from self._retry_until(handler, until_ms)):
                self._retrying.make_due()
        if self._reaping.is_due():
            yield from reap_procedure(self._engine, self._admission.consumer, self._retention_ms, self._clock)

    def _retry_due(self, handler: Any) -> Procedure[None]:
        yield from self._waiting_out(self._retry_until(handler, None))

    def _waiting_out(self, work: Procedure[object]) -> Procedure[None]:
        """After an error that passes by itself, wait, and leave the rest for later. Any other error is raised."""
        try:
            yield from work
        except Exception as error:
            if not self._passing(error):
                raise
            self._meets_outage = True
            wait_seconds = self._outage.wait_seconds(error, self._chance())
            yield self._pause(max(wait_seconds, self._budget.take_on_credit()))

    def _retry_until(self, handler: Any, until_ms: int | None) -> Procedure[bool]:
        """Whether all due messages were tried before the time was over or the loop was stopped."""
        consumer = self._admission.consumer
        numbers: list[int] = yield transaction(
            self._engine, lambda connection: quarantine.due_numbers(connection, consumer, DUE_COUNT_MAX)
        )
        for number in numbers:
            if self._is_stopping or (until_ms is not None and self._clock() >= until_ms):
                return False
            yield from self._retry(handler, number)
        # An outage that this has met may end here: on an idle topic, no message says that it is over.
        if self._meets_outage:
            self._meets_outage = False
            self._outage.is_over()
        return True

    def _retry(self, handler: Any, number: int) -> Procedure[None]:
        """Raises an error that passes by itself; then the message stays due."""
        try:
            due: Due | None = yield self._handle(lambda connection: self._admission.retake(connection, number), handler)
        except Exception as error:
            if self._passing(error):
                raise
            logger.error("the retry of number %d in the quarantine has failed", number, exc_info=error)
            reason = reason_of(error)
            yield transaction(
                self._engine, lambda connection: quarantine.hold_again(connection, number, State.DUE, reason)
            )
            return
        self._outage.is_over()
        if due is not None:
            self.counts = self.counts._replace(retried=self.counts.retried + 1)


def _span_of(
    message: Message, identity: str | Version | Exception, consumer: str
) -> contextlib.AbstractContextManager[Any]:
    """The span of an attempt, in the trace of the event."""
    if not traces.is_on():
        return traces.NO_SPAN
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
        "messaging.message.id": str(identity),
        "semel.consumer": consumer,
    }
    return traces.span(f"process {message.topic}", "CONSUMER", attributes, message.traceparent)


def engine_behind(database: Any, engine: type[Any], maker: type[Any], name: str) -> Any:
    """The engine of a loop's database, which is one of this kind, or a maker of sessions on one."""
    found = database.kw.get("bind") if isinstance(database, maker) else database
    if isinstance(found, engine):
        return found
    if isinstance(database, maker):
        raise TypeError(
            f"this {maker.__name__} is not bound to one engine, on which the loop keeps its claims: write "
            f"{maker.__name__}(engine)"
        )
    kind = f"{type(database).__module__}.{type(database).__qualname__}"
    raise TypeError(
        f"{name} needs an {engine.__name__} (semel.database.engine_of(url)) or a {maker.__name__} on one, no {kind}: "
        "it begins and commits a transaction for each message"
    )


class Counts(NamedTuple):
    """The records that a loop has done; replaced as a whole, so that a reader sees numbers that agree."""

    first_time: int = 0
    duplicate: int = 0
    quarantined: int = 0
    retried: int = 0
    """How many events a retry took out of the quarantine; `consumed` does not count them again."""

    @property
    def consumed(self) -> int:
        return self.first_time + self.duplicate + self.quarantined

    def with_one(self, outcome: Outcome) -> "Counts":
        match outcome:
            case Outcome.ACCEPTED:
                return self._replace(first_time=self.first_time + 1)
            case Outcome.DUPLICATE:
                return self._replace(duplicate=self.duplicate + 1)
            case Outcome.GAP | Outcome.QUARANTINED:
                return self._replace(quarantined=self.quarantined + 1)


class CommittableOffsets:
    """The offset in each partition that may be committed: the database has committed all messages before it."""

    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._count = 0

    @property
    def is_due(self) -> bool:
        return self._count >= UNCOMMITTED_MAX

    def note(self, message: Message) -> None:
        """The database has committed the outcome of this message."""
        self._next[message.place] = message.offset + 1
        self._count += 1

    def offsets(self) -> dict[Place, int]:
        """The offset after the last done message, for each partition with an offset to commit."""
        return dict(self._next)

    def forget(self, places: Iterable[Place]) -> None:
        """These offsets were committed, or another consumer has the partitions."""
        for place in places:
            self._next.pop(place, None)
        if not self._next:
            self._count = 0


class Every:
    """A task that is due at once, and again each time `period_ms` have passed since it was last due."""

    def __init__(self, period_ms: int, clock: Clock) -> None:
        self._period_ms = period_ms
        self._clock = clock
        self._due_at_ms = 0

    def is_due(self) -> bool:
        """Whether the task is due; if so, the caller does it."""
        at_ms = self._clock()
        # A clock that was ahead and was set back must not delay the task until that time.
        is_due = not self._due_at_ms - self._period_ms <= at_ms < self._due_at_ms
        if is_due:
            self._due_at_ms = at_ms + self._period_ms
        return is_due

    def make_due(self) -> None:
        """The task was not finished, and is due again at once."""
        self._due_at_ms = 0
