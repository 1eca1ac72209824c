"""A producer without a mind of its own, in a process of its own: it sends batches of one size, so many requests at
once, and differs with a producer id and without in nothing but the id and the numbers in the batches. A library's
idempotent producer sends other requests at other times than its plain one, so the two cannot be compared through it.
Nor does a library send again what was acknowledged, as a `Window` does. Nothing here may know which broker it talks
to."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from itertools import count, cycle
from typing import Final, TypeVar

from bench.clients import Barrier, LoadFailed
from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.connection import Connection, ConnectionLost
from semel.client.patience import Patience
from semel.client.places import TopicPartition
from semel.client.settings import from_options
from semel.wire import kafka
from semel.wire.batch import HEADER_BYTES
from semel.wire.produce_client import PartitionBatch
from semel.wire.records import Record, encode_batch, sealed

T = TypeVar("T")
TIMEOUT_MS: Final = 30_000
WINDOW_BATCHES: Final = 5


def send(
    bootstrap: str,
    topic: str,
    partitions: int,
    value_bytes: int,
    messages_per_batch: int,
    warm: int,
    requests: int,
    at_once: int,
    idempotent: bool,
    barrier: Barrier,
) -> array[float]:
    """Send so many requests, each with one batch, to the partitions in turn, `at_once` of them unanswered at any time.
    Returns how long each took, in microseconds."""
    settings = from_options({"kafka.bootstrap.servers": bootstrap})
    connection = Connection(settings.bootstrap[0], settings)
    producer = _new_producer(connection) if idempotent else (-1, -1)
    now_ms = int(time.time() * 1000)
    # Encoded once, so that Python is not the limit.
    records = encode_batch([Record(b"x" * value_bytes, timestamp_ms=now_ms)] * messages_per_batch)[HEADER_BYTES:]
    turns = cycle(range(partitions))
    sequences = [count(0, messages_per_batch) for _ in range(partitions)]

    def next_batch() -> PartitionBatch:
        partition = next(turns)
        sequence = next(sequences[partition]) if idempotent else -1
        return PartitionBatch(topic, partition, _batch(records, messages_per_batch, now_ms, producer, sequence))

    def exchange(requests: int) -> array[float]:
        took = array("d")
        began: deque[float] = deque()
        for number in range(requests + at_once):
            if number >= at_once:
                (answer,) = connection.receive_produce()
                if answer.error_code:
                    raise LoadFailed(f"not acknowledged: error {answer.error_code} {answer.message or ''}")
                took.append((time.perf_counter() - began.popleft()) * 1e6)
            if number < requests:
                batch = next_batch()
                began.append(time.perf_counter())
                connection.send_produce([batch], None, TIMEOUT_MS)
        return took

    try:
        exchange(warm)
        barrier()
        return exchange(requests)
    finally:
        connection.close()


class Window:
    """A producer that sends as many batches to partition 0 as a broker remembers, and sends them again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = from_options({"kafka.bootstrap.servers": bootstrap})
        self._where = TopicPartition(topic, 0)
        with Cluster(self._settings) as cluster:
            producer = self._patiently(cluster, _new_producer)
        now_ms = int(time.time() * 1000)
        records = encode_batch([Record(b"x", timestamp_ms=now_ms)])[HEADER_BYTES:]
        self._batches = [
            PartitionBatch(topic, 0, _batch(records, 1, now_ms, producer, sequence))
            for sequence in range(WINDOW_BATCHES)
        ]

    def offsets(self) -> list[int]:
        """Send each batch when the one before it is answered; returns the offsets that the leader answers with."""
        with Cluster(self._settings) as cluster:
            return [self._offset(cluster, batch) for batch in self._batches]

    def _offset(self, cluster: Cluster, batch: PartitionBatch) -> int:
        def exchange(connection: Connection) -> int:
            connection.send_produce([batch], None, TIMEOUT_MS)
            (answer,) = connection.receive_produce()
            cluster.check(self._where, answer.error_code, "Write")
            return answer.base_offset

        return self._patiently(cluster, exchange)

    def _patiently(self, cluster: Cluster, exchange: Callable[[Connection], T]) -> T:
        """The result of the exchange with the leader."""

        def attempt() -> T:
            leader = cluster.leader_of(self._where)
            try:
                connection = cluster.lease(leader)
                outcome = exchange(connection)
            except ConnectionLost:
                cluster.forget(self._where.topic)
                raise
            cluster.give_back(leader, connection)
            return outcome

        return Patience(self._settings).patiently(attempt)


def _batch(records: bytes, messages: int, now_ms: int, producer: tuple[int, int], sequence: int) -> bytes:
    producer_id, producer_epoch = producer
    return sealed(
        records,
        record_count=messages,
        attributes=0,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


def _new_producer(connection: Connection) -> tuple[int, int]:
    answer = connection.ask(
        kafka.init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
    )
    codes.check_coordinator("a producer id", answer.error_code, right="IdempotentWrite on the cluster")
    return answer.producer_id, answer.producer_epoch
