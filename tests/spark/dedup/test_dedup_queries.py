"""Deduplication in real queries of Spark: batch after batch, replayed, killed, held up; as a batch DataFrame too."""

import datetime
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from feeding import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from semel.spark import accepted, dedup, dedup_by_id, dedup_by_version, quarantined

NUMBERED = pa.schema(
    [("partition", pa.int32()), ("pid", pa.int64()), ("epoch", pa.int16()), ("seq", pa.int32()), ("note", pa.string())]
)
BUCKETS = 2
UTC = datetime.UTC


@pytest.fixture
def feed(spark: "SparkSession", tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path, NUMBERED)


def event(number: int | None, note: str = "", *, pid: int | None = 1, epoch: int = 0) -> tuple[object, ...]:
    return (0, pid, epoch, number, note)


def test_rows_keep_every_column_as_it_was_in_a_stream_and_in_a_batch(spark: "SparkSession", tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("pid", pa.string()),
            ("seq", pa.int64()),
            ("whole", pa.int64()),
            ("far", pa.timestamp("us", tz="UTC")),
            ("day", pa.date32()),
            ("price", pa.decimal128(38, 9)),
            # Spark would take the dot for a part of a column, and the backtick for the end of its name.
            ("raw.`x", pa.binary()),
            ("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
        ]
    )
    far = datetime.datetime(9999, 1, 2, 3, 4, 5, 6, UTC)
    price = Decimal("12345678901234567890123456789.123456789")
    full = ("p", 0, 2**63 - 1, far, datetime.date(1, 1, 1), price, b"\0\xff", [{"a": 1, "b": None}])
    feed = Feed(spark, tmp_path, schema)
    feed.write(full, ("p", 0, 5, *[None] * 5), ("p", 1, *[None] * 6), (None, None, *[None] * 6))

    def way(df: "DataFrame") -> "DataFrame":
        return dedup(df, epoch=None, scope=(), buckets=BUCKETS)

    feed.run(way)
    batch = way(spark.read.parquet(str(tmp_path / "input")))
    given = sorted(feed.batches[0], key=str)
    assert given == sorted(batch.collect(), key=str)
    assert batch.columns == [*schema.names, "outcome", "expected"]
    assert Counter(row["outcome"] for row in given) == {"accepted": 2, "duplicate": 1, "unclaimed": 1}
    [whole] = [row for row in given if row["outcome"] == "accepted" and row["seq"] == 0]
    assert whole["whole"] == 2**63 - 1
    assert whole["price"] == price
    assert whole["raw.`x"] == b"\0\xff"
    assert whole["list"][0].asDict() == {"a": 1, "b": None}
    assert [row.asDict() for row in accepted(batch).where("seq = 0").collect()] == [
        {name: whole[name] for name in schema.names}
    ]
    assert [row["outcome"] for row in quarantined(batch).collect()] == ["unclaimed"]


def test_a_replayed_batch_gives_the_same_rows_and_leaves_the_same_state_whatever_the_partitions(feed: Feed) -> None:
    def way(df: "DataFrame") -> "DataFrame":
        return dedup(df, buckets=BUCKETS)

    feed.write(event(0, "a"), event(1, "b"), event(0, "b", pid=2))
    feed.write(event(1, "again"), event(2, "c"), event(4, "held"), event(2, "copy"))
    feed.run(way)
    first_time = {batch_id: list(rows) for batch_id, rows in feed.batches.items()}
    assert feed.forget_last_commit() == 1
    feed.write(event(3, "d"), event(5, "e"), event(1, "c", pid=2))
    partitions = feed.spark.conf.get("spark.sql.shuffle.partitions")
    feed.spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        feed.run(way)
    finally:
        feed.spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert feed.batches[1] == first_time[1]
    assert feed.shown("pid", "note", "outcome")[3:6] == [
        (1, "again", "duplicate"),
        (1, "c", "accepted"),
        (1, "copy", "duplicate"),
    ]
    assert sorted(feed.shown("pid", "note", "outcome")[6:]) == [
        (1, "d", "accepted"),
        (1, "e", "accepted"),
        (1, "held", "accepted"),
        (2, "c", "accepted"),
    ]


def test_a_worker_killed_in_the_middle_of_a_batch_costs_nothing(feed: Feed) -> None:
    plan = feed.directory / "kill"

    def killed_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Behind the judges: their state is already on its way into the store."""
        for batch in batches:
            if plan.exists() and "third" in batch.column("note").to_pylist():
                plan.unlink()
                os._exit(137)
            yield batch

    def way(df: "DataFrame") -> "DataFrame":
        judged = dedup(df, on_gap="quarantine", buckets=BUCKETS)
        return judged.mapInArrow(killed_once, judged.schema)

    feed.write(event(0), event(1))
    feed.write(event(1), event(2, "third"))
    plan.touch()
    with pytest.raises(Exception, match=r"(?i)python worker"):
        feed.run(way)
    assert not plan.exists()
    feed.run(way)
    assert feed.shown("seq", "outcome") == [(0, "accepted"), (1, "accepted"), (1, "duplicate"), (2, "accepted")]


def test_what_waits_behind_a_gap_for_too_long_comes_out_when_anything_comes(feed: Feed) -> None:
    def way(df: "DataFrame") -> "DataFrame":
        return dedup(df, hold_for="1 millisecond", buckets=BUCKETS)

    feed.write(event(0), event(2))
    feed.run(way)
    assert feed.shown("seq", "outcome", "expected") == [(0, "accepted", None)]
    # Of another producer, in whichever bucket: every batch wakes them all.
    feed.write(event(0, pid=2))
    feed.run(way)
    assert sorted(feed.shown("pid", "seq", "outcome")) == [(1, 0, "accepted"), (1, 2, "gap"), (2, 0, "accepted")]


def test_in_a_silent_stream_it_comes_out_in_an_idle_batch(feed: Feed) -> None:
    feed.write(event(0), event(2))
    query = feed.start(
        lambda df: dedup(df, hold_for="1 millisecond", idle_batches=True, buckets=BUCKETS), processingTime="0 seconds"
    )
    try:
        while len(feed.shown("seq")) < 2:
            assert not query.awaitTermination(0.05)
    finally:
        query.stop()
    assert feed.shown("seq", "outcome", "expected") == [(0, "accepted", None), (2, "gap", 1)]


def test_a_gap_ends_the_query_with_one_sentence_when_it_is_told_to(feed: Feed) -> None:
    feed.write(event(0), event(3))
    with pytest.raises(Exception, match="gap: partition=0, pid=1, epoch 0: expected 1, got 3"):
        feed.run(lambda df: dedup(df, on_gap="fail", buckets=BUCKETS))


def test_state_of_other_settings_is_refused_and_silent_producers_leave_it(feed: Feed) -> None:
    feed.write(*[event(0, pid=pid) for pid in range(20)])
    feed.run(lambda df: dedup(df, on_gap="quarantine", buckets=BUCKETS))
    producers = sum((len(value["kept"]) - 1) // 58 for value in feed.kept())
    assert (producers, len(feed.kept())) == (20, BUCKETS)

    feed.write(event(1))
    with pytest.raises(Exception, match="buckets was 2 and is 3"):
        feed.run(lambda df: dedup(df, on_gap="quarantine", buckets=3))
    # In each batch both buckets hear of some, and of the time since the last one a millisecond counts.
    for number in range(1, 4):
        feed.write(*[event(number, pid=pid) for pid in range(10)])
    feed.write(event(7, pid=19))
    feed.run(lambda df: dedup(df, on_gap="hold", forget_after="1 millisecond", buckets=BUCKETS))
    assert sum((len(value["kept"]) - 1) // 58 for value in feed.kept()) == 11
    # Forgotten like the others, it may go on anywhere.
    assert feed.shown("pid", "seq", "outcome")[-1] == (19, 7, "accepted")


def test_a_key_of_another_type_means_the_same_or_is_refused(feed: Feed) -> None:
    """Spark's own check of the state sees no keys, only buckets."""

    def with_key(kind: str) -> Callable[["DataFrame"], "DataFrame"]:
        def way(df: "DataFrame") -> "DataFrame":
            return dedup(df.withColumn("pid", df["pid"].cast(kind)), on_gap="quarantine", buckets=BUCKETS)

        return way

    feed.write(event(0), event(1))
    feed.run(with_key("int"))
    feed.write(event(0), event(1), event(2))
    feed.run(with_key("bigint"))
    assert [outcome for (outcome,) in feed.shown("outcome")] == [*["accepted"] * 2, *["duplicate"] * 2, "accepted"]
    feed.write(event(0))
    with pytest.raises(Exception, match=r"types was .*'whole number'.* and is .*'text'"):
        feed.run(with_key("string"))


def test_an_id_that_is_too_late_to_be_known_is_never_taken_for_new(spark: "SparkSession", tmp_path: Path) -> None:
    schema = pa.schema([("event_id", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    feed = Feed(spark, tmp_path, schema)

    def at(minute: int) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, 12, minute, tzinfo=UTC)

    feed.write(("a", at(0)), ("b", at(1)), ("a", at(2)), (None, at(1)), ("c", None))
    feed.write(("b", at(1)), ("d", at(30)))
    feed.write(("a", at(0)), ("e", at(19)), ("d", at(25)), ("f", at(21)))
    feed.run(lambda df: dedup_by_id(df, watermark="at", within="10 minutes", buckets=BUCKETS))
    outcomes = [
        {(row["event_id"], row["at"] and row["at"].astimezone(UTC).minute): row["outcome"] for row in rows}
        for rows in feed.batches.values()
    ]
    assert outcomes == [
        {
            ("a", 0): "accepted",
            ("b", 1): "accepted",
            ("a", 2): "duplicate",
            (None, 1): "unclaimed",
            ("c", None): "unclaimed",
        },
        {("b", 1): "duplicate", ("d", 30): "accepted"},
        {("a", 0): "late", ("e", 19): "late", ("d", 25): "duplicate", ("f", 21): "accepted"},
    ]
    # Only d and f can still be needed.
    assert sum(len(value["kept"]) // 20 for value in feed.kept()) == 2


def test_versions_of_an_aggregate_are_dense_or_only_grow(spark: "SparkSession") -> None:
    rows = [("x", 2), ("x", 1), ("x", 2), ("x", 4), ("y", 7), (None, 1), ("y", None)]
    df = spark.createDataFrame(rows, "id string, version long").coalesce(1)

    def outcomes(judged: "DataFrame") -> list[tuple[object, ...]]:
        return sorted(((row["id"], row["version"], row["outcome"]) for row in judged.collect()), key=str)

    without_claim = [("y", None, "unclaimed"), (None, 1, "unclaimed")]
    assert outcomes(dedup_by_version(df, buckets=BUCKETS)) == sorted(
        [
            ("x", 1, "accepted"),
            ("x", 2, "accepted"),
            ("x", 2, "duplicate"),
            ("x", 4, "gap"),
            ("y", 7, "gap"),
            *without_claim,
        ],
        key=str,
    )
    growing = dedup_by_version(df, on_gap="accept", buckets=BUCKETS)
    assert outcomes(growing) == sorted(
        [
            ("x", 1, "accepted"),
            ("x", 2, "accepted"),
            ("x", 2, "duplicate"),
            ("x", 4, "accepted"),
            ("y", 7, "accepted"),
            *without_claim,
        ],
        key=str,
    )


def test_what_cannot_be_done_is_said_in_a_sentence_before_anything_runs(spark: "SparkSession") -> None:
    df = spark.createDataFrame([], "partition int, pid long, epoch int, seq long, at timestamp, note string")
    for asked, sentence in [
        (lambda: dedup(df, producer="who"), "producer='who': there is no such column; there are partition, pid"),
        (lambda: dedup(df, scope=["nowhere"]), "scope='nowhere': there is no such column"),
        (lambda: dedup(df, sequence="note"), "sequence='note': it takes whole numbers, and this column has string"),
        (lambda: dedup(df, on_gap="ignore"), "on_gap='ignore': it is one of hold, quarantine, fail"),
        (lambda: dedup(df, hold_for="soon"), "hold_for='soon' is no time"),
        (lambda: dedup(df, hold_for=datetime.timedelta(0)), "longer than nothing"),
        (lambda: dedup(df, buckets=0), "buckets=0: it has to be 1 to 4096"),
        (lambda: dedup(df, first=-1), "first=-1: it has to be 0 to 2147483647"),
        (lambda: dedup(df, held_rows_max=0), "held_rows_max=0: it has to be 1 or more"),
        (lambda: dedup(dedup(df)), "the column 'outcome' is one that deduplication adds"),
        (lambda: dedup(df.selectExpr("*", "pid")), "there are two columns 'pid'"),
        (lambda: dedup_by_id(df, "note", watermark="seq"), "watermark='seq': it takes timestamps"),
        (lambda: dedup_by_version(df, "pid", "note", "accept"), "version='note': it takes whole numbers"),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            asked()
