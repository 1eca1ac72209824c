"""Writes records in one Kafka transaction with librdkafka, and says what its errors mean.

An error means one of three things: a record that cannot be stored (the transaction is aborted, and the producer can be
used further), a fence, or an interruption, after which the caller needs a new producer and the cursor says what
happened. This file must never guess whether a commit happened.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from semel.publish.clients import Deadline, lacking
from semel.publish.rules import Record, RecordRefused

# Readers of committed records have to wait for a transaction that is left open, so it is worth some time to abort it.
_ABORT_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.01
# What the client takes for no partition and for no time: the key chooses the partition, and the client sets the time.
_BY_KEY: Final = -1
_NOW: Final = 0
_FENCED: Final = frozenset((KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED))
# Errors of the record itself, or of its topic and partition.
_OF_THE_RECORD: Final = frozenset(
    (
        *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD),
        *(KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_MSG_SIZE, KafkaError.POLICY_VIOLATION),
        *(KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART),
        *(KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._INVALID_ARG),
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)


class FencedOff(Exception):
    """Another producer has the transactional id."""


class Interrupted(Exception):
    """The producer cannot be used any more. The cursor says whether anything was committed."""

    def __init__(self, reason: KafkaError | str) -> None:
        super().__init__(reason if isinstance(reason, str) else _words_for(reason))
        self.error = None if isinstance(reason, str) else reason


def _words_for(reason: KafkaError) -> str:
    """The text of an error. If a transaction may not write to a partition, librdkafka says only that it purged the
    records, so this adds the likely cause."""
    purged = ": the transaction was given up, most often for want of the right Write on one of its topics"
    return f"{reason.str()} ({reason.name()}){purged if reason.code() == KafkaError._PURGE_QUEUE else ''}"


class Client:
    """A producer until it is released. Calls hold this and not the producer: confluent-kafka keeps some errors of calls
    for good, and with each the frames it came through."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def release(self) -> None:
        """End the producer, unless somebody else holds it; this object cannot be used any more."""
        del self.producer


def claim(client: Client, deadline: Deadline) -> None:
    """Put up the fence: earlier producers of the transactional id can no longer write, and their open transaction is
    aborted."""
    _insist(lambda seconds: client.producer.init_transactions(seconds), deadline)


class Transaction:
    """One transaction, from its begin to its end."""

    def __init__(self, client: Client, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline
        self._abort_seconds = min(deadline.left_seconds, _ABORT_SECONDS_MAX)
        self._failed: tuple[Record, KafkaError] | None = None
        self._last: Message | None = None
        self._first: Record | None = None
        # Whether a refusal may be that of any of the records: the coordinator has refused to add one of their topics,
        # and the client purges them all.
        self.is_given_up = False

    @property
    def last_offset(self) -> int:
        """The offset of the record that was acknowledged last: the leader of its partition has everything that was
        committed below it."""
        offset = None if self._last is None else self._last.offset()
        if offset is None or offset < 0:
            raise Interrupted("the broker has the record, and does not say where")
        return offset

    def write(self, records: Iterable[Record]) -> None:
        """Begin, and wait until every record is stored; if one is not, abort."""
        try:
            self._client.producer.begin_transaction()
        except KafkaException as error:
            _raise_if_fenced(error.args[0])
            raise Interrupted(error.args[0]) from None
        try:
            for record in records:
                self._first = self._first or record
                self._hand_over(record)
            self._flush()
        except RecordRefused:
            try:
                self.abort()
            except Interrupted:
                # The transaction has no partitions, and brokers before Kafka 4.0 abort none such. It cannot commit.
                if not self.is_given_up:
                    raise
            raise
        except BaseException:
            with contextlib.suppress(Interrupted):
                self.abort()
            raise

    def commit(self) -> None:
        """Commit. If this raises, only the cursor says whether it was committed.

        This takes at most half of the time that is left: in the rest, a new producer can find out and continue.
        """
        _insist(
            lambda seconds: self._client.producer.commit_transaction(seconds), Deadline(self._deadline.left_seconds / 2)
        )

    def abort(self) -> None:
        """Abort the transaction. For a fenced producer this raises `FencedOff`, whatever error came before."""
        _insist(lambda seconds: self._client.producer.abort_transaction(seconds), Deadline(self._abort_seconds))

    def _hand_over(self, record: Record) -> None:
        topic, key, value, headers, partition, timestamp_ms = record
        sent_headers = _headers(record) if headers else None
        if partition is None:
            partition = _BY_KEY
        noted = partial(self._note, record)
        while True:
            try:
                # By their places: with names, the call takes a third longer.
                self._client.producer.produce(
                    topic, value, key, partition, noted, None, timestamp_ms or _NOW, sent_headers
                )
                return
            except BufferError:
                self._free_the_queue()
            except KafkaException as error:
                raise self._failure(record, error.args[0]) from None

    def _free_the_queue(self) -> None:
        """The queue is full: wait until the broker has acknowledged some of its records."""
        if self._deadline.is_over:
            raise Interrupted("the queue is full, and the broker acknowledged none of its records in time")
        self._client.producer.poll(_POLL_SECONDS)
        self._check()

    def _flush(self) -> None:
        if self._client.producer.flush(self._deadline.left_seconds):
            raise Interrupted("not everything arrived in time")
        self._check()

    def _note(self, record: Record, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last = message
        elif self._failed is None:
            # Only the first failure has the cause; the records after it are purged because of it.
            self._failed = record, error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failure(*self._failed)

    def _failure(self, record: Record, reason: KafkaError) -> Exception:
        if reason.code() == KafkaError._PURGE_QUEUE and (cause := self._cause_of_purge()) is not None:
            self.is_given_up = True
            record, reason = self._first or record, cause
        if reason.code() in _FENCED:
            return FencedOff()
        if reason.code() in _OF_THE_RECORD:
            right = lacking(reason.code(), "Write", record.topic)
            if right and self.is_given_up:
                right = "; this user needs the right Write on each topic of the transaction"
            return RecordRefused(record, reason.str() + right)
        return Interrupted(reason)

    def _cause_of_purge(self) -> KafkaError | None:
        """The error for which the client has given up the transaction: it raises it again when it has to begin one."""
        try:
            self._client.producer.begin_transaction()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            return cause if cause.txn_requires_abort() else None
        return None


def _headers(record: Record) -> list[tuple[str, str | bytes | None]]:
    """In a list, because the client accepts no mapping except dict, and no sequence except list."""
    headers = list(record.headers.items() if isinstance(record.headers, Mapping) else record.headers)
    if cut := next((name for name, _ in headers if "\0" in name), None):
        raise RecordRefused(record, f"{cut!r} is no name of a header: the client would end it at the NUL")
    return headers


def _insist(step: Callable[[float], object], deadline: Deadline) -> None:
    """Repeat a step as long as its errors allow that and there is time.

    A step that timed out has used all the time, to the millisecond. It must not be repeated in the fraction that may be
    left: librdkafka forgets a commit that it has no time to begin, and if the broker then answers the commit that is
    still running, librdkafka takes the answer for that of an abort and ends the process.
    """
    while True:
        try:
            step(deadline.left_seconds)
            return
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            _raise_if_fenced(reason)
            if reason.code() == KafkaError._TIMED_OUT or deadline.is_over or not reason.retriable():
                raise Interrupted(reason) from None


def _raise_if_fenced(reason: KafkaError) -> None:
    if reason.code() in _FENCED:
        raise FencedOff
