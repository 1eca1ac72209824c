"""A producer without a mind of its own, in a process of its own: it sends batches of one size, so many requests at
once, and differs with a producer id and without in nothing but the id and the numbers in the batches. A library's
idempotent producer sends other requests at other times than its plain one, so the two cannot be compared through it.
Nothing here may know which broker it talks to."""

from __future__ import annotations

import time
from array import array
from collections import deque
from itertools import count, cycle
from typing import Final

from bench.clients import Barrier, LoadFailed
from semel.client.connection import Connection
from semel.client.settings import from_options
from semel.core.batch import HEADER_BYTES
from semel.wire.produce_client import PartitionBatch
from semel.wire.records import Record, encode_batch, sealed
from semel.wire.versions import INIT_PRODUCER_ID

TIMEOUT_MS: Final = 30_000


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
    producer_id, producer_epoch = _new_producer(connection) if idempotent else (-1, -1)
    now_ms = int(time.time() * 1000)
    # Encoded once, so that Python is not the limit.
    records = encode_batch([Record(b"x" * value_bytes, timestamp_ms=now_ms)] * messages_per_batch)[HEADER_BYTES:]
    turns = cycle(range(partitions))
    sequences = [count(0, messages_per_batch) for _ in range(partitions)]

    def next_batch() -> PartitionBatch:
        partition = next(turns)
        batch = sealed(
            records,
            record_count=messages_per_batch,
            attributes=0,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=next(sequences[partition]) if idempotent else -1,
        )
        return PartitionBatch(topic, partition, batch)

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


def _new_producer(connection: Connection) -> tuple[int, int]:
    answer = connection.ask(
        INIT_PRODUCER_ID,
        transactional_id=None,
        transaction_timeout=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    if answer.error_code:
        raise LoadFailed(f"no producer id: error {answer.error_code}")
    return answer.producer_id, answer.producer_epoch
