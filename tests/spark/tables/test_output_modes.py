"""Every sink with every output mode: either it stores the right totals, or it refuses before it writes anything. And
what is to be done when a query that keeps state has lost its checkpoint.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from semel.spark import delta_sink, error_of, log_sink, sql_sink
from semel.spark.claims import Batch, BatchRefused, Outcome, mark_of
from semel.spark.tables.micro_batch import batch_of, stateful_in
from semel.spark.tables.output_modes import WrongOutputMode, check_output

if TYPE_CHECKING:
    from log_under_test import LogUnderTest

    from semel.spark.tables.output_modes import Kind

MODES = ("append", "update", "complete")
AGGREGATED = ("StateStoreSave", "StateStoreRestore")
STATEMENT = """
    INSERT INTO own AS target SELECT hour, revenue FROM {rows} AS staged WHERE true
    ON CONFLICT (hour) DO UPDATE SET revenue = excluded.revenue
"""
# Three files of payments, each read by a batch of its own: 10 and 20, then 30 in the same hour, then one five hours
# later, which ends that hour's window in append mode.
PAYMENTS = ([("00:10", 10), ("00:20", 20)], [("00:30", 30)], [("05:00", 1)])
FIRST_HOUR = 60


def totals(spark: SparkSession, incoming: Path) -> DataFrame:
    payments = spark.readStream.schema("at timestamp, amount long").option("maxFilesPerTrigger", 1).json(str(incoming))
    hours = payments.withWatermark("at", "10 minutes").groupBy(f.window("at", "1 hour"))
    return hours.agg(f.sum("amount").alias("revenue")).selectExpr("CAST(window.start AS string) AS hour", "revenue")


def feed(incoming: Path, *batches: int) -> None:
    incoming.mkdir(exist_ok=True)
    for batch in batches:
        lines = [f'{{"at": "2026-01-01T{time}:00Z", "amount": {amount}}}' for time, amount in PAYMENTS[batch]]
        (incoming / f"{batch}.json").write_text("\n".join(lines))


def run(rows: DataFrame, mode: str, checkpoint: Path, write: Any) -> None:
    writer = rows.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def rows_of(path: Path, table: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(f"SELECT hour, revenue FROM {table} ORDER BY revenue DESC").fetchall()


@pytest.mark.parametrize(
    ("kind", "goes"),
    [
        ("append", {"append"}),
        ("merge", {"append"}),
        ("upsert", {*MODES}),
        ("statement", {*MODES}),
        ("log", {"append", "update"}),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_results_that_are_given_again_are_refused_where_they_would_be_counted_again(
    kind: Kind, goes: set[str], mode: str
) -> None:
    batch = Batch("query", 0, output_mode=mode, state=AGGREGATED)
    if mode in goes:
        check_output("sink", kind, batch)
        return
    with pytest.raises(WrongOutputMode, match=rf"in output mode {mode} .* Nothing was written"):
        check_output("sink", kind, batch)


@pytest.mark.parametrize("state", [(), ("StreamingDeduplicate",), ("TransformWithStateInPySpark",)])
def test_in_update_mode_rows_that_are_given_once_go_anywhere(state: tuple[str, ...]) -> None:
    for kind in ("append", "merge", "upsert", "statement", "log"):
        check_output("sink", kind, Batch("query", 0, output_mode="update", state=state))


def test_a_sink_that_is_not_told_the_output_mode_lets_it_be() -> None:
    check_output("sink", "append", Batch("query", 0))


@pytest.mark.parametrize("mode", MODES)
def test_each_sink_stores_the_right_totals_or_refuses(
    spark: SparkSession, tmp_path: Path, log: LogUnderTest, mode: str
) -> None:
    file = tmp_path / "rows.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE own (hour TEXT PRIMARY KEY, revenue INTEGER)")
    topic = log.make(1)
    url = f"sqlite:///{file}"
    in_log = ["hour AS key", "CAST(revenue AS string) AS value"]
    sinks = {
        "appended": sql_sink(url, "appended"),
        "upserted": sql_sink(url, "upserted", "upsert", key="hour"),
        "merged": sql_sink(url, "merged", "merge", key="hour", merge={"revenue": "sum"}),
        "own": sql_sink(url, "own", "merge", merge=STATEMENT),
        "delta": delta_sink(tmp_path / "delta"),
    }
    into_log = log_sink(log.bootstrap, topic, sink_id=topic, lanes=1)
    refused: set[str] = set()
    states: set[tuple[str, ...]] = set()

    def write(rows: DataFrame, batch_id: int) -> None:
        batch = batch_of(rows, batch_id)
        assert batch.output_mode == mode
        states.add(batch.state)
        for name, sink in sinks.items():
            try:
                sink.write(rows, batch)
            except WrongOutputMode:
                refused.add(name)
        try:
            into_log.write(rows.selectExpr(*in_log), batch)
        except WrongOutputMode:
            refused.add("log")

    feed(tmp_path / "incoming", *range(len(PAYMENTS)))
    run(totals(spark, tmp_path / "incoming"), mode, tmp_path / "checkpoint", write)
    assert states == {AGGREGATED}
    assert set(stateful_in(spark.range(1), str(tmp_path / "checkpoint"))) == {"stateStoreSave"}
    by_mode = {"append": set(), "update": {"appended", "merged", "delta"}}
    assert refused == by_mode.get(mode, {"appended", "merged", "delta", "log"})
    for name in sinks.keys() - refused - {"delta"}:
        assert rows_of(file, name)[0] == ("2026-01-01 00:00:00", FIRST_HOUR)
        assert len(rows_of(file, name)) == (1 if mode == "append" else 2)
    for name in refused - {"delta", "log"}:
        with closing(sqlite3.connect(file)) as database:
            assert not database.execute("SELECT * FROM sqlite_master WHERE name = ?", [name]).fetchall()
    stored = [value for value in log.values(topic, committed_only=True) if value != b"1"]
    assert stored[-1:] == ([] if "log" in refused else [str(FIRST_HOUR).encode()])


def test_a_query_without_state_keeps_none(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[Batch] = []
    feed(tmp_path / "incoming", 0)
    rows = spark.readStream.schema("at timestamp, amount long").json(str(tmp_path / "incoming"))
    run(rows, "update", tmp_path / "checkpoint", lambda rows, batch_id: seen.append(batch_of(rows, batch_id)))
    assert [(batch.output_mode, batch.state) for batch in seen] == [("update", ())]
    assert stateful_in(spark.range(1), str(tmp_path / "checkpoint")) == ()


def test_a_windowed_total_is_right_after_a_lost_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """A mark that let the new query follow would have replaced 60 by what comes after: 30."""
    incoming, checkpoint, file = tmp_path / "incoming", tmp_path / "checkpoint", tmp_path / "rows.db"

    def upsert(accept_after: str | None = None) -> Any:
        return sql_sink(f"sqlite:///{file}", "hours", "upsert", key="hour", accept_after=accept_after)

    feed(incoming, 0)
    run(totals(spark, incoming), "update", checkpoint, upsert())
    shutil.rmtree(checkpoint)
    # As with startingOffsets: the new query begins where the rows of the old one end.
    later = tmp_path / "later"
    feed(later, 1)
    with pytest.raises(StreamingQueryException, match=r"keeps state .* accept_after is not enough") as refused:
        run(totals(spark, later), "update", checkpoint, upsert())
    assert "DELETE FROM semel_batches WHERE sink_id = 'hours'" in error_of(refused.value)
    with closing(sqlite3.connect(file)) as database:
        held = database.execute("SELECT query_id, batch_id, digest FROM semel_batches").fetchone()
    with pytest.raises(StreamingQueryException, match="accept_after is not enough"):
        run(totals(spark, later), "update", checkpoint, upsert(mark_of(*held)))
    assert rows_of(file, "hours") == [("2026-01-01 00:00:00", 30)]
    # What the refusal says: begin before the oldest open window, without its rows and without the claim.
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM hours WHERE hour >= '2026-01-01 00:00:00'")
        database.execute("DELETE FROM semel_batches WHERE sink_id = 'hours'")
    shutil.rmtree(checkpoint)
    feed(incoming, 1)
    run(totals(spark, incoming), "update", checkpoint, upsert())
    assert rows_of(file, "hours") == [("2026-01-01 00:00:00", FIRST_HOUR)]


def test_a_query_into_the_log_that_lost_its_state_is_refused(
    spark: SparkSession, tmp_path: Path, log: LogUnderTest
) -> None:
    topic = log.make(1)
    rows = spark.range(1).selectExpr("CAST(id AS string) AS value")
    sink = log_sink(log.bootstrap, topic, sink_id=topic, lanes=1)
    assert sink.write(rows, Batch("old", 0, state=AGGREGATED)) is Outcome.ACCEPTED
    for accept_after in (None, mark_of("old", 0)):
        going_on = log_sink(log.bootstrap, topic, sink_id=topic, lanes=1, accept_after=accept_after)
        with pytest.raises(BatchRefused, match=r"accept_after is not enough: .* a new sinkId"):
            going_on.write(rows, Batch("new", 0, state=AGGREGATED))
    assert going_on.write(rows, Batch("new", 0)) is Outcome.ACCEPTED
