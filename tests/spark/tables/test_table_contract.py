"""What every sink into a table promises, asked of each kind: each row once, whatever comes between; new columns; and
rows that the table refuses."""

from __future__ import annotations

import datetime
import json
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession
from tables_under_test import (
    DeltaInBucketUnderTest,
    DeltaUnderTest,
    IcebergUnderTest,
    Interrupted,
    MariadbUnderTest,
    PostgresUnderTest,
    SqliteUnderTest,
    TableUnderTest,
    iceberg_in_bucket,
)

from semel.spark.claims import Batch, BatchRefused, Outcome
from semel.spark.tables.files import FileSink
from semel.spark.tables.table import TableSink

FIRST, SECOND, THIRD = (Batch("query", number, str(number)) for number in range(3))
KINDS: dict[str, Callable[[pytest.FixtureRequest, Path], TableUnderTest]] = {
    "postgresql": lambda request, _: PostgresUnderTest(request.getfixturevalue("postgres").new_database()),
    "mariadb": lambda request, _: MariadbUnderTest(request.getfixturevalue("mariadb_url")),
    "sqlite": lambda _, directory: SqliteUnderTest(f"{directory}/rows.db"),
    "delta": lambda _, directory: DeltaUnderTest(str(directory)),
    "delta in a bucket": lambda request, directory: DeltaInBucketUnderTest(
        request.getfixturevalue("seaweedfs"), directory.name
    ),
    "iceberg": lambda _, directory: IcebergUnderTest(str(directory)),
    "iceberg in a bucket": lambda request, directory: iceberg_in_bucket(
        request.getfixturevalue("seaweedfs"), directory
    ),
}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> TableUnderTest:
    return KINDS[request.param](request, tmp_path)


@pytest.fixture(scope="module")
def names(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "one"), (2, "two")], "id long, name string").coalesce(1)


def ids(table: TableUnderTest) -> list[int]:
    return sorted(row["id"] for row in table.rows())


def interrupted(table: TableUnderTest, **what: Any) -> TableSink:
    sink = table.sink()
    assert isinstance(sink, TableSink)
    sink.table = Interrupted(sink.table, **what)
    return sink


def foreign(number: int) -> pyarrow.Table:
    return pyarrow.table({"id": [number], "name": ["of another writer"]})


def test_each_batch_is_there_once_and_one_that_does_not_follow_is_refused(
    table: TableUnderTest, names: DataFrame
) -> None:
    assert table.sink().write(names, FIRST) is Outcome.ACCEPTED
    assert table.sink().write(names, FIRST) is Outcome.DUPLICATE
    assert table.sink().write(names.where("id < 0"), SECOND) is Outcome.ACCEPTED
    for batch in (Batch("query", 1, "planned anew"), FIRST, Batch("query", 3, "gap"), Batch("another", 2, "2")):
        with pytest.raises(BatchRefused, match="Nothing was written") as refused:
            table.sink().write(names, batch)
        assert ids(table) == [1, 2]
    _, mark, _ = str(refused.value).rsplit("'", 2)
    going_on = table.sink(accept_after=mark)
    assert going_on.write(names, batch) is Outcome.ACCEPTED
    assert going_on.write(names, batch) is Outcome.DUPLICATE
    assert ids(table) == [1, 1, 2, 2]


def test_what_comes_between_a_batch_and_its_commit_takes_no_row_and_doubles_none(
    table: TableUnderTest, names: DataFrame
) -> None:
    """Another writer, another driver with the same batch, and an answer that nobody heard."""
    table.sink().write(names.limit(0), FIRST)
    assert interrupted(table, before=lambda: table.append(foreign(99))).write(names, SECOND) is Outcome.ACCEPTED
    first = interrupted(table, before=lambda: table.sink().write(names, THIRD))
    assert first.write(names, THIRD) is Outcome.DUPLICATE
    fourth = Batch("query", 3, "3")
    with pytest.raises(ConnectionError):
        interrupted(table, is_heard=False).write(names, fourth)
    assert table.sink().write(names, fourth) is Outcome.DUPLICATE
    assert ids(table) == [*[1] * 3, *[2] * 3, 99]


def test_of_two_drivers_that_commit_at_once_one_has_written(table: TableUnderTest, names: DataFrame) -> None:
    if not isinstance(table.sink(), FileSink):
        pytest.skip("a database lets in one at a time, which test_table_commits.py tries")
    table.sink().write(names.limit(0), FIRST)
    staged = threading.Barrier(2, timeout=300)
    outcomes: list[Outcome] = []

    def drive() -> None:
        outcomes.append(interrupted(table, before=staged.wait).write(names, SECOND))

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert {outcome.value for outcome in outcomes} == {"accepted", "duplicate"}
    assert ids(table) == [1, 2]


def test_a_commit_that_is_there_although_it_seemed_to_fail_keeps_its_files(
    table: TableUnderTest, names: DataFrame
) -> None:
    sink = table.sink()
    if not isinstance(sink, FileSink):
        pytest.skip("a database says itself how a transaction ended")
    committed = sink.files.committed
    sink.files.committed = lambda *what: committed(*what) and False  # type: ignore[method-assign]
    assert sink.write(names, FIRST) is Outcome.ACCEPTED
    assert ids(table) == [1, 2]


def test_maintenance_takes_no_claim_away(table: TableUnderTest, names: DataFrame) -> None:
    table.sink().write(names, FIRST)
    table.sink().write(names, SECOND)
    table.append(foreign(99))
    table.maintain()
    table.append(foreign(98))
    table.maintain()
    assert table.sink().write(names, SECOND) is Outcome.DUPLICATE
    assert table.sink().write(names, THIRD) is Outcome.ACCEPTED
    assert ids(table) == [*[1] * 3, *[2] * 3, 98, 99]


def test_a_table_that_went_back_has_the_claim_of_the_rows_that_are_left(
    table: TableUnderTest, names: DataFrame
) -> None:
    table.sink().write(names, FIRST)
    if (back := table.go_back()) is None:
        pytest.skip("such a table goes back with its whole database alone")
    for number in (1, 2):
        table.sink().write(names.selectExpr(f"id + {number * 10} AS id", "name"), Batch("query", number, str(number)))
    back()
    for number in (2, 3):
        with pytest.raises(BatchRefused, match=rf"batch {number} .*a gap: its last batch is 0"):
            table.sink().write(names, Batch("query", number, str(number)))
    # With the checkpoint of that time, the query writes again what was taken away.
    assert table.sink().write(names, FIRST) is Outcome.DUPLICATE
    assert table.sink().write(names.selectExpr("id + 10 AS id", "name"), Batch("query", 1, "b")) is Outcome.ACCEPTED
    assert table.sink().write(names.selectExpr("id + 20 AS id", "name"), Batch("query", 2, "b")) is Outcome.ACCEPTED
    assert ids(table) == [1, 2, 11, 12, 21, 22]


def test_a_new_column_is_refused_with_the_remedy_or_added_and_null_before(
    table: TableUnderTest, names: DataFrame
) -> None:
    wider = names.selectExpr("id + 2 AS id", "name", "cast(0.5 AS double) AS share")
    assert table.sink().write(names, FIRST) is Outcome.ACCEPTED
    with pytest.raises(ValueError, match=r"no column 'share'.*Nothing was written.*add_columns=True, or .*columns="):
        table.sink().write(wider, SECOND)
    adding = table.sink(add_columns=True)
    assert adding.write(wider, SECOND) is Outcome.ACCEPTED
    assert adding.write(wider, SECOND) is Outcome.DUPLICATE
    # A column that the rows no longer have is null in them.
    assert adding.write(names.selectExpr("id + 4 AS id", "name"), THIRD) is Outcome.ACCEPTED
    shares = {row["id"]: row["share"] for row in table.rows()}
    assert shares == {1: None, 2: None, 3: 0.5, 4: 0.5, 5: None, 6: None}


def test_a_refused_row_ends_the_batch_and_is_shown_or_is_in_the_quarantine_once(
    table: TableUnderTest, names: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    rows = names.union(names.limit(1).selectExpr("3L", table.bad)).coalesce(1)
    table.make_refusing()
    with pytest.raises(ValueError, match=r"rows refuses a row.*name.*Nothing was written.*on_bad_row") as failed:
        table.sink(**table.refusing_options).write(rows, FIRST)
    assert '"id":3' in str(failed.value).replace('": ', '":')
    keeping = table.sink(on_bad_row="quarantine", **table.refusing_options)
    assert keeping.write(rows, FIRST) is Outcome.ACCEPTED
    assert keeping.write(rows, FIRST) is Outcome.DUPLICATE
    assert keeping.write(names.selectExpr("id + 10 AS id", "name"), SECOND) is Outcome.ACCEPTED
    assert ids(table) == [1, 2, 11, 12]
    [kept] = table.rows("rows_quarantine")
    assert (kept["query_id"], kept["batch_id"], json.loads(kept["row"])["id"]) == ("query", 0, 3)
    assert "name" in kept["reason"]
    assert [message for message in caplog.messages if "1 row is in" in message] != []


ODD_NAMES = ("a.b", 'quote"d', "it's", "Umläut", "`tick`", "two words")


def test_odd_names_and_values_come_out_as_they_went_in(table: TableUnderTest, spark: SparkSession) -> None:
    """As far as the table has such a value: SQLite has no NaN, and keeps decimals and times as text; MySQL has neither
    NaN nor an infinite number, and refuses such a row."""
    nan, low = ("'NaN'", "'-Infinity'") if table.has_infinity else ("null", "'-1e308'")
    at = "timestamp '0001-01-01 00:00:00.000001+00:00' AS first, timestamp_ntz '9999-12-31 23:59:59.999999' AS last"
    names = ", ".join(f"'{number}' AS `{name.replace('`', '``')}`" for number, name in enumerate(ODD_NAMES))
    rows = spark.sql(
        f"SELECT 1L AS id, {names}, double({nan}) AS nan, double({low}) AS low, -0.01BD AS price, {at}, "
        "date '0001-01-01' AS day, repeat('é', 500000) AS long, X'00ff' AS bytes, cast(null AS int) AS nothing, "
        "-9223372036854775808 AS least"
    ).coalesce(1)
    assert table.sink().write(rows, FIRST) is Outcome.ACCEPTED
    [row] = table.rows()
    assert [row[name] for name in ODD_NAMES] == [str(number) for number in range(len(ODD_NAMES))]
    assert row["nan"] is None or math.isnan(row["nan"])
    assert (row["low"], Decimal(row["price"]), str(row["day"])) == (
        float(low.strip("'")),
        Decimal("-0.01"),
        "0001-01-01",
    )
    assert (row["long"], bytes(row["bytes"]), row["nothing"], row["least"]) == (
        "é" * 500_000,
        b"\0\xff",
        None,
        -(2**63),
    )
    assert str(row["first"]).replace("T", " ").startswith("0001-01-01 00:00:00.000001")
    assert str(row["last"]).replace("T", " ").startswith("9999-12-31 23:59:59.999999")
    assert not isinstance(row["first"], datetime.datetime) or row["first"].utcoffset() == datetime.timedelta()
