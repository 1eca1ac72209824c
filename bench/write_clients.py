"""`python -m bench.write_clients`: a lane of the sink beside librdkafka's producer, from Arrow into the log.

What ADR 0021 rests on. Both write the same record batches of Arrow, with keys of 16 bytes, in one transaction into a
topic of four partitions of the same semel, in one process, by turns. The lane computes its digest and writes its marker
besides. What counts is CPU time for a million rows: of all threads of the client, and of the broker."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median
from typing import Any, Final

import pyarrow as pa

from bench import clients
from bench.peers.semel import Semel
from semel.client import from_options
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneWriter
from semel.spark.lanes.protocol import LaneClaim

PARTITIONS: Final = 4
ROWS: Final = 1_000_000
VALUE_BYTES: Final = (100, 1000)
ROUNDS: Final = 5
ROWS_PER_BATCH: Final = 10_000
KEYS: Final = 1_000
TIMEOUT_MS: Final = 300_000
SINK: Final = "bench"

Write = Callable[[str, str, Sequence[Any]], None]

_batch_ids = count()


def own(bootstrap: str, topic: str, batches: Sequence[Any]) -> None:
    """As a task of the sink does it."""
    settings = from_options({"kafka.bootstrap.servers": bootstrap})
    markers = progress.prepare(settings, f"{SINK}-progress", 1, may_grow=False)
    writer = LaneWriter(settings, markers, topic, TIMEOUT_MS)
    writer.write(LaneClaim(SINK, 0, 1, "query", next(_batch_ids)), batches)


def by_librdkafka(bootstrap: str, topic: str, batches: Sequence[Any]) -> None:
    """With confluent-kafka, and neither digest nor marker."""
    from confluent_kafka import Producer

    sizes = {"linger.ms": 20, "batch.size": 1_000_000, "queue.buffering.max.messages": 100_000}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "librdkafka", "log_level": 0, **sizes}
        | {"transaction.timeout.ms": TIMEOUT_MS, "partitioner": "murmur2_random"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for batch in batches:
        for value, key in zip(batch["value"].to_pylist(), batch["key"].to_pylist(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
    producer.commit_transaction()


WRITERS: Final[dict[str, Write]] = {"a lane of the sink": own, "confluent-kafka": by_librdkafka}


def made(value_bytes: int, rows: int) -> list[Any]:
    values = pa.array([os.urandom(value_bytes) for _ in range(ROWS_PER_BATCH)])
    keys = pa.array([b"key-%012d" % (number % KEYS) for number in range(ROWS_PER_BATCH)])
    return [pa.record_batch({"key": keys, "value": values})] * (rows // ROWS_PER_BATCH)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.write_clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    with Semel(durability="os") as broker:
        for value_bytes in VALUE_BYTES:
            topic = f"values-{value_bytes}"
            clients.create_topic(broker, topic, PARTITIONS)
            batches = made(value_bytes, arguments.rows)
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in WRITERS}
            for _ in range(arguments.rounds):
                for name, write in WRITERS.items():
                    began, brokers = time.process_time(), broker.cpu_seconds()
                    write(broker.bootstrap, topic, batches)
                    seconds[name].append((time.process_time() - began, broker.cpu_seconds() - brokers))
            for name, took in seconds.items():
                client, server = (median(part) * 1_000_000 / arguments.rows for part in zip(*took, strict=True))
                print(f"{value_bytes:>5} B  {name:<20} {client:6.2f} s of CPU, the broker {server:5.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
