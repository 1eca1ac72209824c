"""What looking at a lane's marker promises to those who have fenced nobody: they are not held up by a dead writer."""

from __future__ import annotations

from confluent_kafka import Producer
from log_under_test import LogUnderTest

from semel.client import LogClient, from_options
from semel.spark.lanes import progress
from semel.spark.lanes.protocol import Digest, Marker, Order, Written

SECONDS_MAX = 120


def marker(batch_id: int) -> Marker:
    return Marker("enriched", 0, 1, Order.CONSECUTIVE, (Written("query", batch_id, Digest(10, 17)),))


def test_what_a_dead_writer_left_open_does_not_hold_up_its_successor(log: LogUnderTest) -> None:
    name = log.make()
    writer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": log.new_name("lane")})
    writer.init_transactions(SECONDS_MAX)
    for batch_id in (0, 1):
        writer.begin_transaction()
        writer.produce(name, progress.encode(marker(batch_id)), partition=0)
        assert writer.flush(SECONDS_MAX) == 0
        if batch_id == 0:
            writer.commit_transaction(SECONDS_MAX)
    # Batch 1 is written and never committed; whoever waited for that would wait until the transaction is too old.
    options = {"kafka.bootstrap.servers": log.bootstrap, "kafka.default.api.timeout.ms": "20000"}
    with LogClient(from_options(options)) as client:
        topic = client.topics([name])[name]
        assert progress.peek_marker(client, topic, 0, "enriched") == marker(0)
