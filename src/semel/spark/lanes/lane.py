"""One attempt to write one lane of one batch: fence, read the marker, decide, and then write and mark in one commit.

The order of these steps is the guarantee; each way to weaken it is found by the model in tests/spark/lanes. When it is
not known whether a commit happened this raises and never guesses: the next attempt reads the marker.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from semel.spark.lanes import progress
from semel.spark.lanes.digest import RunningDigest
from semel.spark.lanes.protocol import Claim, Digest, Duplicate, Refusal, advance, check, decide
from semel.spark.lanes.rows import RowReader
from semel.spark.log import LogClient, LogError, Topic
from semel.spark.log.settings import ClientSettings

logger = logging.getLogger(__name__)

# What waits in memory to be sent. More does not make it faster.
QUEUE_MESSAGES_MAX: Final = 100_000
QUEUE_KIB_MAX: Final = 64 * 1024
# Java's clients place keys like this, so that a key is where they look for it.
PARTITIONER: Final = "murmur2_random"
ABORT_SECONDS_MAX: Final = 5.0

_DEFAULTS: Final = {
    "linger.ms": "20",
    "batch.size": "1000000",
    "queue.buffering.max.messages": str(QUEUE_MESSAGES_MAX),
    "queue.buffering.max.kbytes": str(QUEUE_KIB_MAX),
    # Half of it passes between the first connection, which librdkafka gives up once it knows the brokers, and the next.
    "reconnect.backoff.ms": "20",
}
_FENCED: Final = frozenset((KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED))


class ClaimRefused(LogError):
    """The batch does not fit what the lane has written; nothing was written now."""


class LaneFailed(LogError):
    """The lane could not be written, or nobody knows whether it was. The next attempt finds out."""


@dataclass(frozen=True)
class LaneOutcome:
    """What came of one attempt."""

    lane: int
    was_duplicate: bool
    digest: Digest


@dataclass(frozen=True)
class LaneWriter:
    """Where a lane goes. It can be pickled; connections are made by the task."""

    client: ClientSettings
    progress_topic: Topic
    topic: str | None
    transaction_timeout_ms: int

    def write(self, claim: Claim, batches: Iterable[Any]) -> LaneOutcome:
        """Writes the lane's rows, or finds that they are there."""
        reader = RowReader(self.topic, claim.lane)
        producer = self._fence(claim)
        with LogClient(self.client) as client:
            marker = progress.read_marker(client, self.progress_topic, claim.lane, claim.sink_id)
        if marker is None:
            progress.check_kept(self.client, self.progress_topic.name)
        decision = decide(marker, claim)
        if isinstance(decision, Refusal):
            raise ClaimRefused(decision.reason)
        if isinstance(decision, Duplicate):
            found = _digest_of(reader, batches)
            refusal = check(claim, decision.digest, found)
            if refusal is not None:
                raise ClaimRefused(refusal.reason)
            logger.info("lane %d of sink %s: batch %d was there", claim.lane, claim.sink_id, claim.batch_id)
            return LaneOutcome(claim.lane, True, found)
        transaction = _Transaction(producer, claim, self.transaction_timeout_ms)
        with transaction.aborted_on_error():
            digest = transaction.produce(reader, batches)
            following = advance(marker, claim, digest)
            transaction.mark(self.progress_topic.name, progress.encode(following))
            transaction.commit()
        return LaneOutcome(claim.lane, False, digest)

    def _fence(self, claim: Claim) -> Producer:
        """A producer that alone may write this lane from now on; what an earlier one left open is aborted."""
        settings = _DEFAULTS | self.client.for_librdkafka()
        named = {"transactional.id": f"{claim.sink_id}-{claim.lane}", "partitioner": PARTITIONER, "log_level": 0}
        try:
            # A setting that librdkafka does not take is the user's mistake, too.
            producer = Producer(settings | named)
            # librdkafka looks for the coordinator while it is between two connections, and then waits for half a
            # second. The first answer ends the one connection; the second has come over the other.
            for _ in range(2):
                producer.list_topics(self.progress_topic.name, self.client.api_timeout_ms / 1000)
            producer.init_transactions(self.client.api_timeout_ms / 1000)
        except KafkaException as error:
            raise LaneFailed(f"{_name(claim)} cannot be claimed: {_text(error)}") from None
        return producer


class _Transaction:
    """The rows and the marker of one lane, in one commit."""

    def __init__(self, producer: Producer, claim: Claim, timeout_ms: int) -> None:
        self._producer = producer
        self._claim = claim
        self._timeout_ms = timeout_ms
        self._began = time.monotonic()
        self._is_committing = False

    @contextlib.contextmanager
    def aborted_on_error(self) -> Iterator[None]:
        """Begins, and takes back what an error leaves, so that consumers need not wait for the timeout.

        A commit that was asked for is left alone, unless it is known to have failed.
        """
        self._producer.begin_transaction()
        try:
            yield
        except KafkaException as error:
            if not self._is_committing or error.args[0].txn_requires_abort():
                self._abort()
            raise self._failure(error) from None
        except BaseException:
            self._abort()
            raise

    def produce(self, reader: RowReader, batches: Iterable[Any]) -> Digest:
        """Hands all rows to the producer, and waits where its queue is full."""
        running = RunningDigest()
        produce = self._producer.produce
        for batch in batches:
            rows = reader.rows(batch)
            running.add(rows)
            for record in rows.records():
                while True:
                    try:
                        produce(*record)
                        break
                    except BufferError:
                        self._make_room()
        return running.value

    def mark(self, topic: str, marker: bytes) -> None:
        claim = self._claim
        key = progress.key_of(claim.sink_id, claim.lane)
        while True:
            try:
                self._producer.produce(topic, marker, key, claim.lane)
                return
            except BufferError:
                self._make_room()

    def commit(self) -> None:
        self._is_committing = True
        self._producer.commit_transaction(max(self._left_seconds(), 1.0))

    def _abort(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(ABORT_SECONDS_MAX)

    def _make_room(self) -> None:
        if self._left_seconds() <= 0:
            raise self._too_long()
        self._producer.poll(0.01)

    def _left_seconds(self) -> float:
        return self._began + self._timeout_ms / 1000 - time.monotonic()

    def _failure(self, error: KafkaException) -> LaneFailed:
        if self._left_seconds() <= 0:
            return self._too_long()
        name = _name(self._claim)
        reason: KafkaError = error.args[0]
        if reason.code() in _FENCED:
            return LaneFailed(f"{name} was taken over by a later attempt, which writes it: nothing of this one stays")
        return LaneFailed(
            f"{name}: batch {self._claim.batch_id} could not be committed, or nobody knows: {_text(error)}. It is "
            "written by the next attempt if it was not"
        )

    def _too_long(self) -> LaneFailed:
        return LaneFailed(
            f"{_name(self._claim)}: batch {self._claim.batch_id} took longer than its transaction may, "
            f"{self._timeout_ms} ms: take fewer rows at a time (maxOffsetsPerTrigger), use more lanes, or raise option "
            "transactionTimeout"
        )


def _digest_of(reader: RowReader, batches: Iterable[Any]) -> Digest:
    running = RunningDigest()
    for batch in batches:
        running.add(reader.rows(batch))
    return running.value


def _name(claim: Claim) -> str:
    return f"lane {claim.lane} of sink {claim.sink_id!r}"


def _text(error: KafkaException) -> str:
    reason: KafkaError = error.args[0]
    return f"{reason.str()} ({reason.name()})"
