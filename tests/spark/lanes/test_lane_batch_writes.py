"""What a write into the log refuses before it sends anything, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType, StructField, StructType

from semel.client import LogClient
from semel.client.places import NO_ID, Topic
from semel.spark import lanes
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneFailed, LaneWriter
from semel.spark.lanes.options import read_options
from semel.spark.lanes.progress import ProgressRefused
from semel.spark.lanes.protocol import LaneClaim
from semel.spark.lanes.stream_writer import LaneStreamWriter
from semel.spark.lanes.writer import LaneBatchWriter

if TYPE_CHECKING:
    from log_under_test import LogUnderTest
    from pyspark.sql import DataFrame, SparkSession

    from semel.testing.broker import FaultyBroker

NEEDED = {"sinkId": "s"}


def test_a_write_inside_of_foreach_batch_that_no_replay_could_find_is_refused(
    spark: SparkSession, semel_broker: FaultyBroker, tmp_path: Path
) -> None:
    spark.range(10).selectExpr("cast(id as string) value").write.parquet(f"{tmp_path}/rows")
    options = {"kafka.bootstrap.servers": semel_broker.bootstrap, "topic": "out", "sinkId": "by-hand"}

    def write(rows: DataFrame, number: int) -> None:
        lanes(rows, 2).write.format("semel").mode("append").options(**options).save()

    stream = spark.readStream.schema("value string").parquet(f"{tmp_path}/rows").writeStream.foreachBatch(write)
    with pytest.raises(StreamingQueryException, match="needs the options queryId and batchId"):
        stream.trigger(availableNow=True).start().awaitTermination()
    assert "out" not in semel_broker.topics()


def test_rows_of_one_key_share_a_lane_whatever_their_values_and_rows_without_a_key_go_by_value(
    spark: SparkSession,
) -> None:
    """And the lane of a row is the same in each version of semel: a batch that is half written would lose rows, or have
    them twice, if those that are left went into other lanes."""
    keyed = [("k", f"value {number}") for number in range(8)]
    others = [(None, "v"), (None, "w"), (None, "v"), ("v", "x")]
    rows = spark.createDataFrame([*keyed, *others], "key string, value string")
    found = lanes(rows, 1000).select("key", "value", "lane").collect()
    lanes_of = {(row["key"], row["value"]): row["lane"] for row in found}
    assert [lanes_of[one] for one in keyed] == [674] * 8
    assert (lanes_of[None, "v"], lanes_of[None, "w"], lanes_of["v", "x"]) == (583, 345, 583)


def test_a_lane_that_cannot_be_claimed_says_why() -> None:
    given = {**NEEDED, "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1"}
    writer = LaneWriter(read_options(given).client, Topic("progress", NO_ID, 1), "out", 1_000)
    with pytest.raises(LaneFailed, match=r"lane 0 of sink 's' cannot be claimed: cannot connect to 127\.0\.0\.1:1"):
        writer.write(LaneClaim("s", 0, 1, "query", 0), ())


def test_a_transaction_longer_than_the_broker_allows_is_refused(log: LogUnderTest) -> None:
    given = {**NEEDED, "kafka.bootstrap.servers": log.bootstrap}
    writer = LaneWriter(read_options(given).client, Topic(log.make(), NO_ID, 1), "out", 1_000_000_000)
    with pytest.raises(LaneFailed, match=r"allows no transaction of 1000000000 ms: its transaction\.max\.timeout\.ms"):
        writer.write(LaneClaim("s", 0, 1, "query", 0), ())


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_progress_topic_that_would_forget_markers_is_refused_at_every_start(log: LogUnderTest, policy: str) -> None:
    client = read_options({"kafka.bootstrap.servers": log.bootstrap, **NEEDED}).client
    name = log.make(cleanup_policy=policy)
    for _ in range(2):
        with pytest.raises(ProgressRefused, match=f"has cleanup.policy={policy} and would lose the markers"):
            progress.prepare(client, name, 1, may_grow=False)


def test_the_number_of_lanes_stays_for_all_whose_batches_follow_each_other(log: LogUnderTest) -> None:
    """Where Spark's partitions are the lanes, as where rows were brought into them; a batch write may have more."""
    schema = StructType([StructField("value", StringType())])
    numbered = {"queryId": "query", "batchId": "0"}
    for make, more in [(LaneStreamWriter, {}), (LaneBatchWriter, numbered), (LaneBatchWriter, {"batchId": "0"})]:
        sink_id = log.new_name("sink")
        given = {"kafka.bootstrap.servers": log.bootstrap, "sinkId": sink_id, "topic": "out", **more}
        make(read_options({**given, "lanes": "2"}), schema, False)
        wanted = read_options({**given, "lanes": "4"})
        if more == {"batchId": "0"}:
            make(wanted, schema, False)
        else:
            with pytest.raises(ProgressRefused, match=r"the sink has 2 lanes .*, and now 4"):
                make(wanted, schema, False)
            with pytest.raises(ProgressRefused, match=r"the sink has 2 lanes .*, and now 1"):
                make(read_options({**given, "lanes": "1"}), schema, False)
        with LogClient(wanted.client) as client:
            partitions = client.topics([wanted.progress_topic])[wanted.progress_topic].partitions
        assert partitions == (4 if more == {"batchId": "0"} else 2)
