"""What one commit does to a table and its claim, asked of the database alone: the rows of a batch are literals here, so
that no Spark has to stage them. Keys have two columns, for one of two may be forgotten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import mariadb_under_test
from databases import WAITS_FOR_US
from semel.spark.claims import Outcome
from semel.spark.tables.affinities import affinity_of
from semel.spark.tables.claims import TableClaim, judge
from semel.spark.tables.database import Database, Staged, Target
from semel.spark.tables.mysql import Mysql
from semel.spark.tables.postgres_copy import Copying, as_csv, copy_rows
from semel.spark.tables.servers import Server
from semel.spark.tables.sql_sink import database_of
from semel.spark.tables.sqlite import opened, plain
from semel.spark.tables.statements import TASK_COLUMN, Write, quoted, upsert, upsert_by_merge
from semel.spark.tables.table import Rule
from semel.testing.postgres import PostgresServer

SCHEMA = StructType(
    [
        StructField("tenant", StringType()),
        StructField("id", LongType()),
        StructField("version", LongType()),
        StructField("name", StringType()),
    ]
)
COLUMNS = ("tenant", "id", "version", "name")
Row = tuple[str | None, int | None, int | None, str | None]
APPEND = Write()
BY_KEY = Write("upsert", ("tenant", "id"))
BY_VERSION = Write("upsert", ("tenant", "id"), "version")
FIRST, SECOND = TableClaim("query", 0, "a"), TableClaim("query", 1, "b")


def table_of(url: str, write: Write = APPEND) -> Database:
    return database_of(url, Target("payments", "payments", "semel_batches", write))


def staged(database: Database, *rows: Row) -> Staged:
    """These rows, where the transaction can read them."""

    def literal(value: str | int | None, kind: str) -> str:
        return f"CAST({'NULL' if value is None else repr(value)} AS {kind}"

    kinds: Sequence[str] = ("text)", "bigint)", "bigint)", "text)")
    if isinstance(database, Mysql):
        kinds = ("char) COLLATE utf8mb4_nopad_bin", "signed)", "signed)", "char) COLLATE utf8mb4_nopad_bin")
    lines = [
        ", ".join(f"{literal(value, kind)} AS {name}" for value, kind, name in zip(row, kinds, COLUMNS, strict=True))
        for row in rows
    ]
    return Staged(f"({' UNION ALL '.join(f'SELECT {line}' for line in lines)})", len(rows))


def rule_of(claim: TableClaim) -> Rule:
    return lambda held: judge("payments", held, claim, accept_after=None)


def commit(database: Database, claim: TableClaim, *rows: Row) -> Outcome:
    with database.connected(SCHEMA) as connected:
        return connected.commit(staged(database, *rows), claim, rule_of(claim))


def stored(url: str) -> list[Row]:
    return asked(url, "SELECT tenant, id, version, name FROM payments ORDER BY tenant, id, version, name")


def claimed(url: str) -> list[tuple[Any, ...]]:
    return asked(url, "SELECT query_id, batch_id, digest, row_count FROM semel_batches")


def asked(url: str, *statements: str) -> list[Any]:
    """Runs these in one transaction; the answer is that to the last one."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            return [file.execute(statement).fetchall() for statement in statements][-1]
    if url.startswith("mysql"):
        key = "tenant varchar(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        return mariadb_under_test.asked(url, *(statement.replace("tenant text", key) for statement in statements))
    with psycopg.connect(url) as connection:
        answers = [connection.execute(statement.encode()) for statement in statements]
        return answers[-1].fetchall() if answers[-1].description else []


def claims_made(url: str) -> list[tuple[Any, ...]]:
    return asked(url, "SELECT * FROM semel_batches WHERE query_id IS NOT NULL")


def refuse_claims(url: str) -> None:
    """From now on the database refuses to note another batch as written."""
    if url.startswith("sqlite"):
        body = "BEGIN SELECT RAISE(ABORT, 'no more claims'); END"
        asked(url, f"CREATE TRIGGER refusal BEFORE INSERT ON semel_batches {body}")
        return
    if url.startswith("mysql"):
        body = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no more claims'"
        asked(url, f"CREATE TRIGGER refusal BEFORE UPDATE ON semel_batches FOR EACH ROW {body}")
        return
    asked(
        url,
        "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no more claims'; END $$",
        "CREATE TRIGGER refusal BEFORE UPDATE ON semel_batches FOR EACH ROW EXECUTE FUNCTION refused()",
    )


# Rows and claim


def test_rows_whose_claim_fails_are_not_stored(url: str) -> None:
    """Else the replay of the batch would find no claim, and store them twice."""
    database = table_of(url)
    assert commit(database, FIRST, ("a", 1, 1, "one")) is Outcome.ACCEPTED
    refuse_claims(url)
    with pytest.raises(RuntimeError, match="no more claims"):
        commit(database, SECOND, ("a", 2, 1, "two"))
    assert stored(url) == [("a", 1, 1, "one")]
    assert claimed(url) == [("query", 0, "a", 1)]


def test_a_claim_whose_rows_fail_is_not_made(url: str) -> None:
    """Else the replay of the batch would be taken for a duplicate, and its rows would be lost."""
    database = table_of(url)
    assert commit(database, FIRST, ("a", 1, 1, "one")) is Outcome.ACCEPTED
    asked(url, "CREATE UNIQUE INDEX once ON payments (id)")
    with pytest.raises(ValueError, match=r"(?i)payments refuses a row.*(unique|duplicate)"):
        commit(database, SECOND, ("a", 2, 1, "two"), ("b", 1, 1, "again"))
    assert stored(url) == [("a", 1, 1, "one")]
    assert claimed(url) == [("query", 0, "a", 1)]


def test_a_batch_that_another_driver_has_committed_since_it_was_staged_is_not_stored_again(url: str) -> None:
    database = table_of(url)
    assert commit(database, FIRST, ("a", 1, 1, "one")) is Outcome.ACCEPTED
    assert commit(database, FIRST, ("a", 1, 1, "one")) is Outcome.DUPLICATE
    assert stored(url) == [("a", 1, 1, "one")]
    assert claimed(url) == [("query", 0, "a", 1)]


@pytest.mark.parametrize("more", [-1, 1])
def test_a_batch_is_not_committed_without_all_of_its_staged_rows_or_with_others(url: str, more: int) -> None:
    """A server that crashed has emptied the staging table; rows of another attempt may be in it."""
    database = table_of(url)
    rows = staged(database, ("a", 1, 1, "one"), ("a", 2, 1, "two"))
    said = f"{2 + more} rows were staged for payments and 2 are left"
    with database.connected(SCHEMA) as connected, pytest.raises(RuntimeError, match=said):
        connected.commit(Staged(rows.rows, 2 + more), FIRST, rule_of(FIRST))
    assert stored(url) == claims_made(url) == []


def test_a_commit_to_a_file_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    """Else a batch could be claimed in Spark's checkpoint, and be lost with the machine."""
    with closing(opened(f"{tmp_path}/rows.db")) as connection:
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchone() == (full,)


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("claims", [0, 1], ids=["first batch", "later batch"])
def test_two_drivers_that_commit_one_batch_at_once_store_its_rows_once(url: str, claims: int) -> None:
    """The second one begins when the first has read the claim, and has written neither rows nor claim."""
    database = table_of(url)
    batches = [FIRST, SECOND][: claims + 1]
    for claim in batches[:-1]:
        commit(database, claim, ("a", 0, 1, "before"))
    batch = batches[-1]
    outcomes: list[Future[Outcome]] = []
    is_mysql = url.startswith("mysql")

    with ThreadPoolExecutor() as pool, database.connected(SCHEMA) as first:

        def beside(held: TableClaim | None) -> Outcome:
            outcomes.append(pool.submit(commit, database, batch, ("a", 1, 1, "one")))
            waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            while not outcomes[0].done() and not asked(url, WAITS_FOR_US["mysql"] if is_mysql else waiting):
                pass
            return rule_of(batch)(held)

        assert first.commit(staged(database, ("a", 1, 1, "one")), batch, beside) is Outcome.ACCEPTED
        assert outcomes[0].result() is Outcome.DUPLICATE
    assert asked(url, "SELECT count(*) FROM payments WHERE id = 1") == [(1,)]


def test_nobody_writes_to_a_file_between_the_look_at_the_claim_and_the_commit(tmp_path: Path) -> None:
    """Else a driver that has staged its batch would fail at its commit as often as others write to the file."""
    url = f"sqlite:///{tmp_path}/rows.db"
    database = table_of(url)
    commit(database, FIRST, ("a", 1, 1, "one"))

    def beside(held: TableClaim | None) -> Outcome:
        with (
            closing(sqlite3.connect(f"{tmp_path}/rows.db", timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="database is locked"),
        ):
            other.execute("DELETE FROM payments")
        return rule_of(SECOND)(held)

    with database.connected(SCHEMA) as connected:
        assert connected.commit(staged(database, ("a", 2, 1, "two")), SECOND, beside) is Outcome.ACCEPTED
    assert len(stored(url)) == 2


# Keys of two columns


def test_rows_that_share_a_part_of_their_key_replace_each_other_only_where_all_of_it_is_alike(url: str) -> None:
    database = table_of(url, BY_KEY)
    before: list[Row] = [("a", 1, 1, "a1"), ("a", 2, 1, "a2"), ("b", 1, 1, "b1")]
    commit(database, FIRST, *before)
    commit(database, SECOND, ("a", 2, 2, "changed"), ("b", 2, 1, "new"))
    assert stored(url) == [("a", 1, 1, "a1"), ("a", 2, 2, "changed"), ("b", 1, 1, "b1"), ("b", 2, 1, "new")]


def test_of_rows_that_share_a_part_of_their_key_each_keeps_its_own_greatest_version(url: str) -> None:
    database = table_of(url, BY_VERSION)
    commit(database, FIRST, ("a", 1, 5, "old"), ("a", 1, 6, "a1"), ("a", 2, 1, "a2"), ("b", 1, 9, "b1"))
    commit(database, SECOND, ("a", 1, 5, "late"), ("a", 2, 2, "changed"), ("b", 1, 8, "late"), ("b", 2, 0, "new"))
    assert stored(url) == [("a", 1, 6, "a1"), ("a", 2, 2, "changed"), ("b", 1, 9, "b1"), ("b", 2, 0, "new")]


def test_a_row_is_replaced_by_one_of_the_same_version_and_by_any_if_it_has_none(url: str) -> None:
    """A batch that was corrected, and a column that is filled from now on."""
    database = table_of(url, BY_VERSION)
    commit(database, FIRST, ("a", 1, 5, "wrong"), ("b", 1, None, "without"))
    commit(database, SECOND, ("a", 1, 5, "corrected"), ("b", 1, 0, "first"))
    assert stored(url) == [("a", 1, 5, "corrected"), ("b", 1, 0, "first")]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_rows_with_one_key_and_one_version_the_same_one_stays_in_any_order(url: str, is_reversed: bool) -> None:
    """Else a batch that is run again could bring another row."""
    rows: list[Row] = [("a", 1, 5, "w"), ("a", 1, 5, "y"), ("a", 1, 5, None), ("a", 1, 5, "x"), ("a", 1, 4, "z")]
    commit(table_of(url, BY_VERSION), FIRST, *(rows[::-1] if is_reversed else rows))
    assert stored(url) == [("a", 1, 5, "y")]


@pytest.mark.parametrize("write", [BY_KEY, BY_VERSION])
def test_a_table_that_would_take_two_rows_of_one_key_is_refused(url: str, write: Write) -> None:
    asked(url, "CREATE TABLE payments (tenant text, id bigint, version bigint, name text)")
    with pytest.raises(ValueError, match=r"needs a primary key or a unique index on exactly \(tenant, id\)"):
        commit(table_of(url, write), FIRST, ("a", 1, 1, "x"))
    assert stored(url) == []


def test_two_rows_of_one_key_are_two_whose_whole_key_is_alike(url: str) -> None:
    database = table_of(url, BY_KEY)
    with pytest.raises(ValueError, match=r"two rows of one batch have the same key \(tenant, id\)"):
        commit(database, FIRST, ("a", 1, 1, "one"), ("a", 1, 2, "other"))
    assert commit(database, FIRST, ("a", 1, 1, "one"), ("a", 2, 1, "two"), ("b", 1, 1, "three")) is Outcome.ACCEPTED
    assert len(stored(url)) == 3


def test_a_merge_adds_up_for_each_whole_key(url: str) -> None:
    write = Write("merge", ("tenant", "id"), merge={"version": "sum", "name": "max"})
    database = table_of(url, write)
    commit(database, FIRST, ("a", 1, 1, "x"), ("a", 1, 2, "y"), ("a", 2, 10, "x"), ("b", 1, 100, "x"))
    commit(database, SECOND, ("a", 1, 4, "w"), ("b", 2, 1000, "x"))
    assert stored(url) == [("a", 1, 7, "y"), ("a", 2, 10, "x"), ("b", 1, 100, "x"), ("b", 2, 1000, "x")]


@pytest.mark.parametrize(("how", "left"), [("min", [3, 1]), ("max", [5, 9])])
def test_a_merge_keeps_the_least_or_the_greatest_of_all_batches(url: str, how: str, left: list[int]) -> None:
    database = table_of(url, Write("merge", ("tenant", "id"), merge={"version": how, "name": "max"}))
    commit(database, FIRST, ("a", 1, 5, "x"), ("a", 2, 1, "x"))
    commit(database, SECOND, ("a", 1, 3, "x"), ("a", 2, 9, "x"))
    assert [version for _, _, version, _ in stored(url)] == left


def test_a_name_with_quotes_is_a_name() -> None:
    assert quoted('the "best" one') == '"the ""best"" one"'


@pytest.mark.parametrize("row", [(None, 1, 1, "x"), ("a", None, 1, "x"), (None, None, 1, "x")])
def test_a_null_in_any_part_of_a_key_is_refused(url: str, row: Row) -> None:
    """Else the row would be added again with each replay that replaces it, in a table that allows the null."""
    asked(url, "CREATE TABLE payments (tenant text, id bigint, version bigint, name text, UNIQUE (tenant, id))")
    for write in (BY_KEY, BY_VERSION, Write("merge", ("tenant", "id"), merge={"version": "sum", "name": "max"})):
        with pytest.raises(ValueError, match=r"1 row has null in the key \(tenant, id\)"):
            commit(table_of(url, write), FIRST, ("a", 1, 1, "x"), row)
    assert stored(url) == []


@pytest.mark.parametrize("write", [BY_KEY, BY_VERSION])
def test_both_ways_to_replace_rows_in_postgresql_give_the_same_table(postgres: PostgresServer, write: Write) -> None:
    """MERGE is the fast one, and INSERT ... ON CONFLICT the one that stands in for it beside other writers."""
    before: list[Row] = [("a", 1, 5, "a1"), ("a", 2, None, "a2"), ("b", 1, 5, "b1"), ("b", 3, 1, "b3")]
    batch: list[Row] = [("a", 1, 6, "new"), ("a", 2, 1, "new"), ("b", 1, 4, "late"), ("b", 2, 1, "new")]
    tables: list[list[Row]] = []
    for statement in (upsert, upsert_by_merge):
        url = postgres.new_database()
        database = table_of(url, write)
        commit(database, FIRST, *before)
        asked(url, statement(write, "payments", COLUMNS, staged(database, *batch).rows))
        tables.append(stored(url))
    assert tables[0] == tables[1]
    kept = ("b", 1, 5, "b1") if write.version else ("b", 1, 4, "late")
    assert tables[0] == [("a", 1, 6, "new"), ("a", 2, 1, "new"), kept, ("b", 2, 1, "new"), ("b", 3, 1, "b3")]


# Values on their way into PostgreSQL

MOMENTS = [datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]


def in_tokyo(moments: Sequence[datetime]) -> pyarrow.RecordBatch:
    """As Spark hands them over in a session of that zone."""
    return pyarrow.record_batch({"at": pyarrow.array(moments, pyarrow.timestamp("us", "Asia/Tokyo"))})


def test_a_moment_is_written_in_utc_whatever_the_zone_of_the_session() -> None:
    """PostgreSQL drops the offset where the column has no zone, and the moment would be another one."""
    lines = bytes(as_csv(in_tokyo(MOMENTS), 7, set())).decode().splitlines()
    assert lines == ["2026-07-01 12:00:00.000001Z,7", "1969-12-31 23:59:59.999999Z,7"]


@pytest.mark.parametrize("type_name", ["timestamp(6) without time zone", "timestamp(6) with time zone", "text"])
def test_a_moment_of_a_session_in_another_zone_is_staged_as_the_same_moment(
    postgres: PostgresServer, type_name: str
) -> None:
    url = postgres.new_database()
    asked(url, f"CREATE TABLE stage (at {type_name}, {TASK_COLUMN} bigint)")
    into = Copying(url, Server("postgresql:rows", "rows", "PostgreSQL"), "stage", None, set())
    assert copy_rows(into, 7, iter([in_tokyo(MOMENTS)])) == (2, 0)
    kept = "at AT TIME ZONE 'UTC'" if " with " in type_name else "at::timestamp"
    found = asked(url, f"SELECT {kept}, {TASK_COLUMN} FROM stage")
    assert found == [(moment.replace(tzinfo=None), 7) for moment in MOMENTS]


def test_a_moment_is_stored_in_sqlite_in_utc_whatever_the_zone_of_the_session() -> None:
    """There it is a text, and two texts of one moment would be two."""
    [column] = in_tokyo(MOMENTS).columns
    assert plain(column) == ["2026-07-01 12:00:00.000001Z", "1969-12-31 23:59:59.999999Z"]


# What SQLite makes of a text, a whole number and half of one, in a column of each affinity.
KEPT = {
    "TEXT": ("text", "text", "text"),
    "BLOB": ("text", "integer", "real"),
    "REAL": ("real", "real", "real"),
    "INTEGER": ("integer", "integer", "real"),
    "NUMERIC": ("integer", "integer", "real"),
}


@pytest.mark.parametrize(
    "declared",
    [
        *("", "INT", "BIGINT", "CHARINT", "FLOATING POINT", "TEXTBLOB", "BLOBTEXT", "CLOBREAL", "VARCHAR(9)", "blob"),
        *("REALBLOB", "DOUBLE PRECISION", "FLOAT", "DECIMAL(10,2)", "DATE", "STRING", "nvarchar", "POINT"),
    ],
)
def test_the_affinity_of_a_column_of_sqlite_is_the_one_that_sqlite_gives_it(declared: str) -> None:
    """Else a text such as 007 could come out as the number 7."""
    with closing(sqlite3.connect(":memory:")) as file:
        file.execute(f"CREATE TABLE kept (one {declared}, two {declared}, three {declared})")
        file.execute("INSERT INTO kept VALUES ('007', 7, 0.5)")
        found = file.execute("SELECT typeof(one), typeof(two), typeof(three) FROM kept").fetchone()
    assert found == KEPT[affinity_of(declared)]
