"""Several sinks over one micro-batch."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from semel.spark import fan_out
from semel.spark.claims import Batch, Outcome
from semel.spark.tables.fan_out import FanOut
from semel.spark.tables.sink import Sink

BATCH = Batch("query", 0)


class Kept(Sink):
    """A sink that is a list, and that fails as often as it is told to."""

    def __init__(self, name: str, failures: int = 0) -> None:
        self.name = name
        self.failures = failures
        self.batches: dict[Batch, list[int]] = {}

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("not now")
        if batch in self.batches:
            return Outcome.DUPLICATE
        self.batches[batch] = sorted(row[0] for row in rows.collect())
        return Outcome.ACCEPTED


def test_a_sink_that_failed_catches_up_and_the_others_keep_what_they_have(spark: SparkSession) -> None:
    sinks = [Kept("one"), Kept("two", failures=1), Kept("three")]
    rows = spark.range(3)
    with pytest.raises(ConnectionError):
        FanOut(sinks).write(rows, BATCH)
    assert [len(sink.batches) for sink in sinks] == [1, 0, 0]
    assert FanOut(sinks).write(rows, BATCH) is Outcome.ACCEPTED
    assert [sink.batches for sink in sinks] == [{BATCH: [0, 1, 2]}] * 3
    assert FanOut(sinks).write(rows, BATCH) is Outcome.DUPLICATE


def test_rows_that_are_made_by_chance_are_the_same_in_all_sinks(spark: SparkSession) -> None:
    sinks = [Kept("one"), Kept("two")]
    FanOut(sinks).write(spark.range(100).selectExpr("cast(rand() * 1000000000 AS long)"), BATCH)
    assert sinks[0].batches == sinks[1].batches


def test_sinks_that_would_share_a_claim_or_have_none_are_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ValueError, match="two sinks have the name 'rows'"):
        fan_out(stream, [Kept("rows"), Kept("rows")])
    with pytest.raises(ValueError, match="needs a sink"):
        fan_out(stream, [])
    with pytest.raises(TypeError, match="is no sink of semel's"):
        fan_out(stream, [print])  # type: ignore[list-item]
