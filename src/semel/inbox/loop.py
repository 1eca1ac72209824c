"""The consumer's loop over confluent-kafka: the database first, and only then the offsets, of what is done.

One message at a time, in the order of its partition: claim, handler, commit of the database. Rebalances come between
two messages, so a revoked partition is finished to the last message that was begun; what is done is committed, and the
rest is somebody else's. Whatever ends the loop leaves nothing half done. This must never commit an offset by itself or
let the client do so.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from sqlalchemy import Connection, Engine

from semel.database import check_unbroken, within
from semel.inbox import asides
from semel.inbox.admission import reason_of
from semel.inbox.asides import State
from semel.inbox.attempts import Attempts
from semel.inbox.brokers import Brokers
from semel.inbox.errors import LoopFailed
from semel.inbox.looping import Looping
from semel.inbox.messages import Headers, Message
from semel.inbox.outcomes import Outcome
from semel.inbox.progress import Place
from semel.inbox.reaper import reap
from semel.inbox.settings import DUE_COUNT_MAX, DUE_MS_MAX, POLL_SECONDS, for_confluent
from semel.publish.clients import lacking

Handler = Callable[[Connection, Message], object]

# What a client reports and mends by itself.
_PASSING: Final = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
# The partitions are somebody else's, who begins at the last commit and finds the rest to be duplicates.
_NO_MEMBER: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)
# The same commit will do, later.
_LATER: Final = frozenset(
    {
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        # No broker told it where the coordinator is, for as long as a session lasts.
        KafkaError._WAIT_COORD,
    }
)
# Where a name is not UTF-8 the client gives a result and an error at once. A plain call of a method may go on with the
# result, and the error comes up anywhere behind it; this one raises it.
_HEADERS_OF: Final = methodcaller("headers")


class Inbox(Looping[Engine]):
    """The loop over confluent-kafka; `counts` says what became of the records so far.

    `engine` is best made by `semel.database.engine_of`: its transactions have to be such that `once` takes them.
    """

    def run(self, handler: Handler, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Consume `topics` until `stop`; `kafka` is the configuration of a confluent-kafka consumer.

        The handler gets a connection in the transaction of the claim, and the message. Its error rolls both back.
        """
        brokers = self._brokers = Brokers(self._clock)
        self._group = str(kafka.get("group.id"))
        client = Consumer(for_confluent(kafka, brokers.doubt))
        try:
            client.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self._is_stopping:
                self._look_after(handler)
                received = client.poll(POLL_SECONDS)
                if received is not None and not self._is_passing(received):
                    brokers.are_well()
                    self._consume(client, handler, message_of(received))
                if received is None or self._progress.is_due:
                    self._commit(client)
                if received is None and brokers.is_time_to_ask():
                    brokers.tell(brokers.wrong_with(client, topics))
        finally:
            self._leave(client)

    # -- a message ---------------------------------------------------------------------------------------------------

    def take(self, handler: Handler, message: Message) -> Outcome | None:
        """What became of this message, committed and counted; None where `stop` came before that was known.

        Call it from a loop of your own, and commit the offset after it. It waits for what is away, as long as that is.
        """
        outcome = self._settle(handler, message)
        while outcome is None and not self._is_stopping:
            outcome = self._settle(handler, message)
        self._count(outcome)
        return outcome

    def retry_due(self, handler: Handler) -> None:
        """Try what a person wants to be tried again, in the order in which it was put aside, each once."""
        with self._waiting_out():
            self._retry_until(handler, self._due_numbers(), None)

    def _consume(self, client: Consumer, handler: Handler, message: Message) -> None:
        outcome = self._settle(handler, message)
        if outcome is not None:
            self._count(outcome)
            self._progress.note(message)
        elif not self._is_stopping:
            self._read_again(client, message)

    def _settle(self, handler: Handler, message: Message) -> Outcome | None:
        """None where `stop` came before it was known, or something is in the way for longer than a poll may wait."""
        attempts = self._new_attempts()
        while True:
            try:
                outcome = self._attempt(handler, message, attempts)
            except Exception as error:
                wait_seconds = attempts.wait_seconds(error)
            else:
                self._outage.is_over()
                return outcome
            if self._is_stopping:
                return None
            time.sleep(wait_seconds)
            if attempts.are_held_up:
                return None

    def _attempt(self, handler: Handler, message: Message, attempts: Attempts) -> Outcome:
        identity = self._admission.identity_of(message)
        with self._begun() as connection:
            if isinstance(identity, Exception):
                return self._admission.put_undecodable(connection, message, identity)
            if attempts.failure is not None and attempts.are_used_up:
                return self._admission.put_aside(connection, message, identity, attempts.failure, attempts.failed)
            outcome = self._admission.take(connection, message, identity)
            if outcome:
                handler(connection, message)
                check_unbroken(connection)
        return outcome

    @contextlib.contextmanager
    def _begun(self) -> Iterator[Connection]:
        """A transaction of the loop's own, in which a claim can be trusted."""
        with self._engine.begin() as connection, within(connection):
            yield connection

    # -- what is done from time to time ------------------------------------------------------------------------------

    def _look_after(self, handler: Handler) -> None:
        """Those that a person wants to be tried again come before what is new; and old claims go."""
        with self._waiting_out():
            if self._retrying.is_due():
                self._retry_for_a_while(handler)
            if self._reaping.is_due():
                reap(
                    self._engine, consumer=self._admission.consumer, retention_ms=self._retention_ms, clock=self._clock
                )

    @contextlib.contextmanager
    def _waiting_out(self) -> Iterator[None]:
        """What is in the way leaves the rest for later."""
        try:
            yield
        except Exception as error:
            time.sleep(self._outage_seconds(error))

    def _retry_for_a_while(self, handler: Handler) -> None:
        """The rest waits until the broker has heard of us."""
        until_ms = self._clock() + DUE_MS_MAX
        if not self._retry_until(handler, self._due_numbers(), until_ms):
            self._retrying.make_due()

    def _retry_until(self, handler: Handler, numbers: Sequence[int], until_ms: int | None) -> bool:
        """Whether all of them were tried in time, and nothing is in the way."""
        for number in numbers:
            if self._is_stopping or (until_ms is not None and self._clock() >= until_ms):
                return False
            self._retry(handler, number)
        return True

    def _due_numbers(self) -> list[int]:
        with self._begun() as connection:
            return asides.due_numbers(connection, self._admission.consumer, DUE_COUNT_MAX)

    def _retry(self, handler: Handler, number: int) -> None:
        """What passes by itself is raised, and leaves it due."""
        try:
            with self._begun() as connection:
                retaken = self._admission.retake(connection, number)
                if retaken is not None and retaken.outcome:
                    handler(connection, retaken.message)
                    check_unbroken(connection)
        except Exception as error:
            if self._passing(error):
                raise
            with self._begun() as connection:
                asides.hold_again(connection, number, State.DUE, reason_of(error))
            return
        self._outage.is_over()
        if retaken is not None:
            self._count_retried()

    # -- the broker --------------------------------------------------------------------------------------------------

    def _is_passing(self, received: Received) -> bool:
        error = received.error()
        if error is None:
            return False
        if error.code() in _PASSING or (error.retriable() and not error.fatal()):
            if error.code() != KafkaError._PARTITION_EOF:
                self._brokers.doubt(error)
            return True
        raise LoopFailed(f"the broker refuses to be read: {error.str()}{self._lacking(error, received.topic())}")

    def _lacking(self, error: KafkaError, topic: str | None) -> str:
        is_of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        return lacking(error.code(), "Read", self._group if is_of_group else topic)

    def _read_again(self, client: Consumer, message: Message) -> None:
        """Poll for it once more: who does not poll loses his partitions, however long the outage is."""
        try:
            client.seek(TopicPartition(message.topic, message.partition, message.offset))
        except KafkaException as failure:
            raise LoopFailed(f"the place of a message that has to wait is lost: {failure.args[0].str()}") from failure

    def _commit(self, client: Consumer) -> None:
        """Tell the broker how far the database has come, and wait until it knows."""
        offsets = self._progress.offsets()
        if not offsets:
            return
        try:
            client.commit(offsets=_places_at(offsets), asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in _LATER or error.retriable():
                return
            if error.code() not in _NO_MEMBER:
                right = self._lacking(error, min(offsets)[0])
                raise LoopFailed(f"the broker refuses the offsets: {error.str()}{right}") from failure
        self._progress.forget(offsets)

    def _assigned(self, _client: Consumer, _partitions: list[TopicPartition]) -> None:
        self._brokers.give_partitions()

    def _revoked(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        self._brokers.take_partitions()
        offsets = self._progress.offsets()
        own = {place: offsets[place] for place in _places(partitions) if place in offsets}
        # What cannot be committed now is delivered to somebody else, as duplicates.
        with contextlib.suppress(KafkaException):
            if own:
                client.commit(offsets=_places_at(own), asynchronous=False)
        self._progress.forget(own)

    def _lost(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        self._brokers.take_partitions()
        self._progress.forget(_places(partitions))

    def _leave(self, client: Consumer) -> None:
        # Whatever ended the loop is more important than what the broker says to this.
        with contextlib.suppress(KafkaException, LoopFailed):
            self._commit(client)
        client.close()


def message_of(received: Received) -> Message:
    kind, timestamp_ms = received.timestamp()
    headers, are_headers_readable = _headers(received)
    return Message(
        str(received.topic()),
        int(received.partition() or 0),
        int(received.offset() or 0),
        _bytes(received.key()),
        _bytes(received.value()),
        headers,
        # The time at which the broker stored it says nothing of the event.
        timestamp_ms if kind == 1 and timestamp_ms >= 0 else None,
        are_headers_readable,
    )


def _headers(received: Received) -> tuple[Headers, bool]:
    """And whether they could be read. To be called once: what the client hands out after a failure has a hole in it."""
    try:
        found: Any = _HEADERS_OF(received) or ()
    except (SystemError, UnicodeDecodeError):
        return (), False
    return tuple((name, _bytes(value)) for name, value in found), True


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(one.topic, one.partition) for one in partitions]


def _places_at(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
