"""How far the page of pipelines says that each lane is, is what the lane's last committed marker says."""

from __future__ import annotations

import pytest

from asking import Asker
from semel.client.cluster import Cluster
from semel.spark.lanes.options import PROGRESS_PREFIX
from semel.spark.lanes.progress import encode
from semel.spark.lanes.protocol import Digest, LaneClaim, Marker, Order, Written, fence_of
from semel.testing.broker import FaultyBroker
from semel.ui.console import pipelines
from semel.ui.console.query import Query
from semel.wire.records import Record
from transacting import TransactionalProducer


def marker(lane: int, batch_id: int) -> Record:
    written = tuple(Written("query", batch, Digest(10 * batch, 1)) for batch in (batch_id - 1, batch_id))
    return Record(encode(Marker("payments", lane, 3, Order.CONSECUTIVE, written)), None, (), 5)


def test_each_lane_is_where_its_last_committed_marker_says(broker: FaultyBroker, ask: Asker, cluster: Cluster) -> None:
    name = f"{PROGRESS_PREFIX}payments"
    broker.create_topic(name, 4)
    broker.create_topic("payments")
    broker.seed(name, marker(0, 6), marker(0, 7), partition=0)
    broker.seed(name, marker(1, 7), partition=1)
    broker.seed(name, "no marker", partition=2)
    # A batch that was aborted, and one that is still being written, count for nothing.
    for is_ended in (True, False):
        writer = TransactionalProducer(ask, f"lane-{is_ended}")
        writer.claim()
        writer.add(name, partition=1)
        writer.send(name, (marker(1, 9).value or b"").decode(), partition=1)
        if is_ended:
            writer.end(committed=False)
    answer = pipelines.every_sink(cluster, Query({}))
    (sink,) = answer["sinks"]
    assert (answer["count"], sink["sink"], sink["lane_count"]) == (1, "payments", 4)
    first, second, third, fourth = sink["lanes"]
    assert (first["batch_id"], first["rows"], first["query_id"], first["at_ms"]) == (7, 70, "query", 5)
    assert (second["batch_id"], second["offset"]) == (7, 0)
    assert third["trouble"] == "the record at offset 0 is no marker"
    assert fourth["trouble"] == "it has written nothing yet"
    assert pipelines.every_sink(cluster, Query({"find": "nothing"}))["sinks"] == []
    assert pipelines.PROGRESS_PREFIX == PROGRESS_PREFIX


def test_each_attempt_to_write_a_batch_is_counted(broker: FaultyBroker, ask: Asker, cluster: Cluster) -> None:
    name = f"{PROGRESS_PREFIX}payments"
    broker.create_topic(name, 2)
    for lane, ends in ((0, [True]), (1, [True, False, None, True])):
        fence = TransactionalProducer(ask, fence_of(LaneClaim("payments", lane, 2, "query", 0)))
        for is_committed in ends:
            fence.claim()
            fence.add(name, partition=lane)
            fence.send(name, (marker(lane, 7).value or b"").decode(), partition=lane)
            # An attempt that was cut off leaves its transaction to the next one.
            if is_committed is not None:
                fence.end(committed=is_committed)
    (sink,) = pipelines.every_sink(cluster, Query({}))["sinks"]
    assert [(lane["attempts"], lane["writes_now"]) for lane in sink["lanes"]] == [(1, False), (4, False)]


@pytest.mark.parametrize(
    "written",
    [
        '{"sinkId":"s","order":"o","written":[{"queryId":"q","batchId":1e999,"rows":1}]}',
        "[" * 100_000,
    ],
    ids=["a number without an end", "no end of lists"],
)
def test_what_somebody_else_wrote_into_a_lane_hides_no_other(
    broker: FaultyBroker, cluster: Cluster, written: str
) -> None:
    name = f"{PROGRESS_PREFIX}payments"
    broker.create_topic(name, 2)
    broker.seed(name, written, partition=0)
    broker.seed(name, marker(1, 7), partition=1)
    (sink,) = pipelines.every_sink(cluster, Query({}))["sinks"]
    first, second = sink["lanes"]
    assert first["trouble"] == "the record at offset 0 is no marker"
    assert second["batch_id"] == 7
