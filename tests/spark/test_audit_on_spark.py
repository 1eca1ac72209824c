"""The audit on Spark says what the audit in one process says, which is held to a naive comparison."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from semel.audit import AuditFailed, Given, SinkVerdict, audit, on_spark
from semel.audit.verdict import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("id", pa.binary()), ("at", pa.int64()), ("amount", pa.decimal128(20, 2))])
Row = tuple[bytes | None, int | None, Decimal | None]


def events(chance: random.Random, count: int) -> list[Row]:
    """Few ids, times and amounts, so that all that can be wrong with an id happens to some."""
    ids = [str(number).encode() for number in range(count)]
    times = [None, -5, 3, 12, 25]
    amounts = [None, Decimal("1.50"), Decimal(0)]
    return [(chance.choice(ids), chance.choice(times), chance.choice(amounts)) for _ in range(count)]


def table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(table(rows))


def found(verdict: SinkVerdict) -> dict[str, Any]:
    return {kind: getattr(verdict, kind) for kind in KINDS} | {"windows": verdict.windows}


@pytest.mark.parametrize(
    ("window_ms", "once", "with_amounts"),
    [
        pytest.param(None, False, True, marks=pytest.mark.slow),
        (10, False, True),
        pytest.param(10, True, False, marks=pytest.mark.slow),
    ],
)
def test_it_finds_what_one_process_finds(
    spark: SparkSession, window_ms: int | None, once: bool, with_amounts: bool
) -> None:
    chance = random.Random(f"{window_ms} {once}")
    sent = events(chance, 300)
    stored = [row for row in sent if chance.random() > 0.02] + events(chance, 20)
    amount = "amount" if with_amounts else None
    places = [Given(table(rows), time="at", amount=amount) for rows in (sent, stored)]
    expected = audit(places[0], places[1], window_ms=window_ms, once=once, limit=7)
    verdict = on_spark(
        frame(spark, sent),
        frame(spark, stored),
        id="id",
        time="at",
        amount=amount,
        window_ms=window_ms,
        once=once,
        limit=7,
        buckets=512,
    )
    assert found(verdict.sinks[0]) == found(expected.sinks[0])
    assert all(getattr(verdict.sinks[0], kind).rows for kind in KINDS[:3])
    assert (verdict.source.rows, verdict.sinks[0].sink.rows) == (len(sent), len(stored))
    assert verdict.source.amount == expected.source.amount


def test_a_clean_sink_is_clean_and_nothing_is_compared(spark: SparkSession) -> None:
    source = spark.range(10_000).selectExpr("id", "timestamp_millis(id) AS at")
    sink = spark.range(9_999, -1, -1).selectExpr("concat('', id) AS event_id", "timestamp_millis(id) AS at")
    verdict = on_spark(source, sink, id=("id", "event_id"), time="at", window_ms=1000)
    assert verdict.is_clean
    assert (verdict.sinks[0].rows_compared, verdict.sinks[0].windows) == (0, ())


def test_two_ids_that_were_made_to_have_one_hash_are_told_apart(spark: SparkSession) -> None:
    """xxhash64 gives them the same hash under every seed: the difference of their first eight bytes becomes one of the
    highest bit, which the second eight bytes take away again."""
    first, second = (int.from_bytes(part, "little") for part in (b"payment-", b"00000001"))
    made = [_unrolled(_round(first) ^ 1 << 36), _unrolled(_round(second) ^ 1 << 63)]
    other = b"".join(word.to_bytes(8, "little") for word in made)
    sent, stored = (frame(spark, [(id, None, None)]) for id in (b"payment-00000001", other))
    [sink] = on_spark(sent, stored, id="id").sinks
    assert (sink.lost.rows, sink.foreign.rows) == (1, 1)


_WORD = (1 << 64) - 1
_FIRST, _SECOND = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _WORD


def _round(word: int) -> int:
    """What xxhash64 does with eight bytes before they meet its state."""
    return _rotated(word * _SECOND & _WORD, 31) * _FIRST & _WORD


def _unrolled(word: int) -> int:
    return _rotated(word * pow(_FIRST, -1, 1 << 64) & _WORD, 33) * pow(_SECOND, -1, 1 << 64) & _WORD


def test_rows_without_an_id_are_not_clean_unless_they_are_only_counted(spark: SparkSession) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('a'), (NULL) AS rows(id)")
    verdict = on_spark(frame, frame, id="id")
    assert (verdict.source.rows, verdict.source.without_id, verdict.is_clean) == (1, 1, False)
    assert on_spark(frame, frame, id="id", count_without_id=True).is_clean
    assert not on_spark(frame, frame.where("id = 'a'"), id="id", count_without_id=True).is_clean


def test_what_is_no_id_is_refused(spark: SparkSession) -> None:
    with pytest.raises(AuditFailed, match="the id is of type double"):
        on_spark(spark.range(1), spark.range(1), id="id / 2")
    with pytest.raises(AuditFailed, match="the time is of type"):
        on_spark(spark.range(1), spark.range(1), id="id", time="'now'", window_ms=10)
    with pytest.raises(AuditFailed, match="windows need to know"):
        on_spark(spark.range(1), spark.range(1), id="id", window_ms=10)


@pytest.mark.parametrize("is_ansi", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_an_amount_that_cannot_be_read_is_a_finding_in_every_session(spark: SparkSession, is_ansi: str) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES ('a', '1'), ('b', '1e40'), ('c', 'ten'), ('d', '0.1234567891'), ('e', null) "
        "AS (id, amount)"
    )
    ansi = str(spark.conf.get("spark.sql.ansi.enabled"))
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    try:
        verdict = on_spark(rows, rows, id="id", amount="amount", limit=2)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
    assert not verdict.is_clean
    for counted in (verdict.source, verdict.sinks[0].sink):
        assert (counted.rows, counted.unreadable.rows) == (5, 3)
        assert [one.text for one in counted.unreadable.listed] == ["b", "c"]


@pytest.mark.parametrize(
    "amount",
    [
        "double('NaN')",
        pytest.param("cast(0.1234567891 AS decimal(20, 10))", marks=pytest.mark.slow),
        pytest.param("double('1e30')", marks=pytest.mark.slow),
    ],
)
def test_a_number_that_no_amount_can_be_is_a_finding(spark: SparkSession, amount: str) -> None:
    verdict = on_spark(spark.range(1), spark.range(1), id="id", amount=(amount, "1"))
    assert (verdict.source.unreadable.rows, verdict.sinks[0].sink.unreadable.rows) == (1, 0)


def test_a_frame_that_is_another_one_each_time_gets_no_verdict(spark: SparkSession) -> None:
    def others(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([pa.array([os.urandom(8) for _ in range(len(batch))])], ["id"])

    changing = spark.range(1000).mapInArrow(others, "id binary")
    with pytest.raises(AuditFailed, match="other rows when it was read again"):
        on_spark(spark.range(1000), changing, id="id", buckets=256)
