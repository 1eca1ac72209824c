"""Under which transactional id a lane is written, which no producer of the user has."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from asking import Asker
from semel.client import from_options
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneWriter
from semel.spark.lanes.protocol import LaneClaim
from semel.testing.broker import FaultyBroker

SECONDS_MAX = 60
TIMEOUT_MS = 60_000


def claim(batch_id: int) -> LaneClaim:
    return LaneClaim("billing", 1, 2, "query", batch_id)


def rows(*values: str) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": pa.array([value.encode() for value in values])})]


def stored(broker: FaultyBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.log("payments", committed_only=True)]


@pytest.fixture
def lane(broker: FaultyBroker, ask: Asker) -> LaneWriter:
    ask.create("payments")
    # Whoever waits for a transaction that nobody ends waits for so long.
    patience = {"kafka.retry.backoff.ms": "10", "kafka.default.api.timeout.ms": "15000"}
    client = from_options({"kafka.bootstrap.servers": broker.bootstrap, **patience})
    return LaneWriter(client, progress.prepare(client, "progress", 2, may_grow=False), "payments", TIMEOUT_MS)


@pytest.fixture
def billing(broker: FaultyBroker) -> Iterator[Producer]:
    """A producer of that name, in an open transaction: a worker of the user's."""
    producer: Any = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing-1", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    yield producer
    producer.purge()


def test_a_lane_fences_no_producer_of_the_user(broker: FaultyBroker, lane: LaneWriter, billing: Any) -> None:
    billing.produce("invoices", b"invoice")
    assert billing.flush(SECONDS_MAX) == 0
    for batch_id in (0, 1):
        assert not lane.write(claim(batch_id), rows(f"row {batch_id}")).was_duplicate
    billing.commit_transaction(SECONDS_MAX)
    assert stored(broker) == ["row 0", "row 1"]
