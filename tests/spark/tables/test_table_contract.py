"""What every sink into a table promises, asked of each kind: new columns, and rows that the table refuses."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from semel.spark import delta_sink, sql_sink
from semel.spark.claims import Batch, Outcome
from semel.spark.tables.sink import Sink

KINDS = ("postgresql", "sqlite", "delta")
FIRST, SECOND, THIRD = (Batch("query", number, str(number)) for number in range(3))


class Table:
    """One table, and its quarantine."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind = kind
        self.where = where

    def sink(self, **options: Any) -> Sink:
        if self.kind == "delta":
            return delta_sink(Path(self.where, "rows"), **options)
        return sql_sink(self.where, "rows", **options)

    def refusing(self, **options: Any) -> Sink:
        """A sink into a table that refuses the row `BAD`."""
        if self.kind == "delta":
            return self.sink(partition_by="name", **options)
        statement = "CREATE TABLE rows (id bigint, name text CHECK (length(name) < 200))"
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.where.removeprefix("sqlite:///"))) as file:
                file.execute(statement)
        else:
            with psycopg.connect(self.where) as connection:
                connection.execute(statement.encode())
        return self.sink(**options)

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        if self.kind == "delta":
            return list(DeltaTable(Path(self.where, table)).to_pyarrow_table().to_pylist())
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.where.removeprefix("sqlite:///"))) as file:
                cursor = file.execute(f"SELECT * FROM {table}")
                names = [column[0] for column in cursor.description]
                return [dict(zip(names, row, strict=True)) for row in cursor]
        with psycopg.connect(self.where, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(f"SELECT * FROM {table}".encode()).fetchall()


BAD = "x" * 300


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    kind = str(request.param)
    if kind == "postgresql":
        return Table(kind, request.getfixturevalue("postgres").new_database())
    return Table(kind, f"sqlite:///{tmp_path}/rows.db" if kind == "sqlite" else str(tmp_path))


@pytest.fixture
def names(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "one"), (2, "two")], "id long, name string").coalesce(1)


def test_a_new_column_is_refused_with_the_remedy_or_added_and_null_before(table: Table, names: DataFrame) -> None:
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
    table: Table, names: DataFrame, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rows = names.union(spark.createDataFrame([(3, BAD)], "id long, name string")).coalesce(1)
    with pytest.raises(ValueError, match=r"rows refuses a row.*name.*Nothing was written.*on_bad_row") as failed:
        table.refusing().write(rows, FIRST)
    assert '"id":3' in str(failed.value).replace('": ', '":')
    keeping = table.sink(on_bad_row="quarantine", **({"partition_by": "name"} if table.kind == "delta" else {}))
    assert keeping.write(rows, FIRST) is Outcome.ACCEPTED
    assert keeping.write(rows, FIRST) is Outcome.DUPLICATE
    assert keeping.write(names.selectExpr("id + 10 AS id", "name"), SECOND) is Outcome.ACCEPTED
    assert sorted(row["id"] for row in table.rows()) == [1, 2, 11, 12]
    [kept] = table.rows("rows_quarantine")
    assert (kept["query_id"], kept["batch_id"], json.loads(kept["row"])) == ("query", 0, {"id": 3, "name": BAD})
    assert "name" in kept["reason"]
    assert [message for message in caplog.messages if "1 row is in" in message] != []
