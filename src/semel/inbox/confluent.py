"""The loop over confluent-kafka.

Rebalances happen between two messages, so when a partition is revoked, no message is half done; the loop commits the
offsets of the done messages, and the next consumer gets the rest. The client must never commit an offset by itself.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import sessionmaker

from semel.database import keep_open, within
from semel.database.effects import effects_on
from semel.database.kinds import WrongKind, check_callable
from semel.database.procedures import drive
from semel.inbox.admission import Due
from semel.inbox.brokers import ASK_SECONDS, Brokers, LoopFailed, checked_config
from semel.inbox.events import Headers, Message, Outcome
from semel.inbox.loop import POLL_SECONDS, Loop, Place, engine_behind
from semel.publish.clients import CONNECTING, lacking, logger_of_client

# With an engine, a handler gets a Connection; with a sessionmaker, a Session.
Handler = Callable[[Any, Message], object]

logger = logger_of_client("semel.inbox.librdkafka")

# Another broker is about to have the group, or has it. The client looks for it, and calls none of these retriable.
_OTHER_COORDINATOR: Final = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)
# Errors that the client reports and retries by itself.
_PASSING: Final = frozenset(
    {
        *_OTHER_COORDINATOR,
        KafkaError._PARTITION_EOF,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
# Another member has the partitions. It begins at the last commit, and the messages done since then are duplicates for
# it.
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
# The loop can repeat the commit later.
_LATER: Final = frozenset(
    {
        *_OTHER_COORDINATOR,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        # The client does not know the coordinator; this can last as long as a session.
        KafkaError._WAIT_COORD,
    }
)
# If a name is not UTF-8, the client returns a result and sets an error at once. After a plain method call, Python may
# continue with the result and raise the error at any later point; called in this way, it raises the error here.
_HEADERS_OF: Final = methodcaller("headers")


# librdkafka's default of fetch.wait.max.ms.
_FETCH_WAIT_MS: Final = 500
# For the words with which a handler is refused.
_HANDLER: Final = "the handler of an Inbox"


class Inbox(Loop[Engine | sessionmaker[Any]]):
    """The loop over confluent-kafka; `counts` has the outcomes of the records so far.

    Make the engine with `semel.database.engine_of`, or make sure that `once` accepts its transactions.
    """

    def run(self, handler: Handler, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        """Consume `topics` until `stop`; `kafka` is the configuration of a confluent-kafka consumer.

        The handler gets a connection or a session in the transaction of the claim, and the message. It does not commit
        or roll back. If it raises, the transaction is rolled back, with the claim.
        """
        check_callable(_HANDLER, handler)
        brokers = Brokers(self._clock)
        drive(self._run(handler, _Client(self, brokers, kafka, topics), brokers))

    def take(self, handler: Handler, message: Message) -> Outcome | None:
        """The outcome of this message, committed and counted; None if `stop` came before it was known.

        For a loop of your own, which then has to commit the offset. During an outage, this waits until it is over.
        """
        check_callable(_HANDLER, handler)
        return drive(self._take(handler, message))

    def retry_due(self, handler: Handler) -> None:
        """Retry once each message that a person has marked, in the order in which they were put aside."""
        check_callable(_HANDLER, handler)
        drive(self._retry_due(handler))

    def _handle(self, work: Callable[[Connection], Due | None], handler: Handler) -> Due | None:
        with self._database.begin() as handle:
            with within(handle) as connection:
                due = work(connection)
            if due is not None and due.outcome:
                transaction = keep_open(handle)
                try:
                    with effects_on(transaction):
                        _check_done(handler(handle, due.message))
                    transaction.check()
                finally:
                    transaction.release()
            return due

    @staticmethod
    def _engine_of(database: Any) -> Any:
        return engine_behind(database, Engine, sessionmaker, "Inbox")

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def _check_done(result: object) -> None:
    """A handler that returns a coroutine has done nothing yet, and its claim would commit."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WrongKind(f"{_HANDLER} has returned what nobody awaits: run an AsyncInbox, or wait for it in the handler")


class _Client:
    """A consumer of confluent-kafka, as the loop uses it. Each operation is done when it is called."""

    def __init__(self, loop: Inbox, brokers: Brokers, kafka: Mapping[str, Any], topics: Sequence[str]) -> None:
        self._loop = loop
        self._brokers = brokers
        self._group = str(kafka.get("group.id"))
        self._topics = topics
        # A fetch that waits at the broker is before the question on the same connection.
        self._ask_seconds = ASK_SECONDS + int(kafka.get("fetch.wait.max.ms", _FETCH_WAIT_MS)) / 1000
        self._consumer = Consumer(for_confluent(kafka, brokers.doubt))

    def start(self) -> None:
        self._consumer.subscribe(
            list(self._topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def poll(self) -> Message | None:
        received = self._consumer.poll(POLL_SECONDS)
        return None if received is None or self._is_passing(received) else message_of(received)

    def release(self) -> None:
        """Does nothing: rebalances happen only in `poll`."""

    def read_again(self, message: Message) -> None:
        try:
            self._consumer.seek(TopicPartition(message.topic, message.partition, message.offset))
        except KafkaException as failure:
            raise LoopFailed(f"the place of a message that has to wait is lost: {failure.args[0].str()}") from failure

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in _LATER or error.retriable():
                return False
            if error.code() not in _NO_MEMBER:
                right = self._lacking(error, min(offsets)[0])
                raise LoopFailed(f"the broker refuses the offsets: {error.str()}{right}") from failure
        return True

    def what_is_wrong(self) -> str | None:
        return self._brokers.wrong_with(self._consumer, self._topics, self._ask_seconds)

    def leave(self) -> None:
        self._consumer.close()

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

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._brokers.give_partitions()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._brokers.take_partitions()
        drive(self._loop.give_up(self, _places(partitions)))

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._brokers.take_partitions()
        self._loop.forget(_places(partitions))


def for_confluent(settings: Mapping[str, Any], hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    """`hear` gets the errors that the client retries by itself; so does the user's own `error_cb`."""
    config = checked_config(settings, "group.id", "enable.auto.commit")
    own_callback = config.get("error_cb")

    def tell(error: KafkaError) -> None:
        hear(error)
        if own_callback is not None:
            own_callback(error)

    return {**_FOR_CONFLUENT, "logger": logger, **config, "enable.auto.commit": False, "error_cb": tell}


_FOR_CONFLUENT: Final = {
    **CONNECTING,
    # A group without offsets begins at the start of the topic: it must not miss earlier records.
    "auto.offset.reset": "earliest",
}


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
        # The time at which the broker stored a record is not the event's time.
        timestamp_ms if kind == 1 and timestamp_ms >= 0 else None,
        are_headers_readable,
    )


def _headers(received: Received) -> tuple[Headers, bool]:
    """The headers, and whether they could be read. Call it once: after a failure the client leaves a header out."""
    try:
        headers: Any = _HEADERS_OF(received) or ()
    except (SystemError, UnicodeDecodeError):
        return (), False
    return tuple((name, _bytes(value)) for name, value in headers), True


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(one.topic, one.partition) for one in partitions]
