"""Under which transactional id a lane is written: one of its own, and how a sink that began without goes over to it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from asking import Asker
from semel.client import from_options
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneWriter
from semel.spark.lanes.protocol import Digest, LaneClaim, advance
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
    """A producer of that name, in an open transaction: a worker of the user's, or an older version of the sink."""
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


def written_by_an_older_version(billing: Any, batch_id: int, value: str, *, with_marker: bool = True) -> None:
    """The rows and the marker of a batch, in the transaction that is open."""
    billing.produce("payments", value.encode(), partition=0)
    digest = Digest(1, 17)
    marker = advance(None, claim(batch_id), digest)
    if with_marker:
        older = progress.encode(marker).replace(b'"format":3', b'"format":1')
        assert b'"format":1' in older
        billing.produce("progress", older, progress.key_of("billing", 1), partition=1)
    assert billing.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize("with_marker", [True, False])
def test_what_an_older_version_left_open_is_fenced_and_written_once(
    broker: FaultyBroker, lane: LaneWriter, billing: Any, with_marker: bool
) -> None:
    written_by_an_older_version(billing, 0, "row 0")
    billing.commit_transaction(SECONDS_MAX)
    billing.begin_transaction()
    written_by_an_older_version(billing, 1, "row 1", with_marker=with_marker)
    assert not lane.write(claim(1), rows("row 1")).was_duplicate
    with pytest.raises(KafkaException):
        billing.commit_transaction(SECONDS_MAX)
    assert stored(broker) == ["row 0", "row 1"]


def test_a_first_batch_that_an_older_version_left_open_is_written_once(
    broker: FaultyBroker, lane: LaneWriter, billing: Any
) -> None:
    written_by_an_older_version(billing, 0, "row 0")
    assert not lane.write(claim(0), rows("row 0")).was_duplicate
    with pytest.raises(KafkaException):
        billing.commit_transaction(SECONDS_MAX)
    assert stored(broker) == ["row 0"]


def test_a_lane_that_went_over_leaves_its_older_id_alone(broker: FaultyBroker, lane: LaneWriter, billing: Any) -> None:
    written_by_an_older_version(billing, 0, "row 0")
    billing.commit_transaction(SECONDS_MAX)
    assert not lane.write(claim(1), rows("row 1")).was_duplicate
    again: Any = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing-1", "log_level": 0})
    again.init_transactions(SECONDS_MAX)
    again.begin_transaction()
    again.produce("invoices", b"invoice")
    assert not lane.write(claim(2), rows("row 2")).was_duplicate
    again.commit_transaction(SECONDS_MAX)
    assert stored(broker) == ["row 0", "row 1", "row 2"]
