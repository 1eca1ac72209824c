"""What a task sends to MariaDB: each value as it was, many rows in a statement, and what the server has no place for is
named or kept beside the others. No Spark has to stage it.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mariadb_under_test import asked
from semel.database.engines import driver_settings
from semel.spark.tables import mysql_rows
from semel.spark.tables.mysql_columns import staging_types
from semel.spark.tables.mysql_rows import Fit, Sending, send_rows
from semel.spark.tables.servers import Server
from semel.spark.tables.statements import TASK_COLUMN, create_table

BYTEWISE = "utf8mb4_nopad_bin"
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
# The type of Spark, the value as it travels, its type on the way, and what comes out.
VALUES: list[tuple[DataType, Any, pyarrow.DataType, Any]] = [
    (BooleanType(), True, pyarrow.bool_(), 1),
    (LongType(), -(2**63), pyarrow.int64(), -(2**63)),
    (FloatType(), 16777217.0, pyarrow.float32(), 16777216.0),
    (DoubleType(), 0.1, pyarrow.float64(), 0.1),
    (DoubleType(), -1.7976931348623157e308, pyarrow.float64(), -1.7976931348623157e308),
    (DecimalType(38, 18), Decimal("-1E-18"), pyarrow.decimal128(38, 18), Decimal("-1E-18")),
    (StringType(), 'it\'s \\ "odd"\n\0 %s ä 😀 ', pyarrow.string(), 'it\'s \\ "odd"\n\0 %s ä 😀 '),
    (StringType(), "", pyarrow.string(), ""),
    (BinaryType(), "\\x00FF27", pyarrow.string(), b"\0\xff'"),
    (BinaryType(), "\\x", pyarrow.string(), b""),
    (DateType(), date(1, 1, 1), pyarrow.date32(), date(1, 1, 1)),
    (TimestampType(), MOMENT, pyarrow.timestamp("us", "Asia/Tokyo"), MOMENT.replace(tzinfo=None)),
    (TimestampNTZType(), datetime(9999, 12, 31, 23, 59), pyarrow.timestamp("us"), datetime(9999, 12, 31, 23, 59)),
]


def stage(url: str, schema: StructType, fits: dict[str, Fit], *batches: pyarrow.RecordBatch, keeps: bool = True) -> Any:
    types = {**staging_types(schema, BYTEWISE), TASK_COLUMN: "bigint"}
    kept = {"reason": "longtext CHARACTER SET utf8mb4", "row": "longtext CHARACTER SET utf8mb4", TASK_COLUMN: "bigint"}
    asked(url, create_table("stage", types, ()), create_table("bad", kept, ()))
    into = Sending(
        driver_settings(url), Server("mysql:payments", "payments", "MySQL"), "stage", "bad" if keeps else None, fits
    )
    return send_rows(into, 7, iter(batches))


def test_each_value_arrives_as_it_was(mariadb_url: str) -> None:
    schema = StructType([StructField(f"c'{number}", kind) for number, (kind, *_) in enumerate(VALUES)])
    columns = [pyarrow.array([value, None], kind) for _, value, kind, _ in VALUES]
    fits = {field.name: Fit(is_binary=isinstance(field.dataType, BinaryType)) for field in schema}
    batch = pyarrow.record_batch(columns, names=schema.fieldNames())
    assert stage(mariadb_url, schema, fits, batch.slice(0, 0), batch.slice(0, 1), batch.slice(1)) == (2, 0)
    assert asked(mariadb_url, "SELECT * FROM stage") == [
        (*(expected for *_, expected in VALUES), 7),
        (*(None for _ in VALUES), 7),
    ]


def test_all_rows_arrive_however_many_statements_they_take(mariadb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_rows, "STATEMENT_BYTES_MAX", 1000)
    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    names = ["x" * (number % 7 * 300) for number in range(500)]
    batch = pyarrow.record_batch({"id": pyarrow.array(range(500), pyarrow.int64()), "name": names})
    assert stage(mariadb_url, schema, {}, batch.slice(0, 321), batch.slice(321)) == (500, 0)
    assert asked(mariadb_url, "SELECT * FROM stage ORDER BY id") == [
        (number, name, 7) for number, name in enumerate(names)
    ]


def odd(packet_bytes: int) -> tuple[StructType, dict[str, Fit], pyarrow.RecordBatch, dict[int, str]]:
    """Rows of which only the first has a place, and what is said of each of the others."""
    schema = StructType(
        [
            *(StructField("n", LongType()), StructField("share", DoubleType()), StructField("day", DateType())),
            *(StructField("at", TimestampType()), StructField("name", StringType()), StructField("note", StringType())),
            StructField("bytes", BinaryType()),
        ]
    )
    good = (0.5, 0, 0, "ab ", "é", "\\x0102")
    last_day = 2_932_896
    odd_rows: list[tuple[Any, str]] = [
        ((math_nan := float("nan"), *good[1:]), "column share: NaN and Infinity"),
        ((-float("inf"), *good[1:]), "column share: NaN and Infinity"),
        ((0.5, last_day + 1, *good[2:]), "column day: years are 1 to 9999"),
        ((0.5, 0, -(2**62), *good[3:]), "column at: years are 1 to 9999"),
        ((*good[:3], b"\xff", *good[4:]), "column name: not UTF-8"),
        ((*good[:3], "abc ", *good[4:]), "column name: over 3 characters"),
        ((*good[:4], "éé", good[5]), "column note: over 3 bytes"),
        ((*good[:4], None, good[5]), "column note: null"),
        ((*good[:5], "\\x010203"), "column bytes: over 2 bytes"),
        ((*good[:3], "", "", "\\x" + "00" * packet_bytes), "column bytes: over 2 bytes"),
    ]
    assert math_nan != math_nan
    rows = [good, *(row for row, _ in odd_rows)]
    texts = [pyarrow.array([_bytes(row[n]) for row in rows], pyarrow.binary()).view("string") for n in (3, 4, 5)]
    batch = pyarrow.record_batch(
        {
            "n": pyarrow.array(range(len(rows)), pyarrow.int64()),
            "share": pyarrow.array([row[0] for row in rows], pyarrow.float64()),
            "day": pyarrow.array([row[1] for row in rows], pyarrow.int32()).cast(pyarrow.date32()),
            "at": pyarrow.array([row[2] for row in rows], pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC")),
            **dict(zip(("name", "note", "bytes"), texts, strict=True)),
        }
    )
    fits = {
        "name": Fit(characters_max=3),
        "note": Fit(bytes_max=3, is_needed=True),
        "bytes": Fit(bytes_max=2, is_binary=True),
    }
    return schema, fits, batch, dict(enumerate((reason for _, reason in odd_rows), 1))


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def test_what_the_server_has_no_place_for_is_kept_beside_the_others(mariadb_url: str) -> None:
    schema, fits, batch, reasons = odd(1000)
    assert stage(mariadb_url, schema, fits, batch) == (1, len(reasons))
    assert asked(mariadb_url, "SELECT n, name, note, bytes FROM stage") == [(0, "ab ", "é", b"\1\2")]
    kept = asked(mariadb_url, 'SELECT "row", reason, semel_task FROM bad')
    assert {json.loads(row)["n"]: reason.startswith(reasons[json.loads(row)["n"]]) for row, reason, _ in kept} == (
        dict.fromkeys(reasons, True)
    )
    assert {task for *_, task in kept} == {7}


def test_without_a_quarantine_it_ends_the_query_with_row_column_and_remedy(mariadb_url: str) -> None:
    schema, fits, batch, reasons = odd(10)
    said = rf'payments refuses a row, {{"n": 1, .*{reasons[1]}.*Nothing was written.*on_bad_row'
    with pytest.raises(ValueError, match=said):
        stage(mariadb_url, schema, fits, batch, keeps=False)
    assert asked(mariadb_url, "SELECT * FROM stage") == []


def test_a_row_that_is_longer_than_the_server_takes_ends_the_query_by_name(mariadb_url: str) -> None:
    schema = StructType([StructField("n", LongType()), StructField("name", StringType())])
    [(packet_bytes,)] = asked(mariadb_url, "SELECT @@max_allowed_packet")
    names = ["short", "x" * packet_bytes, "short too"]
    batch = pyarrow.record_batch({"n": pyarrow.array(range(3), pyarrow.int64()), "name": names})
    # The quarantine would refuse it as well, so the query fails by name, and the server's connection does not.
    for keeps in (False, True):
        with pytest.raises(ValueError, match=r"payments refuses a row.*longer than the server's max_allowed_packet"):
            stage(mariadb_url, schema, {}, batch, keeps=keeps)
    assert asked(mariadb_url, "SELECT * FROM stage") == []
