"""One attempt to write one lane of one batch: fence, read the marker, decide, and then commit the rows and the new
marker together.

The guarantee is the order of these steps; the model in tests/spark/lanes finds each way to weaken it. If it is unknown
whether a commit happened, the attempt raises and never guesses: the next attempt reads the marker.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semel.client import LogClient, LogError, Topic, TopicPartition
from semel.client.arrow.encoding import Columns, column_of, encoded
from semel.client.arrow.partitioner import Turns
from semel.client.errors import Fenced
from semel.client.settings import ClientSettings
from semel.client.transaction import TookTooLong, Transaction
from semel.spark.claims import BatchRefused
from semel.spark.lanes import progress
from semel.spark.lanes.digest import RunningDigest
from semel.spark.lanes.protocol import (
    Digest,
    Duplicate,
    LaneClaim,
    Marker,
    Refusal,
    advance,
    check,
    decide,
    fence_of,
    misfit,
)
from semel.spark.lanes.rows import RowReader, RowsRefused, placed, topics_of

logger = logging.getLogger(__name__)


class LaneFailed(LogError):
    """The lane could not be written, or it is unknown whether it was written. The next attempt finds out."""


@dataclass(frozen=True)
class LaneOutcome:
    """The outcome of one attempt."""

    lane: int
    was_duplicate: bool
    digest: Digest


@dataclass(frozen=True)
class LaneWriter:
    """Writes lanes. It can be pickled; the task makes the connections."""

    client: ClientSettings
    progress_topic: Topic
    topic: str | None
    transaction_timeout_ms: int

    def write(self, claim: LaneClaim, batches: Iterable[Any]) -> LaneOutcome:
        """Writes the lane's rows, or finds that they are in the log already."""
        reader = RowReader(self.topic, claim.lane)
        with LogClient(self.client) as client:
            claim = replace(claim, topic_id=self._topic_id(client, claim))
            self._look(client, claim)
            transaction = self._fence(client, claim, fence_of(claim))
            marker = progress.read_marker(client, self.progress_topic, claim.lane, claim.sink_id)
            decision = decide(marker, claim)
            if isinstance(decision, Refusal):
                raise BatchRefused(decision.reason)
            if isinstance(decision, Duplicate):
                digest = _digest_of(reader, batches)
                refusal = check(claim, decision.digest, digest)
                if refusal is not None:
                    raise BatchRefused(refusal.reason)
                logger.info("lane %d of sink %s: batch %d was there", claim.lane, claim.sink_id, claim.batch_id)
                return LaneOutcome(claim.lane, True, digest)
            with self._aborted_on_error(transaction, claim):
                rows = _Rows(transaction, self.client.payload_bytes_max)
                digest = rows.write(reader, batches)
                where = TopicPartition(self.progress_topic.name, claim.lane)
                key = progress.key_of(claim.sink_id, claim.lane)
                rows.mark(where, key, progress.encode(advance(marker, claim, digest)))
                self._look_again(client, claim, marker, transaction.last_offset(where))
                transaction.commit()
        return LaneOutcome(claim.lane, False, digest)

    def _topic_id(self, client: LogClient, claim: LaneClaim) -> str | None:
        """The id of the topic, if all rows go into one. Brokers before Kafka 2.8 have no ids."""
        if self.topic is None:
            return None
        try:
            topic = client.topics([self.topic], to_write=True).get(self.topic)
        except LogError as error:
            raise LaneFailed(f"{_name(claim)} cannot be claimed: {error}") from None
        return str(topic.id) if topic is not None and topic.id.int else None

    def _look(self, client: LogClient, claim: LaneClaim) -> None:
        """Refuses, before the fence, a claim that every later marker would refuse, too: the fence would abort the batch
        of the lane's owner."""
        try:
            marker = progress.peek_marker(client, self.progress_topic, claim.lane, claim.sink_id)
        except progress.ProgressRefused:
            raise
        except LogError as error:
            raise LaneFailed(f"{_name(claim)} cannot be claimed: {error}") from None
        refusal = None if marker is None else misfit(marker, claim)
        if refusal is not None:
            raise BatchRefused(refusal.reason)

    def _look_again(self, client: LogClient, claim: LaneClaim, believed: Marker | None, offset: int) -> None:
        """Checks, before the commit, that the marker on which the decision was based is the last one below the new one.
        A broker that is cut off from its cluster may show an older marker; it cannot accept the new one, because that
        waits for all replicas."""
        last = progress.marker_below(client, self.progress_topic, claim.lane, claim.sink_id, offset)
        if last != believed:
            shown = "no marker" if believed is None else f"the marker of batch {believed.newest.batch_id}"
            raise progress.ProgressRefused(
                f"it was shown {shown} by a broker that does not lead {self.progress_topic.name!r} any more"
            )

    def _fence(self, client: LogClient, claim: LaneClaim, transactional_id: str) -> Transaction:
        """From now on only this attempt can write the lane; a transaction that an earlier one left open is aborted."""
        try:
            return Transaction(client, transactional_id, self.transaction_timeout_ms)
        except LogError as error:
            raise LaneFailed(f"{_name(claim)} cannot be claimed: {error}") from None

    @contextlib.contextmanager
    def _aborted_on_error(self, transaction: Transaction, claim: LaneClaim) -> Iterator[None]:
        """Aborts the transaction on an error, so that consumers need not wait for its timeout."""
        try:
            yield
        except BaseException as error:
            transaction.abort()
            if isinstance(error, RowsRefused) or not isinstance(error, LogError):
                raise
            raise LaneFailed(f"{_name(claim)}: batch {claim.batch_id} {self._failure(error, transaction)}") from None

    def _failure(self, error: LogError, transaction: Transaction) -> str:
        if transaction.is_committing:
            return f"was to be committed, and nobody knows whether it was: {error}. The next attempt finds out"
        if isinstance(error, Fenced):
            return "was taken over by a later attempt, which writes it: no row of this attempt stays"
        if isinstance(error, TookTooLong):
            return (
                f"took longer than its transaction may, {self.transaction_timeout_ms} ms: take fewer rows at a time "
                f"(maxOffsetsPerTrigger), use more lanes, or raise option transactionTimeout ({error})"
            )
        return f"could not be written, and no row of this attempt stays: {error}"


class _Rows:
    """Writes the rows and the marker of one lane into one transaction."""

    def __init__(self, transaction: Transaction, payload_bytes_max: int) -> None:
        self._transaction = transaction
        self._payload_bytes_max = payload_bytes_max
        self._turns = Turns()

    def write(self, reader: RowReader, batches: Iterable[Any]) -> Digest:
        """Writes all rows of the lane."""
        running = RunningDigest()
        for batch in batches:
            rows = reader.rows(batch)
            running.add(rows)
            counts = {topic: self._transaction.partition_count(topic) for topic in topics_of(rows)}
            parts = placed(rows, counts, self._turns, _now_ms())
            self._write([(TopicPartition(topic, partition), columns) for topic, partition, columns in parts])
        return running.value

    def mark(self, where: TopicPartition, key: bytes, marker: bytes) -> None:
        """Writes the marker, which commits or aborts with the rows."""
        columns = Columns(column_of(marker), column_of(key), np.array([_now_ms()]))
        self._write([(where, columns)])

    def _write(self, parts: list[tuple[TopicPartition, Columns]]) -> None:
        self._transaction.join(where for where, _ in parts)
        for where, columns in parts:
            for records in encoded(columns, self._payload_bytes_max):
                self._transaction.write(where, records)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _digest_of(reader: RowReader, batches: Iterable[Any]) -> Digest:
    running = RunningDigest()
    for batch in batches:
        running.add(reader.rows(batch))
    return running.value


def _name(claim: LaneClaim) -> str:
    return f"lane {claim.lane} of sink {claim.sink_id!r}"
