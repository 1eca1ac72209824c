"""Rows that a table refuses, asked of the database alone: they end the query with a row and a reason, or are in the
quarantine, once, and the others are in the table as if they had never come.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow
import pytest
from test_table_commits import BY_KEY, BY_VERSION, FIRST, SCHEMA, SECOND, Row, asked, claimed, rule_of, staged, stored

from semel.spark.claims import Outcome
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.database import Database, Target
from semel.spark.tables.postgres_copy import Copying, copy_rows
from semel.spark.tables.servers import Server
from semel.spark.tables.sql_sink import database_of, sql_sink
from semel.spark.tables.sqlite import Packing, gather, pack_task
from semel.spark.tables.statements import TASK_COLUMN, Write
from semel.testing.postgres import PostgresServer

APPEND = Write()
SERVER = Server("postgresql:payments", "payments", "PostgreSQL")
GOOD: list[Row] = [("a", number, 1, f"row {number}") for number in range(7)]
STRICT = "CREATE TABLE payments (tenant text, id bigint UNIQUE, version bigint CHECK (version > 0), name text NOT NULL)"

STRICT_BY_KEY = """CREATE TABLE payments (
    tenant text, id bigint, version bigint CHECK (version > 0), name text NOT NULL, PRIMARY KEY (tenant, id)
)"""


def table_of(url: str, write: Write = APPEND, *, keeps: bool = True) -> Database:
    quarantine = "payments_quarantine" if keeps else None
    return database_of(url, Target("payments", "payments", "semel_batches", write, quarantine))


def commit(database: Database, claim: TableClaim, *rows: Row) -> tuple[Outcome, int]:
    with database.connected(SCHEMA) as connected:
        return connected.commit(staged(database, *rows), claim, rule_of(claim)), connected.aside


def in_quarantine(url: str) -> list[Any]:
    found = asked(url, "SELECT query_id, batch_id, row, reason FROM payments_quarantine ORDER BY batch_id, row")
    return [(query, batch, json.loads(row), reason) for query, batch, row, reason in found]


def test_the_others_are_in_the_table_and_each_refused_row_is_in_the_quarantine_once(url: str) -> None:
    asked(url, STRICT)
    bad: list[Row] = [("a", 10, 0, "no version"), ("a", 11, 1, None), ("a", 3, 1, "an id that is taken")]
    rows = [*GOOD[:5], *bad, *GOOD[5:]]
    database = table_of(url)
    assert commit(database, FIRST, *rows) == (Outcome.ACCEPTED, 3)
    assert commit(database, FIRST, *rows) == (Outcome.DUPLICATE, 0)
    assert len(stored(url)) == len(GOOD)
    kept = in_quarantine(url)
    assert sorted([row["name"] or "" for _, _, row, _ in kept] + [name or "" for *_, name in stored(url)]) == sorted(
        name or "" for *_, name in rows
    )
    assert {(query, batch) for query, batch, _, _ in kept} == {("query", 0)}
    reasons = {row["id"]: reason for _, _, row, reason in kept}
    assert "constraint" in reasons[10].lower()
    assert "null" in reasons[11].lower()
    assert "name" in reasons[11]
    assert re.search("unique|duplicate", reasons[3].lower())
    assert claimed(url) == [("query", 0, "a", len(rows))]


def test_a_refused_row_without_a_quarantine_ends_the_batch_and_is_shown(url: str) -> None:
    asked(url, STRICT)
    with pytest.raises(ValueError, match="payments refuses a row") as failed:
        commit(table_of(url, keeps=False), FIRST, *GOOD, ("a", 10, 0, "no version"))
    said = str(failed.value).replace('": ', '":')
    for part in ('"id":10', '"no version"', "Nothing was written", "columns=", "where=", "on_bad_row='quarantine'"):
        assert part in said
    assert "\n" not in str(failed.value)
    assert stored(url) == []
    assert asked(url, "SELECT * FROM semel_batches WHERE query_id IS NOT NULL") == []


@pytest.mark.parametrize("row", [(None, 10, 1, "bad"), ("a", None, 1, "bad")])
def test_a_row_with_null_in_its_key_goes_into_the_quarantine(url: str, row: Row) -> None:
    assert commit(table_of(url, BY_KEY), FIRST, *GOOD, row) == (Outcome.ACCEPTED, 1)
    assert stored(url) == GOOD
    [(_, _, kept, reason)] = in_quarantine(url)
    assert (kept["name"], reason) == ("bad", "null in the key (tenant, id)")


def test_of_the_rows_of_a_key_the_greatest_good_one_stays(url: str) -> None:
    """As if the refused one had never come: else the rows of its key before it would be lost."""
    asked(url, STRICT_BY_KEY)
    rows: list[Row] = [("a", 1, 5, "w"), ("a", 1, 7, None), ("a", 1, 6, "x"), ("a", 1, 6, "y"), ("c", 1, 0, "z")]
    database = table_of(url, BY_VERSION)
    commit(database, FIRST, ("b", 1, 1, "before"))
    for claim, order in ((SECOND, rows), (TableClaim("query", 2, "c"), rows[::-1])):
        assert commit(database, claim, *order) == (Outcome.ACCEPTED, 2)
        assert stored(url) == [("a", 1, 6, "y"), ("b", 1, 1, "before")]


def test_two_rows_of_one_key_are_refused_beside_a_row_that_the_table_refuses(url: str) -> None:
    asked(url, STRICT_BY_KEY)
    with pytest.raises(ValueError, match="two rows of one batch have the same key"):
        commit(table_of(url, BY_KEY), FIRST, ("a", 9, 0, "bad"), *GOOD, ("a", 0, 2, "again"))
    assert stored(url) == []


def test_sums_are_of_the_rows_that_the_table_takes(url: str) -> None:
    asked(url, "CREATE TABLE payments (tenant text, id bigint CHECK (id < 100), PRIMARY KEY (tenant))")
    schema_rows: list[Row] = [("a", 60, 1, None), ("a", 30, 1, None), ("a", 20, 1, None), ("b", 1, 1, None)]
    write = Write("merge", ("tenant",), None, {"id": "sum"})
    database = table_of(url, write)
    with database.connected(SCHEMA.__class__(SCHEMA.fields[:2])) as connected:
        rows = staged(database, *schema_rows)
        assert connected.commit(rows, FIRST, rule_of(FIRST)) is Outcome.ACCEPTED
        assert connected.aside == 1
    [(kept,)] = asked(url, "SELECT row FROM payments_quarantine")
    [a, b] = asked(url, "SELECT id FROM payments ORDER BY tenant")
    assert a[0] + json.loads(kept)["id"] == 110
    assert b == (1,)


# What cannot even be staged


def odd_rows() -> pyarrow.RecordBatch:
    names = pyarrow.array([b"fine", b"not UTF-8: \xff", b"also fine", b"\xe4"], pyarrow.binary()).view("string")
    times = pyarrow.array([0, 0, -(2**62), 0], pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
    return pyarrow.record_batch({"n": pyarrow.array(range(4), pyarrow.int64()), "name": names, "at": times})


def test_rows_that_postgresql_cannot_stage_are_kept_beside_the_others(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    asked(
        url,
        f"CREATE TABLE stage (n bigint, name text, at bigint CHECK (at > -210866803200000000), {TASK_COLUMN} bigint)",
        f"CREATE TABLE bad (reason text, row text, {TASK_COLUMN} bigint)",
    )
    assert copy_rows(Copying(url, SERVER, "stage", "bad", {"at"}), 7, iter([odd_rows()])) == (1, 3)
    assert asked(url, "SELECT n, name FROM stage") == [(0, "fine")]
    kept = {
        json.loads(row)["n"]: (json.loads(row), reason) for reason, row in asked(url, "SELECT reason, row FROM bad")
    }
    assert "invalid byte sequence" in kept[1][1]
    assert kept[1][0]["name"] == "not UTF-8: \\xff"
    assert "violates check constraint" in kept[2][1]
    assert kept[2][0]["at"] == str(-(2**62))
    with pytest.raises(ValueError, match=r"payments refuses a row: invalid byte sequence .* Nothing was written"):
        copy_rows(Copying(url, SERVER, "stage", None, {"at"}), 8, iter([odd_rows()]))


def test_a_value_of_another_type_is_named_by_its_column_and_not_by_the_staging_table(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    asked(url, f"CREATE TABLE stage (n smallint, {TASK_COLUMN} bigint)")
    batch = pyarrow.record_batch({"n": pyarrow.array([1, 2**20], pyarrow.int64())})
    with pytest.raises(ValueError, match=r"out of range for type smallint \(column n: \"1048576\"\)") as failed:
        copy_rows(Copying(url, SERVER, "stage", None, set()), 7, iter([batch]))
    assert "stage" not in str(failed.value)


def test_rows_that_sqlite_cannot_stage_are_kept_beside_the_others(tmp_path: Any) -> None:
    types = {"n": "INTEGER", "name": "TEXT"}
    rows = odd_rows().select(["n", "name"])
    chunks = [row for batch in pack_task(Packing("payments", types, True))([rows]) for row in as_rows(batch)]
    assert gather(str(tmp_path / "rows.db"), types, iter(chunks)) == 2
    url = f"sqlite:///{tmp_path}/rows.db"
    assert asked(url, "SELECT n FROM rows") == [(0,), (2,)]
    [first, second] = asked(url, "SELECT row, reason FROM bad")
    assert json.loads(first[0]) == {"n": 1, "name": "not UTF-8: \\xff"}
    assert "can't decode byte" in second[1]
    with pytest.raises(ValueError, match=r'payments refuses a row, \{"n": 1, .*Nothing was written'):
        list(pack_task(Packing("payments", types))([rows]))


def as_rows(batch: pyarrow.RecordBatch) -> list[Any]:
    from types import SimpleNamespace

    return [SimpleNamespace(**row) for row in batch.to_pylist()]


# What is refused


def test_a_choice_that_is_none_or_that_only_the_user_can_make_is_refused() -> None:
    with pytest.raises(ValueError, match="is none of fail, quarantine"):
        sql_sink("sqlite:///rows.db", "rows", on_bad_row="skip")
    with pytest.raises(ValueError, match="your own merge statement"):
        sql_sink("sqlite:///rows.db", "rows", "merge", merge="INSERT INTO a {rows}", on_bad_row="quarantine")
