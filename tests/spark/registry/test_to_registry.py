"""Holds `to_registry` to it that deserializers read what it writes, or that it says why it writes nothing."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from registries import NAMES, Subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def test_a_schema_is_registered_on_request_and_never_else(spark: SparkSession, subject: Subject) -> None:
    from semel.spark import to_registry

    rows = spark.sql("SELECT named_struct('id', 'a') AS value UNION ALL SELECT NULL")
    text = json.dumps(ORDER)
    with pytest.raises(ValueError, match=r"404 .*to_registry\(\.\.\., register=True\) registers it"):
        to_registry(rows, subject.url, subject=subject.name, schema=text)
    written = to_registry(rows, subject.url, subject=subject.name, schema=text, register=True).collect()
    values = sorted(bytes(row.value) for row in written if row.value is not None)
    assert subject.read(*values) == [{"id": "a", "note": None}]
    assert len(written) == 2
    again = to_registry(rows, subject.url, subject=subject.name, schema=text)
    assert sorted(bytes(row.value) for row in again.collect() if row.value is not None) == values


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("named_struct('id', 1)", "id is int32, and the schema wants string: cast it"),
        ("named_struct('id', 'a', 'more', 1)", "the schema has no field more"),
        ("named_struct('note', 'a')", "the schema requires id"),
        ("'text'", "the column is string, and the schema wants a record"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_row_is_read(
    spark: SparkSession, subject: Subject, sql: str, said: str
) -> None:
    from semel.spark import to_registry

    subject.register(ORDER)
    with pytest.raises(ValueError, match=subject.name) as refused:
        to_registry(spark.sql(f"SELECT {sql} AS value"), subject.url, subject=subject.name)
    assert said in str(refused.value)


def test_a_row_that_the_schema_does_not_allow_ends_the_query_by_the_name_of_the_field(
    spark: SparkSession, subject: Subject
) -> None:
    from semel.spark import error_of, to_registry

    subject.register(ORDER)
    rows = spark.sql("SELECT named_struct('id', CAST(NULL AS string)) AS value")
    with pytest.raises(Exception, match="id is null") as raised:
        to_registry(rows, subject.url, subject=subject.name).collect()
    assert error_of(raised.value) == "id is null in a row, and the schema has no null there"


JSON_ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["new", "old"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "note": {"type": ["string", "null"]},
        "left": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "who": {"$ref": "#/definitions/person"},
        "open": {"type": "object"},
    },
    "required": ["id", "left"],
    "additionalProperties": False,
    "definitions": {
        "person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
FULL: dict[str, Any] = {
    "id": 'ä"\n',
    "count": 2**53,
    "price": 1.5,
    "paid": True,
    "kind": "new",
    "at": "2026-07-01T12:00:00.123456Z",
    "day": "2026-07-01",
    "note": "x",
    "left": None,
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "who": {"name": "anna"},
    "open": {"a": [1, {"b": 2}]},
}
LEAST = {"id": "a", "left": 3}


def written_as_json(subject: Subject, schema: Any, *values: Any) -> list[bytes]:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    serializer = JSONSerializer(json.dumps(schema), subject.client, conf=NAMES)
    return [serializer(value, subject.context) for value in values]


def test_json_of_confluents_serializer_becomes_columns_and_goes_back(spark: SparkSession, subject: Subject) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    from semel.spark import from_registry, to_registry

    values = [*written_as_json(subject, JSON_ORDER, FULL, LEAST), None]
    rows = spark.createDataFrame(list(enumerate(values)), "offset long, value binary")
    decoded = from_registry(rows, subject.url, subject=subject.name)
    full, least, nothing = (row.value for row in decoded.selectExpr("*").orderBy("offset").collect())
    expected = {
        **FULL,
        "day": datetime.date(2026, 7, 1),
        "who": {"name": "anna"},
        "open": '{"a":[1,{"b":2}]}',
    }
    found = full.asDict(recursive=True)
    assert found.pop("at").astimezone(datetime.UTC).isoformat() == "2026-07-01T12:00:00.123456+00:00"
    expected.pop("at")
    assert found == expected
    assert {name: value for name, value in least.asDict().items() if value is not None} == LEAST
    assert nothing is None
    back = to_registry(
        decoded.withColumn("value", decoded.value.dropFields("open")), subject.url, subject=subject.name
    ).orderBy("offset")
    deserializer = JSONDeserializer(json.dumps(JSON_ORDER), schema_registry_client=subject.client, conf=NAMES)
    given = [row.value and deserializer(bytes(row.value), subject.context) for row in back.collect()]
    assert given == [{name: value for name, value in FULL.items() if name != "open"}, LEAST, None]


def test_json_that_the_schema_does_not_allow_is_put_aside_with_its_reason(
    spark: SparkSession, subject: Subject
) -> None:
    from semel.spark import error_of, from_registry

    [good] = written_as_json(subject, JSON_ORDER, LEAST)
    number = int.from_bytes(good[1:5], "big")
    texts = {
        '{"id": "a", "left": 1': "",
        '{"id": "a", "left": 1} or so': "",
        '{"id": "a", "left": "one"}': "",
        '{"id": "a", "count": 1.5, "left": 1}': "",
        "": "",
        '["id"]': "",
        '{"left": 1}': ": id is missing",
        '{"id": "a", "left": 1, "who": {}}': ": who.name is missing",
        '{"id": "a", "left": 1, "kind": "other"}': ": kind is none of new, old",
        '{"id": "a", "left": 1, "price": 1e999}': ": price is no finite number",
    }
    values = [good, b"{}", b"\0\0\x0f\x42\x40{}", *(good[:5] + text.encode() for text in texts)]
    rows = spark.createDataFrame(
        [("t", 0, n, value) for n, value in enumerate(values)], "topic string, partition int, offset long, value binary"
    )
    marked = from_registry(rows, subject.url, subject=subject.name, on_bad_row="quarantine").orderBy("offset").collect()
    no_fit = f"the text after schema id {number} is no {subject.name}"
    assert [row.reason for row in marked] == [
        None,
        "the value does not begin with a schema's id, as those of Confluent's serializers do",
        f"schema id 1000000 belonged to no version of subject {subject.name} when the query started",
        *(no_fit + more for more in texts.values()),
    ]
    assert [row.value is None for row in marked] == [False] + [True] * (len(values) - 1)
    assert [row.raw and bytes(row.raw) for row in marked] == [None, *values[1:]]
    with pytest.raises(Exception, match="t-0, offset 9") as raised:
        from_registry(rows.where("offset = 9"), subject.url, subject=subject.name).collect()
    assert error_of(raised.value).startswith(f"t-0, offset 9: {no_fit}: id is missing. Start the query again")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": {"type": "integer"}}, "id is bigint, and string in the schema for the reader"),
        ({"gone": {"type": "string"}}, "no property gone, so its values would be lost"),
    ],
)
def test_a_version_of_json_schema_whose_values_would_be_lost_is_refused(
    spark: SparkSession, subject: Subject, change: dict[str, Any], said: str
) -> None:
    from semel.spark import from_registry

    old = {"type": "object", "properties": {"id": {"type": "string"}}}
    new = {**old, "properties": {**old["properties"], **change}}
    subject.client.set_compatibility(subject.name, "NONE")
    subject.register(new, "JSON")
    subject.register(old, "JSON")
    rows = spark.createDataFrame([], "value binary")
    with pytest.raises(ValueError, match=f"subject {subject.name}, version 1: ") as refused:
        from_registry(rows, subject.url, subject=subject.name)
    assert said.replace("bigint, and string", "bigint, and string") in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("named_struct('id', 1, 'left', 1)", "id is int, and string in the schema: cast it"),
        ("named_struct('id', 'a', 'left', 1, 'more', 1)", "the schema has no property more"),
        ("named_struct('id', 'a')", "the schema requires left"),
        ("named_struct('id', 'a', 'left', 1, 'open', map('a', 1))", "the schema leaves open what open is"),
    ],
)
def test_columns_that_do_not_fit_json_schema_are_refused_before_a_row_is_read(
    spark: SparkSession, subject: Subject, sql: str, said: str
) -> None:
    from semel.spark import to_registry

    subject.register(JSON_ORDER, "JSON")
    with pytest.raises(ValueError, match=subject.name) as refused:
        to_registry(spark.sql(f"SELECT {sql} AS value"), subject.url, subject=subject.name)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("'id', CAST(NULL AS string), 'left', 1", "id is missing"),
        ("'id', 'a', 'left', 1, 'price', double('nan')", "price is no finite number"),
        ("'id', 'a', 'left', 1, 'kind', 'third'", "kind is none of new, old"),
    ],
)
def test_a_row_that_json_schema_does_not_allow_ends_the_query(
    spark: SparkSession, subject: Subject, sql: str, said: str
) -> None:
    from semel.spark import error_of, to_registry

    subject.register(JSON_ORDER, "JSON")
    rows = spark.sql(f"SELECT named_struct({sql}) AS value")
    with pytest.raises(Exception, match=said) as raised:
        to_registry(rows, subject.url, subject=subject.name).collect()
    assert error_of(raised.value) == f"{said}, which the schema does not allow"
