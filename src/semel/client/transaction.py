"""One transaction of a producer: it claims the id, writes batches whose records are encoded already, and commits or
aborts.

It uses the first version of Kafka's transactions, in which the client announces partitions: every broker from 2.8 on
knows it. A claim raises the epoch, so the previous holder of the transactional id is fenced, and sequence numbers begin
at zero. A batch is sent with the same numbers until the broker acknowledges it, so no batch can be stored twice. Once a
commit was requested, this must never abort: the commit may have happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from semel.client import codes
from semel.client.client import LogClient
from semel.client.cluster import GROUP, TRANSACTION
from semel.client.connection import ConnectionLost
from semel.client.errors import Fenced, LogError, RefusedByBroker, UnknownTopic
from semel.client.groups import Committed, by_topic, check
from semel.client.patience import MENDABLE, Concluding, Moved, Patience
from semel.client.places import TopicPartition
from semel.client.sender import Sender
from semel.client.settings import Address
from semel.wire import kafka
from semel.wire.batch import TRANSACTIONAL_BIT
from semel.wire.errors import ErrorCode
from semel.wire.message import Request, Response
from semel.wire.primitives import Buffer
from semel.wire.produce_client import PartitionBatch
from semel.wire.records import CODECS, compressed, sealed

ABORT_MS_MAX: Final = 5_000

_COMMIT_MS_MIN: Final = 1_000
# Kafka stores the offsets of one request as one batch, which may have a megabyte; metadata may have 4 KB each.
_OFFSETS_PER_REQUEST: Final = 100
_SEQUENCE_MASK: Final = (1 << 31) - 1
_NO_CLAIM: Final = (-1, -1)


@dataclass(frozen=True)
class Records:
    """The payload of a batch, with offsets that count from 0, and the values for its header."""

    count: int
    payload: Buffer
    base_timestamp_ms: int
    max_timestamp_ms: int
    # The number of the codec with which the payload is already compressed; None if it is to be compressed as the
    # client's settings say.
    codec: int | None = None


R = TypeVar("R", bound=Response)


class TookTooLong(LogError):
    """The transaction has exceeded its timeout."""


class Transaction:
    """A transactional id, which this claims, and one transaction of it. Threads must not share it."""

    def __init__(self, client: LogClient, transactional_id: str, timeout_ms: int) -> None:
        self._client = client
        self._cluster = client.cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinator: Address | None = None
        self._claim = client.patiently(lambda: self._claim_id(_NO_CLAIM))
        self._partition_counts: dict[str, int] = {}
        # For each partition that takes part, the number of its next record.
        self._sequences: dict[TopicPartition, int] = {}
        self._waiting: list[PartitionBatch] = []
        self._waiting_bytes = 0
        self._senders: dict[Address, Sender] = {}
        self._last_offsets: dict[TopicPartition, int] = {}
        # The partitions that were announced first, which begins the transaction, and when its time is over.
        self._opened_by: Sequence[kafka.add_partitions_to_txn.AddPartitionsToTxnTopic] = ()
        self._ends: float | None = None
        self._is_fenced = False
        self.is_committing = False
        # The last error after which a request was repeated.
        self._trouble = ""
        delivery_ms = client.settings.delivery_timeout_ms
        self._patience = (
            Patience(client.settings, timeout_ms, "the time of a transaction")
            if delivery_ms is None
            else Patience(client.settings, delivery_ms, "kafka.delivery.timeout.ms")
        )

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic had when this was first called."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._client.topic_to_write(topic).partitions
        return count

    def join(self, places: Iterable[TopicPartition]) -> None:
        """Add these partitions to the transaction. This must come before the first batch of each."""
        new = [where for where in dict.fromkeys(places) if where not in self._sequences]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for where in new:
            topics.setdefault(where.topic, []).append(where.partition)
        topic = kafka.add_partitions_to_txn.AddPartitionsToTxnTopic
        announced = [topic(name=name, partitions=partitions) for name, partitions in topics.items()]
        if self._ends is None:
            self._opened_by = announced
            self._ends = time.monotonic() + self._timeout_ms / 1000
        self._patience.progress()
        self._patiently(lambda: self._announce(announced), self._patience)
        self._sequences.update(dict.fromkeys(new, 0))

    def write(self, where: TopicPartition, records: Records) -> None:
        """Add the next batch of a partition. It is sent when enough batches wait for a request, or with the commit."""
        settings = self._client.settings
        codec, payload = records.codec, records.payload
        if codec is None:
            codec = CODECS.index(settings.compression)
            payload = compressed(codec, payload, settings.compression_level) if codec else payload
        sequence = self._sequences[where]
        producer_id, epoch = self._claim
        batch = sealed(
            payload,
            record_count=records.count,
            attributes=codec | TRANSACTIONAL_BIT,
            base_timestamp_ms=records.base_timestamp_ms,
            max_timestamp_ms=records.max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self._sequences[where] = (sequence + records.count) & _SEQUENCE_MASK
        self._waiting.append(PartitionBatch(where.topic, where.partition, batch))
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= settings.request_bytes_max:
            self._send(wait_for_all=False)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Add the offsets of a group without members to the transaction: they are committed with the records."""
        self._patience.progress()
        self._patiently(lambda: self._announce_group(group), self._patience)
        every = list(offsets.items())
        for at in range(0, len(every), _OFFSETS_PER_REQUEST):
            some = dict(every[at : at + _OFFSETS_PER_REQUEST])
            self._patience.progress()
            self._patiently(partial(self._send_offsets, group, some), self._patience)

    def last_offset(self, where: TopicPartition) -> int:
        """Where the last batch of a partition begins, after all replicas have acknowledged everything written so far.
        So the broker that gave it this offset is the leader, and everything that was committed before has lower
        offsets.
        """
        self._send(wait_for_all=True)
        for sender in self._senders.values():
            self._last_offsets |= sender.last_offsets
        return self._last_offsets[where]

    def commit(self) -> None:
        """Make everything that was written visible. After an error with `is_committing` true it may be visible."""
        self._send(wait_for_all=True)
        while self._senders:
            address, sender = self._senders.popitem()
            self._cluster.give_back(address, sender.connection)
        left_ms = max(int(self._left_seconds() * 1000), _COMMIT_MS_MIN)
        self.is_committing = True
        self._patiently(self._end, Patience(self._client.settings, left_ms, "what is left of its time"))

    def abort(self) -> None:
        """Abort the open transaction, unless a commit was requested.

        An EndTxn would leave the epoch as it is, and batches still on their way to a leader would be written after it.
        Claiming the own id again aborts as well, and raises the epoch. But Kafka's coordinator would then abort a
        successor's transaction too. So the client first announces the same partitions again: the coordinator refuses
        that if the id has a successor.
        """
        while self._senders:
            self._senders.popitem()[1].connection.close()
        if self._ends is None or self._is_fenced or self.is_committing:
            return
        patience = Patience(self._client.settings, ABORT_MS_MAX, "the abort")
        # If the abort fails now, the coordinator aborts the transaction when its time is over.
        with suppress(LogError):
            self._patiently(lambda: self._announce(self._opened_by), patience)
            self._client.patiently(self._abort_by_claiming, patience)

    # -- the coordinator

    def _claim_id(self, claim: tuple[int, int]) -> tuple[int, int]:
        """Claim the id, going on from `claim`; returns the new producer id and epoch."""
        producer_id, epoch = claim
        answer = self._ask_coordinator(
            kafka.init_producer_id.InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise RefusedByBroker(
                f"the broker allows no transaction of {self._timeout_ms} ms: its transaction.max.timeout.ms is lower"
            )
        self._check(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def _abort_by_claiming(self) -> None:
        # Kafka answers that it is still ending a transaction: this one.
        with suppress(Concluding):
            self._claim_id(self._claim)

    def _announce(self, topics: Sequence[kafka.add_partitions_to_txn.AddPartitionsToTxnTopic]) -> None:
        self._check_time()
        producer_id, epoch = self._claim
        answer = self._ask_coordinator(
            kafka.add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        )
        of_partitions = [
            (TopicPartition(topic.name, one.partition_index), one.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
        # If one partition cannot take part, the coordinator adds none of the others.
        for where, code in of_partitions:
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"there is no partition {where.partition} of topic {where.topic!r}")
            if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                self._check(code, f"partition {where}", right=f"Write on topic {where.topic!r}")
        if not of_partitions or any(code for _, code in of_partitions):
            raise Moved(f"transactional id {self._id!r}: its coordinator did not take in all partitions")

    def _announce_group(self, group: str) -> None:
        self._check_time()
        producer_id, epoch = self._claim
        answer = self._ask_coordinator(
            kafka.add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, group_id=group
            )
        )
        self._check(answer.error_code, f"group {group!r}", right=f"Read on group {group!r}")

    def _send_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._check_time()
        producer_id, epoch = self._claim
        api = kafka.txn_offset_commit
        topics = [
            api.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    api.TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=one.offset, committed_metadata=one.note
                    )
                    for number, one in of_topic.items()
                ],
            )
            for name, of_topic in by_topic(offsets).items()
        ]
        answer = self._cluster.ask(
            self._cluster.coordinator(group, GROUP),
            api.TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=topics,
            ),
        )
        for topic in answer.topics:
            for one in topic.partitions:
                check(group, one.error_code, "Read")

    def _end(self) -> None:
        producer_id, epoch = self._claim
        answer = self._ask_coordinator(
            kafka.end_txn.EndTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True
            )
        )
        self._check(answer.error_code)

    def _ask_coordinator(self, request: Request[R]) -> R:
        if self._coordinator is None:
            self._coordinator = self._cluster.coordinator(self._id, TRANSACTION)
        try:
            return self._cluster.ask(self._coordinator, request)
        except ConnectionLost:
            self._coordinator = None
            raise

    def _check(self, code: int, what: str | None = None, *, right: str | None = None) -> None:
        """Raise the error that a code of the coordinator means."""
        if code in codes.NOT_COORDINATED:
            self._coordinator = None
        own = f"transactional id {self._id!r}"
        codes.check_coordinator(what or own, code, right=right or f"Write on {own}")

    # -- the leaders

    def _send(self, *, wait_for_all: bool) -> None:
        """Send the waiting batches, repeatedly if necessary. At most as many requests stay under way as brokers
        remember batches.
        """

        def attempt() -> None:
            self._check_time()
            try:
                self._hand_over()
                for sender in self._senders.values():
                    sender.advance(wait_for_all=wait_for_all)
            except MENDABLE:
                self._take_back()
                raise

        self._patience.progress()
        self._patiently(attempt, self._patience)

    def _hand_over(self) -> None:
        """Give the waiting batches to the senders, one for each leader. If a leader cannot be reached, all batches go
        on waiting.
        """
        led: dict[Address, list[PartitionBatch]] = {}
        for batch in self._waiting:
            led.setdefault(self._cluster.leader_of(TopicPartition(batch.topic, batch.partition)), []).append(batch)
        for address in led:
            if address not in self._senders:
                self._senders[address] = Sender(self._cluster.lease(address), self._id, self._client.settings)
        for address, batches in led.items():
            self._senders[address].take(batches)
        self._waiting, self._waiting_bytes = [], 0

    def _take_back(self) -> None:
        """Take the unacknowledged batches back from all senders, in their order, and forget the leaders.

        From all senders, though only one connection was lost: two senders must never have one partition, and this is
        rare.
        """
        unanswered: list[PartitionBatch] = []
        while self._senders:
            sender = self._senders.popitem()[1]
            sender.connection.close()
            self._last_offsets |= sender.last_offsets
            unanswered += sender.unanswered()
        self._waiting = unanswered + self._waiting
        self._waiting_bytes = sum(len(batch.batch) for batch in self._waiting)
        for topic in {batch.topic for batch in self._waiting}:
            self._cluster.forget(topic)

    # -- time

    def _patiently(self, attempt: Callable[[], None], patience: Patience) -> None:
        def remembered() -> None:
            try:
                attempt()
            except MENDABLE as reason:
                self._trouble = f": {reason}"
                raise

        try:
            self._client.patiently(remembered, patience)
        except Fenced:
            self._is_fenced = True
            # The broker aborts a transaction that takes too long by fencing its producer.
            self._check_time()
            raise

    def _check_time(self) -> None:
        if self._left_seconds() <= 0:
            raise TookTooLong(
                f"transactional id {self._id!r}: its transaction may take {self._timeout_ms} ms{self._trouble}"
            )

    def _left_seconds(self) -> float:
        return self._timeout_ms / 1000 if self._ends is None else self._ends - time.monotonic()
