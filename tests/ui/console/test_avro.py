"""A value in Avro is read as its schema says, and whatever the bytes are, the answer is a value or one sentence."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.ui.console.avro import SCALE_MAX, VALUES_MAX, Names, NotAvro, beginning, decode

NESTED = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "parent", "type": ["null", "shop.Order"]},
    ],
}


def read(schema: Any, data: bytes) -> Any:
    names = Names()
    return decode(names.add(json.dumps(schema)), names, data)


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\x01", True),
        ("int", b"\x01", -1),
        ("long", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", (1 << 63) - 1),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf0?", 1.0),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf0\x7f", "inf"),
        ("string", b"\x04\xc3\xa9", "é"),
        ("bytes", b"\x04\x00\xff", b"\x00\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x01\x02", b"\x01\x02"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x00", [1, 2]),
        ({"type": "map", "values": "int"}, b"\x02\x02a\x02\x00", {"a": 1}),
        (["null", "string"], b"\x02\x02a", "a"),
        (
            NESTED,
            b"\x02\x02\x00\x02\x00\x00\x00",
            {"state": "PAID", "before": "NEW", "parent": {"state": "NEW", "before": None, "parent": None}},
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x04\xff\x38", "-2.00"),
        ({"type": "int", "logicalType": "date"}, b"\x02", "1970-01-02"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xd0\x0f", "1970-01-01T00:00:01Z"),
        # A clock without a zone.
        ({"type": "long", "logicalType": "local-timestamp-millis"}, b"\xd0\x0f", "1970-01-01T00:00:01"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, b"\xd0\x0f", "1970-01-01T00:00:00.001000"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            (1 << 63) - 1,
        ),
    ],
)
def test_each_type_is_read_as_the_specification_says(schema: Any, data: bytes, value: Any) -> None:
    assert read(schema, data) == value


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("string", b"\x04a"),
        ("string", b"\x01"),
        ("int", b"\xff" * 11),
        ("int", b"\x02\x02"),
        ("nothing", b""),
        (["null"], b"\x02"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b""),
        ({"type": "record", "name": "R"}, b""),
        ({"type": "enum", "name": "E", "symbols": 7}, b"\x00"),
        (7, b""),
        ({"type": "fixed", "name": "F", "size": "x"}, b""),
    ],
)
def test_what_does_not_fit_is_one_sentence(schema: Any, data: bytes) -> None:
    with pytest.raises(NotAvro):
        read(schema, data)


SCHEMAS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string", "R", ""]) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"type": st.sampled_from(["array", "map"])}, optional={"items": inner, "values": inner})
        | st.builds(lambda one: {"type": "record", "name": "R", "fields": [{"name": "f", "type": one}]}, inner)
    ),
    max_leaves=6,
)


@given(SCHEMAS, st.binary(max_size=60))
def test_any_bytes_by_any_schema_are_a_value_or_no_avro(schema: Any, data: bytes) -> None:
    with contextlib.suppress(NotAvro):
        beginning(read(schema, data), 100)


def test_a_few_bytes_that_claim_a_million_values_are_refused() -> None:
    count = 2 * (VALUES_MAX + 1)
    out = b""
    while count > 0x7F:
        out += bytes([count & 0x7F | 0x80])
        count >>= 7
    with pytest.raises(NotAvro, match="too many"):
        read({"type": "array", "items": "null"}, out + bytes([count, 0]))


@pytest.mark.parametrize("scale", [-1, SCALE_MAX + 1, 900_000])
def test_a_byte_is_no_number_with_a_million_digits(scale: int) -> None:
    """Anybody who may write a record may register such a schema. The bytes are shown as they are."""
    assert read({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}, b"\x02\x01") == b"\x01"


def test_a_long_text_of_a_schema_is_not_repeated_for_each_byte() -> None:
    symbol = {"type": "enum", "name": "E", "symbols": ["x" * 100_000]}
    field = {"type": "record", "name": "R", "fields": [{"name": "y" * 100_000, "type": "null"}]}
    assert read({"type": "array", "items": symbol}, b"\x04\0\0\0") == ["x" * 100_000] * 2
    for items, value in ((symbol, b"\0"), (field, b"")):
        with pytest.raises(NotAvro, match="too long a text"):
            read({"type": "array", "items": items}, b"\x28" + 20 * value + b"\0")


def test_of_a_value_whose_text_is_large_only_the_beginning_is_made() -> None:
    """Indentation makes a thousand bytes of two."""
    value = json.loads("[" * 500 + ",".join(["0"] * 10_000) + "]" * 500)
    tracemalloc.start()
    text, left_out = beginning(value, 1_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = json.dumps(value, indent=2)
    assert (text, left_out) == (whole[:1_000], len(whole) - 1_000)
    assert peak_bytes < len(whole) / 4
