"""The source under Spark itself: what its users see of columns, batches, checkpoints, progress and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_under_test import LogUnderTest
from pyspark.errors import AnalysisException, StreamingQueryException

from semel.spark.versions import ASKS_FOR_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

    from semel.testing.broker import FaultyBroker

# What "Structured Streaming + Kafka Integration Guide" says that each row has.
KAFKAS_COLUMNS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
HEADERS = "array<struct<key:string,value:binary>>"
PUSHED_FILTERS = "spark.sql.python.filterPushdown.enabled"
SECONDS_MAX = 300


def batch(spark: SparkSession, log: LogUnderTest, **options: str) -> DataFrameReader:
    reader = spark.read.format("semel").option("kafka.bootstrap.servers", log.bootstrap)
    return reader.options(**options)


def stream(spark: SparkSession, log: LogUnderTest, **options: str) -> DataStreamReader:
    reader = spark.readStream.format("semel").option("kafka.bootstrap.servers", log.bootstrap)
    return reader.options(**{"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "0", **options})


class Seen:
    """What each batch of a query held, as (partition, offset, value)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[tuple[int, int, str]]]] = []

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        found = [(row.partition, row.offset, row.value.decode()) for row in rows.collect()]
        self.batches.append((batch_id, sorted(found)))

    def values(self) -> list[str]:
        return [value for _, rows in self.batches for _, _, value in rows]


def run(rows: DataFrame, checkpoint: Path) -> tuple[Seen, StreamingQuery]:
    """One run of a query over what there is."""
    seen = Seen()
    writer = rows.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS_MAX)
    return seen, query


@contextmanager
def running(rows: DataFrame, checkpoint: Path) -> Iterator[tuple[Seen, StreamingQuery]]:
    """A query that goes on until the block ends."""
    seen = Seen()
    query = rows.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield seen, query
    finally:
        query.stop()


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Have Spark believe that a batch was not finished."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)


def replayed(rows: DataFrame, checkpoint: Path) -> list[tuple[int, list[tuple[int, int, str]]]]:
    """The batches after a restart: the one that was not finished, and what is there besides."""
    seen, _ = run(rows, checkpoint)
    if ASKS_FOR_LIMITS:
        return seen.batches
    # A run of Spark 4.0 and 4.1 with availableNow that replays a batch does no more.
    return [*seen.batches, *run(rows, checkpoint)[0].batches]


def one_line(act: Callable[[], Any], error: type[Exception]) -> str:
    """What a user is told, which must be no traceback of ours."""
    with pytest.raises(error) as told:
        act()
    assert "Traceback" not in str(told.value)
    return str(told.value).partition("\n")[0]


def test_columns_are_those_of_sparks_own_source_and_ours_behind_them(spark: SparkSession, log: LogUnderTest) -> None:
    topic = log.make()
    assert batch(spark, log, subscribe=topic).load().schema.simpleString() == KAFKAS_COLUMNS
    rows = stream(spark, log, subscribe=topic, includeHeaders="true", includeProducer="true").load()
    assert rows.schema.simpleString() == (
        f"{KAFKAS_COLUMNS[:-1]},headers:{HEADERS},producer_id:bigint,producer_epoch:int,sequence:int>"
    )
    assert all(field.nullable for field in rows.schema)


def test_a_batch_has_every_column_of_every_record(spark: SparkSession, log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, "a", key=b"k", timestamp=1_700_000_000_123, headers=[("trace", b"1")])
    log.put(topic, "b", partition=1, timestamp=1_700_000_000_124)
    rows = batch(spark, log, subscribe=topic, includeHeaders="true", includeProducer="true").load()
    first, second = rows.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k",
        b"a",
        topic,
        0,
        0,
    )
    assert (first.ms, first.timestampType) == (1_700_000_000_123, 0)
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("trace", b"1")]
    assert (second.key, second.partition, second.headers) == (None, 1, [])
    assert first.producer_id >= 0
    assert (first.producer_epoch, first.sequence) == (0, 0)


def test_a_schema_of_the_users_is_a_choice_of_columns(spark: SparkSession, log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a", "b")
    rows = batch(spark, log, subscribe=topic).schema("offset long, value binary").load()
    assert [(row.offset, bytes(row.value)) for row in rows.collect()] == [(0, b"a"), (1, b"b")]
    wrong = batch(spark, log, subscribe=topic).schema("value string").load()
    assert one_line(wrong.collect, AnalysisException).endswith("column value is of type binary, and not string")
    missing = batch(spark, log, subscribe=topic).schema("colour string").load()
    assert "there is no column colour; there are key, value" in one_line(missing.collect, AnalysisException)


def test_a_data_frame_that_is_used_with_several_filters_has_all_of_their_rows(
    spark: SparkSession, log: LogUnderTest
) -> None:
    """Where Spark pushes filters into Python sources, the data frames of one `load` share what the last filter left."""
    topic = log.make(2)
    for partition in (0, 1):
        log.put(topic, "a", "b", partition=partition)
    rows = batch(spark, log, subscribe=topic).load()
    spark.conf.set(PUSHED_FILTERS, "true")
    try:
        assert rows.where("partition = 1").count() == 2
        assert rows.count() == 4
        assert rows.where("partition = 0").union(rows.where("partition = 1")).count() == 4
    finally:
        spark.conf.unset(PUSHED_FILTERS)


@pytest.mark.skipif(not ASKS_FOR_LIMITS, reason="only Spark 4.2 and newer gives a source in Python limits")
def test_limited_batches_go_on_from_the_checkpoint_and_their_progress_says_how_far_behind_they_are(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    topic = log.make(2)
    log.put(topic, *"abcd")
    log.put(topic, "x", partition=1)
    seen, query = run(stream(spark, log, subscribe=topic, maxOffsetsPerTrigger="3").load(), tmp_path)
    assert [batch_id for batch_id, _ in seen.batches] == [0, 1]
    assert sorted(seen.values()) == [*"abcdx"]
    first, last = (json.loads(progress.json)["sources"][0] for progress in query.recentProgress)
    assert (first["latestOffset"][topic]["behind"], last["latestOffset"][topic]["behind"]) == (2, 0)
    assert {number: last["endOffset"][topic][number] for number in "01"} == {"0": 4, "1": 1}
    log.put(topic, "e")
    again, later = run(stream(spark, log, subscribe=topic, maxOffsetsPerTrigger="3").load(), tmp_path)
    assert again.batches == [(2, [(0, 4, "e")])]
    assert later.id == query.id
    idle, _ = run(stream(spark, log, subscribe=topic).load(), tmp_path)
    assert idle.batches == []


def test_a_replayed_batch_holds_the_same_records_whatever_came_and_changed_since(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    topic = log.make(2)
    with running(stream(spark, log, subscribe=topic, startingOffsets="latest").load(), tmp_path) as (seen, query):
        query.processAllAvailable()
        log.put(topic, *"abc")
        log.put(topic, *"xyz", partition=1)
        query.processAllAvailable()
    assert sorted(seen.values()) == [*"abcxyz"]
    assert seen.batches[0] == (0, [])
    log.put(topic, "later")
    last_id, rows = seen.batches[-1]
    forget_commit(tmp_path, last_id)
    limited = {"maxOffsetsPerTrigger": "2"} if ASKS_FOR_LIMITS else {}
    again = replayed(stream(spark, log, subscribe=topic, **limited).load(), tmp_path)
    assert again == [(last_id, rows), (last_id + 1, [(0, 3, "later")])]


def test_a_first_batch_is_replayed_from_where_it_began(spark: SparkSession, log: LogUnderTest, tmp_path: Path) -> None:
    topic = log.make()
    log.put(topic, *"abc")
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})}
    seen, _ = run(stream(spark, log, **options).load(), tmp_path)
    assert seen.batches == [(0, [(0, 1, "b"), (0, 2, "c")])]
    log.put(topic, "d")
    forget_commit(tmp_path, 0)
    again = replayed(stream(spark, log, subscribe=topic, startingOffsets="latest").load(), tmp_path)
    assert again == [*seen.batches, (1, [(0, 3, "d")])]


def test_a_checkpoint_of_sparks_own_source_is_gone_on_from(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    topic = log.make(2)
    log.put(topic, *"abc")
    run(stream(spark, log, subscribe=topic).load(), tmp_path)
    noted = tmp_path / "offsets" / "0"
    *head, _ = noted.read_text().splitlines()
    noted.write_text("\n".join([*head, json.dumps({topic: {"0": 2, "1": 0}}, separators=(",", ":"))]))
    (tmp_path / "offsets" / ".0.crc").unlink()
    again, query = run(stream(spark, log, subscribe=topic).load(), tmp_path)
    assert again.batches == [(1, [(0, 2, "c")])]
    assert "id" in json.loads(query.recentProgress[0].json)["sources"][0]["endOffset"][topic]


def test_a_running_query_finds_new_topics_and_partitions_and_outlives_its_broker(
    spark: SparkSession, log: LogUnderTest, faulty: FaultyBroker, tmp_path: Path
) -> None:
    stem = log.new_name("growing")
    rows = stream(spark, log, subscribePattern=f"^{stem}-", startingOffsets="latest").load()
    with running(rows, tmp_path) as (seen, query):
        query.processAllAvailable()
        topic = log.make(name=f"{stem}-a")
        log.put(topic, "first")
        query.processAllAvailable()
        log.add_partitions(topic, 2)
        log.put(topic, "second", partition=1)
        query.processAllAvailable()
        faulty.kill()
        faulty.start()
        log.put(topic, "third")
        query.processAllAvailable()
    assert seen.values() == ["first", "second", "third"]


def test_open_transactions_are_waited_for_and_aborted_ones_passed_over(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    topic = log.make()
    with running(stream(spark, log, subscribe=topic).load(), tmp_path) as (seen, query):
        with log.transaction(topic, "committed"):
            log.put(topic, "behind")
            query.processAllAvailable()
            assert seen.values() == []
        query.processAllAvailable()
        assert seen.values() == ["committed", "behind"]
        with log.transaction(topic, "aborted", commits=False):
            pass
        query.processAllAvailable()
        log.put(topic, "then")
        query.processAllAvailable()
    assert seen.values() == ["committed", "behind", "then"]


def test_mistakes_are_told_in_one_line(spark: SparkSession, log: LogUnderTest, tmp_path: Path) -> None:
    topic = log.make()
    unknown = one_line(lambda: batch(spark, log, subscribe=topic, startingOfset="earliest").load(), AnalysisException)
    assert unknown.endswith("option startingofset is not known; was startingOffsets meant?")
    at_the_end = batch(spark, log, subscribe=topic, startingOffsets="latest").load()
    assert "is for streams: a batch that begins there is empty" in one_line(at_the_end.collect, AnalysisException)
    ending = stream(spark, log, subscribe=topic, endingOffsets="latest").load()
    told = one_line(lambda: run(ending, tmp_path / "ending"), StreamingQueryException)
    assert "option endingOffsets is for batches: a stream has no end" in told
    nowhere = stream(spark, log, subscribe="source-nowhere").load()
    told = one_line(lambda: run(nowhere, tmp_path / "nowhere"), StreamingQueryException)
    assert "there is no topic source-nowhere: make it before the query starts" in told


def test_a_topic_made_anew_is_told_in_one_line_and_gone_on_from_if_that_is_wanted(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    topic = log.make()
    log.put(topic, "a")
    run(stream(spark, log, subscribe=topic).load(), tmp_path)
    log.make_anew(topic)
    log.put(topic, "x", "y", "z")
    told = one_line(lambda: run(stream(spark, log, subscribe=topic).load(), tmp_path), StreamingQueryException)
    assert f"topic {topic} was deleted and created again" in told
    assert "Set failOnDataLoss=false to go on" in told
    lenient, _ = run(stream(spark, log, subscribe=topic, failOnDataLoss="false").load(), tmp_path)
    assert lenient.values() == ["x", "y", "z"]
