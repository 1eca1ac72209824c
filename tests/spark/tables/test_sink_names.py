"""Names and tables that are unusual, and that a sink into a database takes all the same, or refuses by name."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from test_table_commits import FIRST as FIRST_CLAIM
from test_table_commits import SCHEMA, commit, rule_of, staged
from test_table_commits import asked as asked_of

from mariadb_under_test import MariadbMissing, MariadbServer, asked, lent_database
from semel.spark import sql_sink
from semel.spark.claims import Batch, Outcome
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.sql_sink import database_of
from semel.spark.tables.statements import Write, quoted

FIRST = Batch("query", 0)


def test_a_server_that_takes_no_table_without_a_primary_key_is_given_none(spark: SparkSession) -> None:
    try:
        server = MariadbServer("--innodb-force-primary-key=ON")
    except MariadbMissing as missing:
        pytest.skip(str(missing))
    rows = spark.sql("SELECT * FROM VALUES (1L, 'fine'), (2L, 'bad'), (3L, 'too long') AS rows (id, name)")
    try:
        with lent_database(server.url()) as url:
            kept = "id bigint PRIMARY KEY, name varchar(5) CHARACTER SET utf8mb4 CHECK (name <> 'bad')"
            asked(url, f"CREATE TABLE payments ({kept})")
            sink = sql_sink(url, "payments", "upsert", key="id", on_bad_row="quarantine")
            assert sink.write(rows, FIRST) is Outcome.ACCEPTED
            assert asked(url, "SELECT id FROM payments") == [(1,)]
            quarantined = asked(url, "SELECT count(*) FROM payments_quarantine WHERE reason LIKE '%name%'")
            assert quarantined == [(2,)]
            with pytest.raises(ValueError, match=r"appended to others have none: make the table yourself"):
                sql_sink(url, "others").write(rows, FIRST)
    finally:
        server.stop()


def test_a_generated_column_is_refused_by_name_and_one_that_the_rows_leave_out_is_computed(url: str) -> None:
    length = "name varchar(99) GENERATED ALWAYS AS (tenant) STORED"
    asked_of(url, f"CREATE TABLE payments (tenant varchar(99), id bigint, version bigint, {length})")
    database = database_of(url, Target("payments", "payments", "semel_batches", Write()))
    said = "column 'name' of payments is generated: the database computes it, and takes no value for it"
    with pytest.raises(ValueError, match=said):
        commit(database, FIRST_CLAIM, ("a", 1, 1, "x"))
    with database.connected(StructType(SCHEMA.fields[:3])) as connected:
        rows = staged(database, ("a", 1, 1, "x"))
        connected.commit(rows, FIRST_CLAIM, rule_of(FIRST_CLAIM))
    assert asked_of(url, "SELECT tenant, name FROM payments") == [("a", "a")]
    with pytest.raises(ValueError, match=rf"^sink '\S+:payments': {said}"):
        sql_sink(url, "payments", "upsert", key="name")


@pytest.mark.parametrize("table", ["newest", "target", "staged", "excluded", "select", "Ümläut `\"' %s", "t" * 52])
def test_a_table_of_any_name_takes_rows_and_replaces_them_and_has_a_quarantine(url: str, table: str) -> None:
    """Also of the names that stand for something in statements."""
    write = Write("upsert", ("one",), "aside")
    target = Target("payments", table, "semel_batches", write, f"{table}_quarantine")
    names = ("one", "aside", "newest", "order")
    schema = StructType([StructField(name, LongType()) for name in names[:3]] + [StructField(names[3], StringType())])
    database = database_of(url, target)

    def write_rows(number: int, *rows: tuple[int | None, int, int, str]) -> None:
        def row_of(row: tuple[int | None, int, int, str]) -> str:
            values = ["NULL" if row[0] is None else str(row[0]), str(row[1]), str(row[2])]
            pairs = [*zip(values, names[:3], strict=True)]
            text = f"CAST('{row[3]}' AS char(9))" if url.startswith("mysql") else f"CAST('{row[3]}' AS text)"
            return ", ".join([*(f'{value} AS "{name}"' for value, name in pairs), f'{text} AS "order"'])

        lines = " UNION ALL ".join(f"SELECT {row_of(row)}" for row in rows)
        claim = dataclasses.replace(FIRST_CLAIM, batch_id=number, digest=str(number))
        with database.connected(schema) as connected:
            connected.commit(Staged(f"({lines})", len(rows)), claim, rule_of(claim))
            assert connected.aside == sum(row[0] is None for row in rows)

    write_rows(0, (1, 5, 50, "first"), (2, 5, 50, "second"), (None, 5, 50, "none"))
    write_rows(1, (1, 6, 60, "later"), (2, 4, 40, "older"))
    quoted_name = quoted(table)
    found = asked_of(url, f'SELECT "one", "aside", "newest", "order" FROM {quoted_name} ORDER BY "one"')
    assert found == [(1, 6, 60, "later"), (2, 5, 50, "second")]
    [(row,)] = asked_of(url, f'SELECT "row" FROM {quoted(table + "_quarantine")}')
    assert json.loads(row) == {"one": None, "aside": 5, "newest": 50, "order": "none"}
