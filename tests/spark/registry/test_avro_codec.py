"""Holds the columns that are made of Avro's bytes, and the bytes that are made of columns, to fastavro's."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from avro_values import EVERYTHING, read, some_values, written

from semel.client.arrow.encoding import fields_of
from semel.spark.registry.avro import Node, parsed
from semel.spark.registry.client import RegistryRefused
from semel.spark.registry.decoder import Rows, decoder
from semel.spark.registry.encoder import check, encoded

NODE = parsed([json.dumps(EVERYTHING)])
# fastavro takes more than Avro allows: any byte for a boolean, numbers beyond those of an int, and more digits.
ONLY_FASTAVRO_TAKES = {"flag", "small", "day", "who.lines[].count", "cents", "exact"}


def node_of(schema: Any) -> Node:
    return parsed([json.dumps(schema)])


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(fields)]}


def decoded(octets: list[bytes], writer: Node, reader: Node, *without: str) -> tuple[Any, dict[int, str]]:
    buffer, fields = fields_of(pa.array(octets, pa.binary()))
    rows = Rows(buffer, fields)
    every = np.arange(len(octets))
    values = decoder(writer, reader, without)(rows, every)
    rows.refuse(every, rows.at < rows.ends, "behind the end")
    return values, rows.wrong


def as_python(values: Any) -> list[dict[str, Any]]:
    return [{**one, "counts": dict(one["counts"])} for one in values.to_pylist()]


def without_nan(value: dict[str, Any]) -> dict[str, Any]:
    """NaN differs from itself."""
    return {name: "NaN" if one != one else one for name, one in value.items()}


def test_what_fastavro_writes_is_read_as_it_was_and_what_is_written_fastavro_reads() -> None:
    given = some_values(1, 500)
    values, wrong = decoded([written(one) for one in given], NODE, NODE)
    assert (as_python(values), wrong) == (given, {})
    check(NODE, values.type)
    assert [read(one) for one in encoded(NODE, values).to_pylist()] == given
    # A part of an array has offsets that do not begin at 0.
    assert [read(one) for one in encoded(NODE, values[100:200]).to_pylist()] == given[100:200]
    assert encoded(NODE, values[:0]).to_pylist() == []


def test_bytes_that_are_damaged_are_refused_as_fastavro_refuses_them_and_change_no_other_row() -> None:
    """Whatever the bytes are: no crash, no endless loop, and no value that fastavro does not read as well."""
    chance = random.Random(2)
    refused = 0
    for _ in range(60):
        given = [bytearray(written(one)) for one in some_values(chance.randrange(10**9), 30)]
        for one in given:
            match chance.randrange(4):
                case 0:
                    del one[chance.randrange(len(one)) :]
                case 1:
                    one[chance.randrange(len(one))] = chance.randrange(256)
                case 2:
                    one += b"\0"
        values, wrong = decoded([bytes(one) for one in given], NODE, NODE)
        values.validate(full=True)
        expected = [read(bytes(one)) for one in given]
        refused += len(wrong)
        for row, wanted in enumerate(expected):
            if row in wrong:
                assert wanted is None or wrong[row] in ONLY_FASTAVRO_TAKES, wrong[row]
            elif wanted is not None:
                [value] = as_python(values[row : row + 1])
                assert without_nan(value) == without_nan(wanted)
            else:
                # Python has no such day or time, and Spark has.
                with pytest.raises(OverflowError):
                    as_python(values[row : row + 1])
    assert refused > 100


@pytest.mark.parametrize(
    ("writer", "octets", "place"),
    [
        ("string", b"\x06ab", ""),
        ("string", b"\x04\xff\xfe", ""),
        ("string", b"\x03", ""),
        ("long", b"\xff" * 10, ""),
        ("int", b"\x80\x80\x80\x80\x20", ""),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", ""),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02", ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}, b"\x04\x7f\xff", ""),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01", ""),
        (["null", "long"], b"\x04\x02", ""),
    ],
)
def test_bytes_that_no_value_has_are_refused(writer: Any, octets: bytes, place: str) -> None:
    node = node_of(record(writer))
    good = decoded([octets], node, node)
    assert good[1] == {0: "f0"}


def test_an_older_version_gets_defaults_and_null_and_wider_types() -> None:
    """Values of a version that lacks a field are as the reader's schema says."""
    writer = node_of(record("int", "float", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}))
    reader = node_of(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "added", "type": ["null", "string"], "default": None},
                {"name": "renamed", "type": "long", "aliases": ["f0"]},
                {"name": "f1", "type": "double"},
                {"name": "f2", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}},
                {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
                 "default": "\u0001\u0000"},
                {"name": "inner", "type": record("int", name="Inner"), "default": {"f0": 5}},
                {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
            ],
        }
    )  # fmt: skip
    values, wrong = decoded([b"\x02\x00\x00\x00\x3f\x02\x0f"], writer, reader)
    assert wrong == {}
    assert values.to_pylist() == [
        {
            "added": None, "renamed": 1, "f1": 0.5, "f2": Decimal("1.500"), "tags": ["x"], "price": Decimal("2.56"),
            "inner": {"f0": 5}, "counts": [("a", 1)],
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "reader", "said"),
    [
        (record("int", "string"), record("int"), "no field f1, so its values would be lost"),
        (record(record("int", "int", name="A")), record(record("int", name="A")), "no field f0.f1"),
        (record("long"), record("int"), "f0 is int64, and int32"),
        (record("long"), record("double"), "f0 is int64, and double"),
        (record("double"), record("float"), "f0 is double, and float"),
        (record("bytes"), record("string"), "f0 is binary, and string"),
        (record({"type": "array", "items": "long"}), record({"type": "array", "items": "int"}), "f0[] is int64"),
        (record({"type": "map", "values": "long"}), record({"type": "map", "values": "int"}), "f0{} is int64"),
        (record({"type": "array", "items": "long"}), record("string"), "f0 is list"),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}),
            record({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            "f0 is decimal128(9, 3), and decimal128(9, 2)",
        ),
        (record("int"), record("int", "string"), "requires f1, which this version has not"),
    ],
)
def test_a_version_whose_values_the_reader_does_not_hold_is_refused_by_the_name_of_the_field(
    writer: Any, reader: Any, said: str
) -> None:
    with pytest.raises(RegistryRefused, match="schema=") as refused:
        decoder(node_of(writer), node_of(reader))
    assert said in str(refused.value)


def test_a_field_is_left_out_on_purpose_and_the_others_are_read() -> None:
    writer, reader = node_of(record("string", "long", "string")), node_of(record("string", "long"))
    values, wrong = decoded([b"\x02a\x04\x02b"], writer, reader, "f2")
    assert (values.to_pylist(), wrong) == ([{"f0": "a", "f1": 2}], {})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(["string", "long"]), "f0 is a union of string, long"),
        ({"type": "record", "name": "A", "fields": [{"name": "next", "type": ["null", "A"]}]}, "which holds itself"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}), "f0 has 39 digits"),
        ({"type": "record", "name": "A", "fields": []}, "without fields"),
        (record("Missing"), "Missing, which the schema does not define"),
    ],
)
def test_what_spark_has_no_type_for_is_refused_by_its_name(schema: Any, said: str) -> None:
    with pytest.raises(RegistryRefused) as refused:
        node_of(schema)
    assert said in str(refused.value)


def test_names_of_other_schemas_and_of_other_namespaces_are_found() -> None:
    line = {**record("int", name="Line"), "namespace": "shop"}
    order = {**record({"type": "array", "items": "shop.Line"}, "Line"), "namespace": "shop"}
    node = parsed([json.dumps(line), json.dumps(order)])
    assert str(node.type) == "struct<f0: list<item: struct<f0: int32>>, f1: struct<f0: int32>>"


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("string", None, "f0 is null in a row"),
        ({"type": "enum", "name": "K", "symbols": ["A"]}, "B", "f0 is 'B' in a row, and the schema knows A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "f0 has 3 bytes in a row"),
        ({"type": "array", "items": "string"}, ["a", None], "f0[] is null in a row"),
    ],
)
def test_a_value_that_the_schema_does_not_hold_is_not_written(schema: Any, value: Any, said: str) -> None:
    node = node_of(record(schema))
    column = pa.StructArray.from_arrays([pa.array([value], node.fields[0].node.type)], ["f0"])
    with pytest.raises(ValueError, match="row") as refused:
        encoded(node, column)
    assert said in str(refused.value)


def test_microseconds_are_not_cut_off_where_the_schema_keeps_milliseconds() -> None:
    node = node_of(record({"type": "long", "logicalType": "timestamp-millis"}))
    column = pa.StructArray.from_arrays([pa.array([1], node.fields[0].node.type)], ["f0"])
    with pytest.raises(ValueError, match="the schema keeps milliseconds"):
        encoded(node, column)


@pytest.mark.parametrize(
    ("schema", "given", "said"),
    [
        (record("int"), pa.struct([("f0", pa.int64())]), "f0 is int64, and the schema wants int32"),
        (record("int"), pa.struct([("f0", pa.int32()), ("f1", pa.int32())]), "no field f1"),
        (record("int", "int"), pa.struct([("f0", pa.int32())]), "requires f1"),
        (record("int"), pa.string(), "the column is string, and the schema wants a record"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused_before_a_row_is_read(schema: Any, given: Any, said: str) -> None:
    with pytest.raises(RegistryRefused) as refused:
        check(node_of(schema), given)
    assert said in str(refused.value)


def test_a_field_that_the_rows_lack_is_written_with_its_default() -> None:
    node = node_of(
        {**record("int"), "fields": [{"name": "f0", "type": "int"}, {"name": "f1", "type": "int", "default": 3}]}
    )
    column = pa.StructArray.from_arrays([pa.array([1, 2], pa.int32())], ["f0"])
    assert encoded(node, column).to_pylist() == [b"\x02\x06", b"\x04\x06"]
