"""Holds `from_registry` to what it promises of values that Confluent's serializers wrote, whatever is among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from avro_values import EVERYTHING, some_values
from log_under_test import LogUnderTest
from registries import Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}  # type: ignore[list-item]
ALIEN = b"\0\0\x0f\x42\x3f\x02a"


def rows_of(spark: SparkSession, values: Sequence[bytes | None], topic: str = "orders") -> DataFrame:
    rows = [(topic, 3, offset, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "topic string, partition int, offset long, value binary")


def read(df: DataFrame, column: str = "value") -> list[Any]:
    return [row[column] and row[column].asDict(recursive=True) for row in df.orderBy("offset").collect()]


def stream(spark: SparkSession, log: LogUnderTest, topic: str) -> DataFrame:
    records = spark.readStream.format("semel").option("kafka.bootstrap.servers", log.bootstrap)
    return records.option("subscribe", topic).option("startingOffsets", "earliest").load()


def test_each_type_of_avro_arrives_as_the_producer_gave_it_and_goes_back(spark: SparkSession, subject: Subject) -> None:
    from semel.spark import from_registry, to_registry

    given = some_values(3, 40)
    values = [*subject.written(EVERYTHING, *given), None]
    decoded = from_registry(rows_of(spark, values), subject.url, subject=subject.name)
    stored = decoded.selectExpr("offset", "value", "value.at = timestamp'2026-01-01' AS is_time")
    found = read(stored)
    for one, wanted in zip(found, [*given, None], strict=True):
        if wanted is not None:
            # Spark hands times to Python in the zone of the machine, without saying so.
            times = {name: one.pop(name).astimezone(wanted[name].tzinfo) for name in ("at", "finer")}
            assert {**one, **times, "raw": bytes(one["raw"]), "four": bytes(one["four"])} == wanted
        else:
            assert one is None
    written = to_registry(decoded, subject.url, subject=subject.name).orderBy("offset").collect()
    assert subject.read(*(bytes(row.value) for row in written[:-1])) == given
    assert written[-1].value is None


def test_a_record_that_cannot_be_read_ends_the_query_with_its_place_or_is_put_aside_and_read_again_later(
    spark: SparkSession, subject: Subject
) -> None:
    """No id, an id that nobody has registered, too few bytes, and too many."""
    from semel.spark import error_of, from_registry

    good, cut = subject.written(OLD, {"id": "a"}, {"id": "bbbb"})
    number = int.from_bytes(good[1:5], "big")
    reasons = {
        0: None,
        1: "the value does not begin with a schema's id, as those of Confluent's serializers do",
        2: f"schema id 1000000 belonged to no version of subject {subject.name} when the query started",
        3: f"the bytes after schema id {number} are no {subject.name}, version 1, at field id",
        4: f"the bytes after schema id {number} are no {subject.name}, version 1, at the end, after which there are "
        "more bytes",
        5: None,
    }
    values = [good, b"{}", ALIEN.replace(b"\x3f", b"\x40"), cut[:-1], good + b"\0", None]
    rows = rows_of(spark, values)
    marked = from_registry(rows, subject.url, subject=subject.name, on_bad_row="quarantine").orderBy("offset").collect()
    assert {row.offset: row.reason for row in marked} == reasons
    assert [row.raw and bytes(row.raw) for row in marked] == [
        value if reasons[n] else None for n, value in enumerate(values)
    ]
    assert [row.value and row.value.id for row in marked] == ["a", None, None, None, None, None]
    for offset in (1, 2, 3):
        refused = from_registry(rows.where(f"offset = {offset}"), subject.url, subject=subject.name)
        with pytest.raises(Exception, match=f"orders-3, offset {offset}: ") as raised:
            refused.collect()
        said = error_of(raised.value)
        assert said.startswith(f"orders-3, offset {offset}: {reasons[offset]}. Start the query again if"), said
    # What was put aside is read as it would have been, once the registry knows it.
    again = rows_of(spark, [bytes(row.raw) for row in marked if row.offset == 3] + [cut])
    assert read(from_registry(again.where("offset = 1"), subject.url, subject=subject.name)) == [{"id": "bbbb"}]


def test_a_new_optional_column_appears_in_the_table_when_the_query_starts_again(
    spark: SparkSession, log: LogUnderTest, subject: Subject, tmp_path: Path
) -> None:
    """A record of a version that the running query does not know ends it; nothing is lost when it starts again."""
    import sqlite3

    from semel.spark import error_of, fan_out, from_registry, sql_sink

    topic = log.make(name=subject.topic)
    checkpoint = str(tmp_path / "checkpoint")

    def run(query: Any) -> None:
        query.trigger(availableNow=True).start().awaitTermination()

    def query() -> Any:
        orders = from_registry(stream(spark, log, topic), subject.url, subject=subject.name)
        sink = sql_sink(f"sqlite:///{tmp_path}/shop.db", "orders", add_columns=True)
        return fan_out(orders.select("offset", "value.*"), [sink], checkpoint=checkpoint)

    subject.send(log.bootstrap, *subject.written(OLD, {"id": "a"}))
    running = query()
    run(running)
    subject.send(log.bootstrap, *subject.written(NEW, {"id": "b", "note": "in a hurry"}))
    with pytest.raises(Exception, match="belonged to no version") as raised:
        run(running)
    assert error_of(raised.value).startswith(f"{topic}-0, offset 1: schema id ")
    subject.send(log.bootstrap, *subject.written(OLD, {"id": "c"}))
    run(query())
    with sqlite3.connect(tmp_path / "shop.db") as file:
        rows = file.execute('SELECT "offset", id, note FROM orders ORDER BY 1').fetchall()
    assert rows == [(0, "a", None), (1, "b", "in a hurry"), (2, "c", None)]


def test_a_version_whose_values_would_be_lost_is_refused_before_a_row_is_read(
    spark: SparkSession, subject: Subject
) -> None:
    from semel.spark import from_registry

    old, new = subject.written(OLD, {"id": "a"}), subject.written(NEW, {"id": "b", "note": "x"})
    rows = rows_of(spark, [*old, *new])
    lost = (
        f"subject {subject.name}, version 2: the schema for the reader has no field note, so its values would be lost"
    )
    with pytest.raises(ValueError, match=lost):
        from_registry(rows, subject.url, subject=subject.name, schema=1)
    kept = from_registry(rows, subject.url, subject=subject.name, schema=1, without=["note"])
    assert read(kept) == [{"id": "a"}, {"id": "b"}]
    assert read(from_registry(rows, subject.url, subject=subject.name)) == [
        {"id": "a", "note": None},
        {"id": "b", "note": "x"},
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"subject": "nobody-value"}, "does not give subject nobody-value: 404"),
        ({"column": "other"}, "column='other': there is no such column; there are topic, partition, offset, value"),
        ({"column": "topic"}, "column='topic' is string: it has to be binary"),
        ({"on_bad_row": "skip"}, "on_bad_row='skip' is none of fail, quarantine"),
        ({"schema": 9}, "has no version 9, only 1"),
        ({"options": {"timeuot": "3"}}, "option timeuot is not known; was timeout meant?"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_made(
    spark: SparkSession, subject: Subject, arguments: dict[str, Any], said: str
) -> None:
    from semel.spark import from_registry

    subject.register(OLD)
    with pytest.raises(ValueError, match=r"[a-z]") as refused:
        from_registry(rows_of(spark, []), subject.url, **{"subject": subject.name, **arguments})
    assert said in str(refused.value)


def test_protobuf_is_refused_by_its_name(spark: SparkSession, subject: Subject) -> None:
    from confluent_kafka.schema_registry import Schema

    from semel.spark import from_registry

    text = 'syntax = "proto3"; message Order { string id = 1; }'
    subject.client.register_schema(subject.name, Schema(text, "PROTOBUF"))
    with pytest.raises(ValueError, match="schemas of PROTOBUF: Avro is supported, and JSON Schema"):
        from_registry(rows_of(spark, []), subject.url, subject=subject.name)
