"""The topic of a name's cursor: makes it if it is missing, refuses it if it would lose the cursor, and reads it to its
end.

Each name has a topic of its own, with one partition that only the name's producer writes to. If names shared a topic,
the open transaction of one name would hide the cursors of all others from readers of committed records, and a reader
would have to wait for another name's transaction. The cursor must never count as final before the fence is up; `peek`
is for a reader that has put up no fence.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from semel.publish.clients import Deadline, PublishSettings, lacking
from semel.publish.rules import Cursor, CursorRefused, NoCursor, PublishFailed, decode

T = TypeVar("T")

PARTITION: Final = 0
# Small segments, compacted early, because only the last record is needed.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
# How many offsets before the end are searched for the cursor first: only aborted transactions may come after it.
TAIL_OFFSETS: Final = 64
_TAIL_GROWTH: Final = 16
_ASK_SECONDS_MAX: Final = 5.0
# How long to wait for an open transaction before checking whose it is; a live publisher commits sooner.
_UNDECIDED_SECONDS_MAX: Final = 1.0
_PAUSE_SECONDS: Final = 0.05
# A reader learns from an empty answer that it is at the end, so the broker should not wait long before it sends one.
_FETCH_WAIT_MS: Final = 10
# The errors of a broker that is not ready, or whose new topic is not ready.
_PASSING: Final = frozenset(
    (
        *(KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE),
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_CONTROLLER),
        *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE),
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.FENCED_LEADER_EPOCH),
        *(KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaError.KAFKA_STORAGE_ERROR),
    )
)
_NOT_THERE: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
)
# librdkafka asks for the coordinator of the group in its settings. The reader joins no group and needs no answer.
_NOT_NEEDED: Final = frozenset((KafkaError.GROUP_AUTHORIZATION_FAILED,))
_FORBIDDEN: Final = frozenset((KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED))


class Undecided(PublishFailed):
    """The cursor topic cannot be read to its end: a transaction is open, or the broker that was asked does not lead the
    topic any more."""


class CursorTopic:
    """The topic of one name's cursor."""

    def __init__(self, settings: PublishSettings) -> None:
        self._topic = settings.topic
        self._name = settings.name
        self._connection = dict(settings.connection)
        self._events = settings.events
        self._where = TopicPartition(self._topic, PARTITION)
        self._admin: AdminClient | None = None

    @property
    def key(self) -> bytes:
        """The key of the cursor's records, of which compaction keeps the last one."""
        return self._name.encode()

    def prepare(self, deadline: Deadline) -> None:
        """Make the topic if it is missing, and refuse one that would lose the cursor."""
        policy = self._cleanup_policy(deadline)
        if policy is None:
            self._make(deadline)
            policy = self._cleanup_policy(deadline, is_made=True)
        if policy != "compact":
            raise CursorRefused(
                f"topic {self._topic!r} has cleanup.policy={policy}, and the cursor of publisher {self._name!r} would "
                "be deleted in time: set cleanup.policy=compact, and nothing beside it"
            )

    def read(self, deadline: Deadline) -> Cursor | None:
        """The cursor. The caller has claimed the name's transactional id, so that id has no open transaction.

        `Undecided` if there is one: the id was claimed again meanwhile, or another program writes to the topic.
        """
        return self._last(self._end(deadline), deadline, until_decided=True)

    def read_below(self, offset: int, deadline: Deadline) -> Cursor | None:
        """The last cursor below a record that was just written and is not committed.

        A broker that no longer leads the topic, and does not know it yet, has nothing at this offset. So a reader that
        can read up to the offset sees all committed records before it. Otherwise `Undecided`.
        """
        return self._last(offset, deadline, until_decided=True)

    def peek(self, deadline: Deadline) -> Cursor | None:
        """The last committed cursor, for a reader that has put up no fence and only wants to know who wrote it."""
        return self._last(self._end(deadline), deadline, until_decided=False)

    def disconnect(self) -> None:
        """End the connections; the next request makes new ones."""
        self._admin = None

    def _administrator(self) -> AdminClient:
        """One client for all requests of a start, because a new one has to find the cluster first."""
        if self._admin is None:
            self._admin = AdminClient(self._connection)
        return self._admin

    def _last(self, end: int, deadline: Deadline, *, until_decided: bool) -> Cursor | None:
        tail = TAIL_OFFSETS
        with contextlib.closing(self._reader()) as reader:
            while True:
                begin = max(end - tail, 0)
                cursor = self._scan(reader, begin, end if until_decided else 0, deadline)
                if cursor is not None or begin == 0:
                    return cursor
                tail *= _TAIL_GROWTH

    def _end(self, deadline: Deadline) -> int:
        """The offset after the last record, open and aborted transactions included."""

        def ask(seconds: float) -> int:
            [answer] = (
                self._administrator()
                .list_offsets(
                    {self._where: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=seconds,
                )
                .values()
            )
            return int(self._result(answer).offset)

        # The topic exists, but a broker that has just started may not know it yet.
        return self._ask(ask, deadline, _PASSING | _NOT_THERE, right="Describe")

    def _reader(self) -> Consumer:
        return Consumer(
            {
                **self._connection,
                "group.id": self._topic,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": _FETCH_WAIT_MS,
            }
        )

    def _scan(self, reader: Consumer, begin: int, end: int, deadline: Deadline) -> Cursor | None:
        """The last cursor from `begin` on; waits until all transactions before `end` have ended."""
        reader.assign([TopicPartition(self._topic, PARTITION, begin)])
        cursor: Cursor | None = None
        patience = deadline
        while not patience.is_over:
            message = reader.poll(min(patience.left_seconds, _ASK_SECONDS_MAX))
            if message is None:
                continue
            error = message.error()
            if error is None:
                cursor = self._cursor_in(message.key(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= end:
                    return cursor
                patience = Deadline(min(deadline.left_seconds, _UNDECIDED_SECONDS_MAX))
            elif error.code() not in _PASSING | _NOT_THERE | _NOT_NEEDED:
                right = lacking(error.code(), "Read", self._topic)
                raise CursorRefused(f"the cursor of publisher {self._name!r} cannot be read: {error.str()}{right}")
        if patience is deadline:
            raise PublishFailed(f"no broker showed the cursor of publisher {self._name!r} in time")
        raise Undecided(
            f"the cursor of publisher {self._name!r} could not be read in time: a transaction that is not this "
            f"publisher's is open in topic {self._topic!r}, or the broker that was asked does not lead it any more"
        )

    def _cursor_in(self, key: Any, value: Any) -> Cursor:
        if key != self.key:
            raise CursorRefused(
                f"topic {self._topic!r} has a record under key {key!r}, and is to hold nothing but the cursor of "
                f"publisher {self._name!r}: each name needs a topic of its own"
            )
        try:
            return decode(value)
        except NoCursor as reason:
            raise CursorRefused(f"topic {self._topic!r} of publisher {self._name!r}: {reason}") from None

    def _cleanup_policy(self, deadline: Deadline, *, is_made: bool = False) -> str | None:
        """The topic's cleanup policy; None if the topic does not exist."""
        resource = ConfigResource(ResourceType.TOPIC, self._topic)

        def ask(seconds: float) -> str | None:
            [answer] = self._administrator().describe_configs([resource], request_timeout=seconds).values()
            try:
                return str(self._result(answer)["cleanup.policy"].value)
            except KafkaException as error:
                if not is_made and error.args[0].code() in _NOT_THERE:
                    return None
                raise

        return self._ask(ask, deadline, _PASSING | _NOT_THERE if is_made else _PASSING, right="DescribeConfigs")

    def _make(self, deadline: Deadline) -> None:
        def ask(seconds: float) -> None:
            new = NewTopic(self._topic, 1, config=TOPIC_CONFIGS)
            [made] = self._administrator().create_topics([new], request_timeout=seconds).values()
            try:
                self._result(made)
            except KafkaException as error:
                # Another publisher has made it, or the answer to an earlier attempt was lost.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._ask(ask, deadline, _PASSING, right="Create")

    def _ask(self, ask: Callable[[float], T], deadline: Deadline, passing: frozenset[int], *, right: str) -> T:
        """The answer of a broker. While the broker is not ready, the request is repeated. `right` is the right that it
        needs."""
        for seconds in _turns(deadline):
            try:
                answer = ask(seconds)
                self._events.forget()
                return answer
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() not in passing:
                    named = f"; this user needs the right {right} on it" if reason.code() in _FORBIDDEN else ""
                    raise CursorRefused(
                        f"topic {self._topic!r} of publisher {self._name!r}: {reason.str()} ({reason.name()}){named}"
                    ) from None
                last = reason.str()
        # The client calls `error_cb` only when it is polled.
        self._administrator().poll(0)
        raise self._no_answer(last)

    def _result(self, answer: Future[T]) -> T:
        """The answer of a broker. If the login is refused, this raises at once and does not wait for the timeout."""
        while True:
            try:
                return answer.result(_PAUSE_SECONDS)
            except TimeoutError as unanswered:
                self._administrator().poll(0)
                if self._events.is_login_refused:
                    raise self._no_answer(str(unanswered)) from None

    def _no_answer(self, reason: str) -> PublishFailed:
        return self._events.failure(
            f"no broker answered about topic {self._topic!r} of publisher {self._name!r}: {self._events.why(reason)}"
        )


def _turns(deadline: Deadline) -> Iterator[float]:
    """How long each attempt may take, until the time is over; there is always at least one."""
    yield min(deadline.left_seconds + _PAUSE_SECONDS, _ASK_SECONDS_MAX)
    while not deadline.is_over:
        time.sleep(min(_PAUSE_SECONDS, deadline.left_seconds))
        yield min(deadline.left_seconds + _PAUSE_SECONDS, _ASK_SECONDS_MAX)
