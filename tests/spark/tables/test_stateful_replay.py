"""Each sink behind each stateful operator of a query, when Spark runs a batch again that the sink has: it is evaluated
all the same, because every state store has to commit with the batch, and Spark looks whether it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from sink_places import BATCH_ROWS, Place, once, verdict

from semel.spark import accepted, dedup, dedup_by_id, dedup_by_version, log_sink
from semel.spark.claims import Batch, Outcome
from semel.spark.tables.fan_out import FanOut
from semel.spark.tables.sink import Sink

if TYPE_CHECKING:
    import pandas
    from log_under_test import LogUnderTest

BUCKETS = 2
BATCHES = [0, 1]


def each_once(rows: DataFrame) -> DataFrame:
    class Once(StatefulProcessor):
        """In here, so that Spark's workers get it by value: they have no tests."""

        def init(self, handle: Any) -> None:
            self._seen = handle.getValueState("seen", "is_there boolean")

        def handleInputRows(
            self, key: Any, rows: Iterator[pandas.DataFrame], timerValues: Any
        ) -> Iterator[pandas.DataFrame]:
            import pandas

            for _ in rows:
                pass
            if not self._seen.exists():
                self._seen.update((True,))
                yield pandas.DataFrame({"id": [key[0]]})

        def close(self) -> None:
            """Nothing is held."""

    return rows.groupBy("id").transformWithStateInPandas(Once(), "id long", "update", "none")


def numbered(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", "id % 5 AS pid", "id div 5 AS seq")


def timed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", "timestamp_seconds(1000000000 + id) AS at")


def versioned(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", "id AS version")


def with_itself(rows: DataFrame) -> DataFrame:
    return rows.alias("one").join(rows.alias("other"), on=F.expr("one.id = other.id")).selectExpr("one.id")


OPERATORS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "dedup": lambda rows: accepted(dedup(numbered(rows), epoch=None, scope=(), buckets=BUCKETS)),
    "dedup_by_id": lambda rows: accepted(dedup_by_id(timed(rows), "id", watermark="at", buckets=BUCKETS)),
    "dedup_by_version": lambda rows: accepted(dedup_by_version(versioned(rows), on_gap="accept", buckets=BUCKETS)),
    "dropDuplicates": lambda rows: rows.dropDuplicates(["id"]),
    "within a watermark": lambda rows: timed(rows).withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]),
    "aggregate": lambda rows: rows.groupBy("id").count(),
    "join": with_itself,
    "transformWithState": each_once,
}


# How its rows are written, where they are results that are given again.
WAYS: dict[str, dict[str, Any]] = {"aggregate": {"mode": "upsert", "key": "id"}}


class Kept(Sink):
    """Somebody's own sink, a list, that takes its time over nothing it has already."""

    name = "kept"

    def __init__(self) -> None:
        self.batches: dict[Batch, list[Any]] = {}

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        if batch in self.batches:
            return Outcome.DUPLICATE
        self.batches[batch] = [row[0] for row in rows.collect()]
        return Outcome.ACCEPTED


class StatefulQuery:
    """A query over two batches, and the same after a crash between the sink's commit of the last one and Spark's."""

    def __init__(self, spark: SparkSession, place: Place, operator: str, sink: Sink, column: str = "id") -> None:
        self.spark = spark
        self.place = place
        self.operator = OPERATORS[operator]
        self.mode = "update" if operator in ("aggregate", "transformWithState") else "append"
        self.sink = sink
        self.column = column

    def run_and_replay(self) -> None:
        self.place.feed(*BATCHES)
        self.run()
        self.place.forget_commit(BATCHES[-1])
        self.run()

    def run(self) -> None:
        rows = self.operator(self.place.stream(self.spark, 2)).selectExpr(self.column)
        writer = rows.writeStream.outputMode(self.mode).foreachBatch(self.sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.place.checkpoint)).start().awaitTermination()


@pytest.mark.parametrize("operator", ["dedup", "aggregate"])
def test_a_batch_that_the_sink_has_is_evaluated_when_it_is_run_again(
    spark: SparkSession, tmp_path: Path, operator: str
) -> None:
    place = Place("sqlite", tmp_path)
    StatefulQuery(spark, place, operator, place.sink(**WAYS.get(operator, {}))).run_and_replay()
    assert verdict(place, spark, BATCHES) == once(BATCHES)


def test_a_batch_that_all_of_several_sinks_have_is_evaluated_whoever_wrote_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, kept = Place("sqlite", tmp_path), Kept()
    StatefulQuery(spark, place, "dedup", FanOut([kept, place.sink()])).run_and_replay()
    assert verdict(place, spark, BATCHES) == once(BATCHES)
    assert sorted(number for rows in kept.batches.values() for number in rows) == list(range(2 * BATCH_ROWS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        (kind, operator)
        for kind in ("postgresql", "sqlite", "delta", "log", "all of them")
        for operator in OPERATORS
        # A Delta table cannot replace a result that is given again.
        if (kind, operator) != ("delta", "aggregate")
    ],
)
def test_no_sink_behind_any_stateful_operator_ends_a_query_that_runs_a_batch_again(
    spark: SparkSession, tmp_path: Path, log: LogUnderTest, request: pytest.FixtureRequest, kind: str, operator: str
) -> None:
    url = request.getfixturevalue("postgres").new_database() if kind == "postgresql" else ""
    place = Place(kind if kind in ("postgresql", "delta") else "sqlite", tmp_path, url)
    topic = log.make(2)
    into_log = log_sink(log.bootstrap, topic, sink_id=topic, lanes=2)
    into_table = place.sink(columns=["CAST(value AS long) AS id"], **WAYS.get(operator, {}))
    sink = {"log": into_log, "all of them": FanOut([into_log, into_table, Kept()])}.get(kind, into_table)
    StatefulQuery(spark, place, operator, sink, "CAST(id AS string) AS value").run_and_replay()
    if kind != "log":
        assert verdict(place, spark, BATCHES) == once(BATCHES)
    if kind in ("log", "all of them"):
        found = sorted(int(value or b"") for value in log.values(topic, committed_only=True))
        assert found == list(range(2 * BATCH_ROWS))
