"""What a batch leaves in Spark when it is done: nothing, or a query could not run for months."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import DataFrame, SparkSession
from sink_places import KINDS, Place, place_of

from semel.spark.claims import Batch, Outcome
from semel.spark.tables import fan_out
from semel.spark.tables import sink as sinks
from semel.spark.tables.fan_out import FanOut
from semel.spark.tables.micro_batch import BATCHES_LEFT_MAX
from semel.spark.tables.sink import Sink
from semel.spark.tables.sqlite import one_partition_at_a_time
from semel.spark.versions import ASKS_FOR_LIMITS

only_where_spark_says_so = pytest.mark.skipif(not ASKS_FOR_LIMITS, reason="Spark 4.2 and newer says what it holds")


def executions_with_jobs(spark: SparkSession) -> set[int]:
    """Those whose jobs Spark holds, with their plans and sessions; it documents that nowhere."""
    jvm: Any = spark.sparkContext._jvm
    assert spark.sparkContext._jsc is not None
    held = spark.sparkContext._jsc.sc().dagScheduler().activeQueryToJobs()
    return set(jvm.java.util.ArrayList(held.keySet()))


def left_by_spark(spark: SparkSession, before: set[int]) -> set[int]:
    # Spark clears away behind whatever else it has to do, in order: this job has its turn after all of that, and as it
    # belongs to no execution, it is held for none.
    spark.sparkContext.parallelize([1], 1).count()
    return executions_with_jobs(spark) - before


@only_where_spark_says_so
@pytest.mark.parametrize(
    "kind", [name if name == "sqlite" else pytest.param(name, marks=pytest.mark.slow) for name in KINDS]
)
def test_no_job_outlives_its_batch(
    kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = place_of(kind, tmp_path, request)
    before = executions_with_jobs(spark)
    place.feed(0, 1, 2)
    place.run(spark)
    assert len(place.ids(spark)) == 300
    assert left_by_spark(spark, before) == set()


@only_where_spark_says_so
def test_no_job_outlives_a_batch_that_no_query_calls(spark: SparkSession, tmp_path: Path) -> None:
    before = executions_with_jobs(spark)
    Place("sqlite", tmp_path).sink().write(spark.range(100), Batch("query", 0))
    assert left_by_spark(spark, before) == set()


def test_rows_come_one_partition_at_a_time_and_in_order(spark: SparkSession) -> None:
    rows: DataFrame = spark.range(0, 100, numPartitions=7)
    assert [row.id for row in one_partition_at_a_time(rows)] == list(range(100))


class Touched(Sink):
    """Does with the rows what every sink does: calls methods of theirs."""

    name = "touched"

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        rows.select("id").schema  # noqa: B018 (that it is asked for is enough)
        return Outcome.ACCEPTED


@pytest.mark.parametrize("sink", [Touched(), FanOut([Touched()])], ids=["alone", "in a fan-out"])
def test_what_python_holds_of_java_does_not_grow_with_the_batches(
    sink: Sink, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sinks, fan_out):
        monkeypatch.setattr(module, "batch_of", lambda rows, batch_id, *_: Batch("query", batch_id))
    held = []
    # As if the program were so large that Python does not come to look by itself.
    gc.collect()
    gc.disable()
    try:
        for batch_id in range(4 * BATCHES_LEFT_MAX):
            sink(spark.range(1).toDF("id"), batch_id)
            held.append(len(ThreadSafeFinalizer.finalizers))
    finally:
        gc.enable()
    # The last batch is still in the hands of whoever called.
    assert max(held) - held[0] > BATCHES_LEFT_MAX
    assert held[-1] <= held[0] + 2
    assert max(held[-BATCHES_LEFT_MAX:]) <= max(held[:BATCHES_LEFT_MAX]) + 2
