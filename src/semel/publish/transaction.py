"""Records in one Kafka transaction, as librdkafka does it, and what its errors mean.

An error means one of three things: a record that cannot be stored (the transaction is aborted, and the producer goes
on), a fence, or an interruption, after which the producer is given up and the cursor says what happened. This must
never guess whether a commit took place.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from semel.publish.clients import Deadline, lacking
from semel.publish.rules import Record, RecordRefused

# Readers of committed records wait for a transaction that is left open, so some time is spent on ending it.
_ABORT_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.01
_FENCED: Final = frozenset((KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED))
# What is wrong with the record itself, or with where it is to go.
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
    """The producer is of no use any more. Whether anything was committed, the cursor says."""

    def __init__(self, reason: KafkaError | str) -> None:
        super().__init__(reason if isinstance(reason, str) else _words_for(reason))
        self.error = None if isinstance(reason, str) else reason


def _words_for(reason: KafkaError) -> str:
    """A client whose transaction was refused a partition says only that it gave up the records, and not why."""
    purged = ": the transaction was given up, most often for want of the right Write on one of its topics"
    return f"{reason.str()} ({reason.name()}){purged if reason.code() == KafkaError._PURGE_QUEUE else ''}"


def claim(producer: Producer, deadline: Deadline) -> None:
    """Put up the fence: from now on no other producer may write under the transactional id, and its open transaction is
    aborted."""
    _insist(producer.init_transactions, deadline)


class Transaction:
    """One transaction, from its begin to its end."""

    def __init__(self, producer: Producer, deadline: Deadline) -> None:
        self._producer = producer
        self._deadline = deadline
        self._abort_seconds = min(deadline.left_seconds, _ABORT_SECONDS_MAX)
        self._failed: tuple[Record, KafkaError] | None = None
        self._last_offset = -1

    @property
    def last_offset(self) -> int:
        """Where the record that arrived last stands: who leads its partition has all that was committed below it."""
        if self._last_offset < 0:
            raise Interrupted("the broker has the record, and does not say where")
        return self._last_offset

    def write(self, records: Iterable[Record]) -> None:
        """Begin, and have everything stored; if not all of it is, nothing stays."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            _raise_if_fenced(error.args[0])
            raise Interrupted(error.args[0]) from None
        try:
            for record in records:
                self._hand_over(record)
            self._flush()
        except RecordRefused:
            self.abort()
            raise
        except BaseException:
            with contextlib.suppress(Interrupted):
                self.abort()
            raise

    def commit(self) -> None:
        """Commit; anything but a return means that the cursor has to be asked.

        That takes half of the time that is left: in the rest a new producer can find out, and go on.
        """
        _insist(self._producer.commit_transaction, Deadline(self._deadline.left_seconds / 2))

    def abort(self) -> None:
        """Abort the transaction. A producer that was fenced says so here, whatever it said before."""
        _insist(self._producer.abort_transaction, Deadline(self._abort_seconds))

    def _hand_over(self, record: Record) -> None:
        settled: dict[str, Any] = {}
        if record.headers:
            # The client takes no other mapping than dict, and no other sequence than list.
            headers = list(record.headers.items() if isinstance(record.headers, Mapping) else record.headers)
            if cut := next((name for name, _ in headers if "\0" in name), None):
                raise RecordRefused(record, f"{cut!r} is no name of a header: the client would end it at the NUL")
            settled["headers"] = headers
        if record.partition is not None:
            settled["partition"] = record.partition
        if record.timestamp_ms is not None:
            settled["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, on_delivery=partial(self._note, record), **settled
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
        self._producer.poll(_POLL_SECONDS)
        self._check()

    def _flush(self) -> None:
        if self._producer.flush(self._deadline.left_seconds):
            raise Interrupted("not everything arrived in time")
        self._check()

    def _note(self, record: Record, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._last_offset = message.offset() or 0
        elif self._failed is None:
            # Only the first failure says why; those after it are purged because of it.
            self._failed = record, error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failure(*self._failed)

    def _failure(self, record: Record, reason: KafkaError) -> Exception:
        if reason.code() in _FENCED:
            return FencedOff()
        if reason.code() in _OF_THE_RECORD:
            return RecordRefused(record, reason.str() + lacking(reason.code(), "Write", record.topic))
        return Interrupted(reason)


def _insist(step: Callable[[float], object], deadline: Deadline) -> None:
    """Take a step again for as long as its errors allow that, and there is time.

    A step that timed out had all the time there was, to the millisecond. It must not be taken again in the fraction
    that may be left: librdkafka forgets a commit that it has no time to begin, and if the broker then answers the one
    that is still under way, librdkafka takes the answer for that of an abort and ends the process.
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
