"""Where a lane's marker is looked for, and whose it may be: a batch that is in the log is never written again because
its marker was not seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StringType, StructField, StructType

from semel.client import LogClient, from_options
from semel.client.errors import LogError
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneWriter
from semel.spark.lanes.options import read_options
from semel.spark.lanes.progress import TAIL_OFFSETS, ProgressRefused
from semel.spark.lanes.protocol import Digest, LaneClaim, advance
from semel.spark.lanes.stream_writer import LaneStreamWriter
from semel.spark.lanes.writer import LaneBatchWriter, LaneMessage

if TYPE_CHECKING:
    from asking import Asker
    from semel.testing.broker import FaultyBroker

SECONDS_MAX = 60
CLAIM = LaneClaim("sink", 0, 2, "query", 0)


@pytest.fixture
def lane(broker: FaultyBroker, ask: Asker) -> LaneWriter:
    """Who waits here for a transaction that nobody ends does not wait for long."""
    ask.create("payments")
    patience = {"kafka.retry.backoff.ms": "10", "kafka.default.api.timeout.ms": "50"}
    client = from_options({"kafka.bootstrap.servers": broker.bootstrap, **patience})
    generous = from_options({"kafka.bootstrap.servers": broker.bootstrap})
    return LaneWriter(client, progress.prepare(generous, "progress", 2, may_grow=False), "payments", 60_000)


def rows(*values: bytes) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": pa.array(values)})]


def stored(broker: FaultyBroker) -> list[bytes | None]:
    return [record.value for record in broker.log("payments", committed_only=True)]


def begun(broker: FaultyBroker, name: str) -> Producer:
    """A producer of somebody else's, in a transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    return producer


def put(producer: Producer, *values: bytes, lane: int = 0) -> None:
    for value in values:
        producer.produce("progress", value, progress.key_of("sink", lane), partition=lane, on_delivery=_check)
    assert producer.flush(SECONDS_MAX) == 0


def _check(error: Any, _message: Any) -> None:
    assert error is None, error


@pytest.mark.parametrize("count", [1, TAIL_OFFSETS - 2, TAIL_OFFSETS, 17 * TAIL_OFFSETS])
def test_a_marker_is_found_behind_however_many_aborted_records(
    broker: FaultyBroker, lane: LaneWriter, count: int
) -> None:
    """Each attempt that fails leaves some, until the topic is compacted."""
    assert not lane.write(CLAIM, rows(b"one")).was_duplicate
    other = begun(broker, "other")
    put(other, *[b"aborted"] * count)
    other.abort_transaction(SECONDS_MAX)
    assert lane.write(CLAIM, rows(b"one")).was_duplicate
    assert stored(broker) == [b"one"]


@pytest.mark.parametrize("other", [replace(CLAIM, sink_id="other"), replace(CLAIM, lane=1)], ids=["sink", "lane"])
def test_a_marker_of_another_sink_or_of_another_lane_is_none_of_this_one(
    broker: FaultyBroker, lane: LaneWriter, other: LaneClaim
) -> None:
    """Two sinks that share a progress topic, and number their batches alike, would each take those of the other for
    its own, and leave them out."""
    foreign = begun(broker, "foreign")
    put(foreign, progress.encode(advance(None, other, Digest(1, 1))))
    foreign.commit_transaction(SECONDS_MAX)
    for batch_id in (0, 1):
        with pytest.raises(ProgressRefused, match=r"each sink needs a progress topic of its own"):
            lane.write(replace(CLAIM, batch_id=batch_id), rows(b"one"))
    assert stored(broker) == []


def test_a_marker_behind_the_open_transaction_of_somebody_else_is_waited_for(
    broker: FaultyBroker, lane: LaneWriter
) -> None:
    """It may be that of this very batch, which would then be written twice."""
    assert not lane.write(CLAIM, rows(b"one")).was_duplicate
    somebody = begun(broker, "somebody")
    put(somebody, b"open")
    marker = advance(None, replace(CLAIM, batch_id=1), Digest(1, 1))
    owner = begun(broker, "semel-lane-sink-0")
    put(owner, progress.encode(marker))
    owner.commit_transaction(SECONDS_MAX)
    with pytest.raises(LogError, match="a transaction that is not this lane's is open in progress-0"):
        lane.write(replace(CLAIM, batch_id=1), rows(b"two"))
    assert stored(broker) == [b"one"]
    somebody.abort_transaction(SECONDS_MAX)
    with LogClient(lane.client) as client:
        found = progress.read_marker(client, lane.progress_topic, 0, "sink")
    assert found == marker


def sink_options(broker: FaultyBroker, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "sinkId": "sink", "topic": "payments", "lanes": "3"}
    return read_options({**given, **more})


SCHEMA = StructType([StructField("value", StringType())])


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("named", [None, "markers"])
def test_each_lane_has_the_marker_of_a_batch_that_had_rows_for_one_lane_only(
    broker: FaultyBroker, ask: Asker, named: str | None, is_stream: bool
) -> None:
    """Else the next batch would find a gap in the other lanes, or a lane that never wrote."""
    ask.create("payments")
    more = {} if is_stream else {"queryId": "query", "batchId": "0"}
    options = sink_options(broker, **more, **({} if named is None else {"progressTopic": named}))
    claim = LaneClaim("sink", 1, None, "query", 0)
    writer = (LaneStreamWriter if is_stream else LaneBatchWriter)(options, SCHEMA, False)
    message = LaneMessage(claim, writer._writer.write(claim, rows(b"one")))
    if isinstance(writer, LaneStreamWriter):
        writer.commit([message, None], 0)
    else:
        writer.commit([message, None])
    with LogClient(options.client) as client:
        topics = client.topics(["semel-progress-sink", "markers"])
        assert list(topics) == [named or "semel-progress-sink"]
        [topic] = topics.values()
        markers = [progress.peek_marker(client, topic, lane, "sink") for lane in range(3)]
    assert [marker and [one.batch_id for one in marker.written] for marker in markers] == [[0]] * 3
    assert [marker and marker.newest.digest.rows for marker in markers] == [0, 1, 0]
