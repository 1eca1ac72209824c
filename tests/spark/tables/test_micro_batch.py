"""How a sink finds out which batch it is given: by means that Spark does not document."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from driver_process import DriverProcess
from pyspark.sql import DataFrame, SparkSession
from sink_places import Place

from semel.spark.claims import Batch
from semel.spark.tables.micro_batch import batch_of, digest_of
from semel.testing.postgres import PostgresServer

CHOSEN_AT = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{%s}}'


def test_a_query_gives_each_batch_its_own_digest_and_a_replay_the_same(spark: SparkSession, tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    seen: list[Batch] = []

    def look(rows: DataFrame, batch_id: int) -> None:
        seen.append(batch_of(rows, batch_id))

    place.feed(0, 1)
    # A session of its own, for the one that a batch has lists no queries.
    query = place.start(place.stream(spark.newSession(), 1), look)  # type: ignore[arg-type]
    query.awaitTermination()
    place.forget_commit(1)
    place.start(place.stream(spark, 2), look).awaitTermination()  # type: ignore[arg-type]
    assert [(batch.query_id, batch.batch_id) for batch in seen] == [(query.id, 0), (query.id, 1), (query.id, 1)]
    assert seen[0].digest != seen[1].digest == seen[2].digest


def test_a_query_without_a_checkpoint_of_its_own_is_warned_in_its_first_batch(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place("sqlite", tmp_path)
    place.feed(0, 1)
    session = spark.newSession()
    session.conf.unset("spark.sql.streaming.checkpointLocation")
    writer = place.stream(session, 1).writeStream.foreachBatch(place.sink()).trigger(availableNow=True)
    writer.start().awaitTermination()
    warned = [record.getMessage() for record in caplog.records if "has no checkpointLocation" in record.getMessage()]
    assert len(warned) == 1
    caplog.clear()
    place.run(spark, place.sink(sink_id="with a checkpoint"))
    assert not caplog.records


def test_a_sink_that_no_query_calls_says_so(spark: SparkSession) -> None:
    with pytest.raises(RuntimeError, match="Spark names no streaming query here"):
        batch_of(spark.range(1), 0)


def test_the_digest_is_of_the_offsets_and_of_the_time_they_were_chosen() -> None:
    entry = "\n".join(["v1", CHOSEN_AT % (5, '"a":"1","b":"2"'), '{"logOffset":0}', "-"])
    assert digest_of(entry) == digest_of("\n".join(["v1", CHOSEN_AT % (5, '"b":"2","a":"1"'), '{"logOffset":0}', "-"]))
    others = [
        "\n".join(["v1", CHOSEN_AT % (6, ""), '{"logOffset":0}', "-"]),
        "\n".join(["v1", CHOSEN_AT % (5, ""), '{"logOffset":1}', "-"]),
        "\n".join(["v1", CHOSEN_AT % (5, ""), "-", '{"logOffset":0}']),
    ]
    assert len({digest_of(one) for one in [entry, *others]}) == 4


CONNECTED = """
import os, sys
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from semel.spark import delta_sink, fan_out, sql_sink
from semel.spark.java import find_java, java_environment
from sink_places import Place

os.environ.update({name: value for name, value in java_environment(find_java()).items() if value is not None})
os.environ["PYSPARK_PYTHON"] = sys.executable

place = Place("sqlite", Path(sys.argv[1]))
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
place.feed(0, 1)

def run():
    sinks = [sql_sink(sys.argv[2], "rows"), place.sink(), delta_sink(place.out)]
    writer = fan_out(place.stream(spark, 2), sinks, checkpoint=str(place.checkpoint))
    started(writer.trigger(availableNow=True).start).awaitTermination()

def started(start):
    # Spark gives the process of foreachBatch ten seconds to begin, which a busy machine may not.
    while True:
        try:
            return start()
        except PySparkException as error:
            if "failed to connect back" not in str(error):
                raise

run()
place.forget_commit(1)
place.feed(2)
run()
place.feed(3)
try:
    started(lambda: place.start(place.stream(spark, 2))).awaitTermination()
except Exception as error:
    print("use semel.spark.fan_out" in str(error))
spark.stop()
"""


@pytest.mark.slow
def test_through_spark_connect_a_replayed_batch_is_written_once(
    tmp_path: Path, postgres: PostgresServer, spark: SparkSession
) -> None:
    url = postgres.new_database()
    with DriverProcess(CONNECTED, tmp_path, url) as driver:
        assert driver.finish() == ["True"]
    for place in (Place("sqlite", tmp_path), Place("delta", tmp_path), Place("postgresql", tmp_path, url)):
        assert sorted(place.ids(spark)) == list(range(300))
    with sqlite3.connect(tmp_path / "rows.db") as file:
        assert file.execute("SELECT batch_id FROM semel_batches").fetchall() == [(2,)]
