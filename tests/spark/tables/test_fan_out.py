"""Several sinks over one micro-batch."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from semel.client import Unreachable
from semel.spark import dedup_by_id, delta_sink, fan_out, log_sink, sql_sink
from semel.spark.claims import Batch, Outcome
from semel.spark.counts import level_of, words_of
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


def test_each_sink_takes_the_rows_of_its_where(spark: SparkSession, tmp_path: Path) -> None:
    large = sql_sink(f"sqlite:///{tmp_path}/rows.db", "large", where="id >= 2", columns=["id * 10 AS tens"])
    small = delta_sink(tmp_path / "small", where="id < 2")
    assert FanOut([large, small]).write(spark.range(4), BATCH) is Outcome.ACCEPTED
    with closing(sqlite3.connect(tmp_path / "rows.db")) as file:
        assert sorted(file.execute("SELECT * FROM large")) == [(20,), (30,)]
    assert sorted(DeltaTable(tmp_path / "small").to_pyarrow_table()["id"].to_pylist()) == [0, 1]


def test_a_stream_that_a_sink_cannot_take_is_refused_before_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    url = f"sqlite:///{tmp_path}/rows.db"
    with pytest.raises(ValueError, match="valu"):
        fan_out(stream, [sql_sink(url, "rows", where="valu > 3")])
    with pytest.raises(
        ValueError, match=r"key=\.\.\. names 'id', and the rows have no such column: they have timestamp, value"
    ):
        fan_out(stream, [sql_sink(url, "rows", "upsert", key="id")])


def test_a_sink_into_the_log_at_an_address_where_nobody_listens_is_refused_before_the_query_begins(
    spark: SparkSession,
) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(Unreachable, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused. Start the broker"):
        fan_out(stream, [log_sink("127.0.0.1:1", "alerts", sink_id="alerts", lanes=1)])


def test_what_a_deduplication_and_the_sinks_leave_out_is_counted_and_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = "2026-07-01T12:00:00Z"
    rows = [{"id": "a", "at": at, "n": 1}, {"id": "a", "at": at, "n": 1}, {"at": at, "n": 2}, {"id": "b", "at": at}]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text("\n".join(map(json.dumps, rows)))
    stream = spark.readStream.schema("id string, at timestamp, n long").json(str(tmp_path / "in"))
    judged = dedup_by_id(stream, id="id", watermark="at", within="1 hour", buckets=1)
    url = f"sqlite:///{tmp_path}/rows.db"
    sinks = [sql_sink(url, "large", where="n > 1"), sql_sink(url, "small", where="n <= 1")]
    writer = fan_out(judged, sinks, checkpoint=str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with caplog.at_level(logging.INFO, "semel.spark"):
        query = writer.start()
        query.awaitTermination()
    outcomes = {"accepted": 2, "duplicate": 1, "gap": 0, "fenced": 0, "late": 0, "unclaimed": 1}
    assert query.lastProgress is not None
    observed = query.lastProgress.observedMetrics
    assert {name: row.asDict() for name, row in observed.items()} == {
        "semel.dedup": outcomes,
        "semel.fan_out": {"in no sink": 1},
    }
    [(_, level, line)] = [one for one in caplog.record_tuples if one[0] == "semel.spark.counts"]
    assert level == logging.WARNING
    assert line == f"query {query.id}, batch 0: dedup: 2 accepted, 1 duplicate, 1 unclaimed; fan_out: 1 in no sink"


def test_only_counts_that_a_person_has_to_look_at_warn() -> None:
    assert level_of({"dedup": {"accepted": 5, "duplicate": 2, "late": 0}}) == logging.INFO
    assert level_of({"dedup": {"accepted": 5, "late": 1}}) == logging.WARNING
    assert words_of({"dedup": {"accepted": 3, "late": 0}, "fan_out": {"in no sink": 0}}) == "dedup: 3 accepted"


@pytest.mark.parametrize("choice", [{"columns": ["nothing"]}, {"where": "nothing > 1"}, {"columns": ["id +"]}])
def test_an_expression_that_does_not_fit_the_rows_is_refused_with_the_name_of_the_sink(
    spark: SparkSession, tmp_path: Path, choice: dict[str, Any]
) -> None:
    rows = spark.range(3)
    for sink in (sql_sink(f"sqlite:///{tmp_path}/rows.db", "rows", **choice), delta_sink(tmp_path / "lake", **choice)):
        said = rf"^sink '{sink.name}': columns=\.\.\. or where=\.\.\. does not fit the rows: \[\w+"
        for tried in (lambda: sink.check(rows), lambda: sink.write(rows, Batch("query", 0))):  # noqa: B023 (called at once)
            with pytest.raises(ValueError, match=said) as refused:
                tried()
            assert "\n" not in str(refused.value)


def test_a_key_that_the_rows_do_not_have_is_refused_with_the_name_of_the_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sql_sink(f"sqlite:///{tmp_path}/rows.db", "rows", "upsert", key="number")
    with pytest.raises(ValueError, match=r"^sink 'sqlite:rows': key=\.\.\. names 'number'"):
        sink.check(spark.range(3))
