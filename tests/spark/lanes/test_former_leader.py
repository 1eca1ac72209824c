"""A broker that was the leader of a progress topic and does not know yet that it is not: what it hides is found."""

import pyarrow as pa
import pytest

from asking import Asker
from relayed_cluster import RelayedCluster
from semel.client import from_options
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneFailed, LaneWriter
from semel.spark.lanes.protocol import LaneClaim
from semel.testing.broker import FaultyBroker

CLAIM = LaneClaim("sink", 0, 1, "query", 0)


def test_a_marker_that_a_former_leader_hides_is_found_below_the_claim(broker: FaultyBroker, ask: Asker) -> None:
    """It shows the log as it was before the batch was written. The claim is written where the leader is now."""
    rows = [pa.record_batch({"value": [b"one", b"two"]})]
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster:
        client = from_options({"kafka.bootstrap.servers": cluster.bootstrap, "kafka.retry.backoff.ms": "10"})
        lane = LaneWriter(client, progress.prepare(client, "progress", 1, may_grow=False), "payments", 60_000)
        assert not lane.write(CLAIM, rows).was_duplicate
        cluster.shown_end = 0
        with pytest.raises(LaneFailed, match=r"no row of this attempt stays: .* was shown no marker"):
            lane.write(CLAIM, rows)
        cluster.shown_end = None
        assert lane.write(CLAIM, rows).was_duplicate
    assert [record.value for record in broker.log("payments", committed_only=True)] == [b"one", b"two"]
