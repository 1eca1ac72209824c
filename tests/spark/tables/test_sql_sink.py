"""What a batch becomes in PostgreSQL and in SQLite: each mode, each type, and each refusal."""

from __future__ import annotations

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from semel.spark.claims import Batch, BatchRefused, Outcome
from semel.spark.tables.sql_sink import sql_sink
from semel.testing.postgres import PostgresServer

FIRST, SECOND = Batch("query", 0, "a"), Batch("query", 1, "b")


def asked(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What the database answers, in order."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return sorted(file.execute(statement).fetchall())
    with psycopg.connect(url, options="-c timezone=UTC") as connection:
        return sorted(connection.execute(statement.encode()).fetchall())


def changed(url: str, *statements: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            for statement in statements:
                file.execute(statement)
        return
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def payments(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, numPartitions=3).selectExpr("id", "concat('payment ', id) AS name")


def test_a_batch_that_is_written_twice_is_there_once(url: str, payments: DataFrame) -> None:
    sink = sql_sink(url, "payments")
    assert sink.write(payments, FIRST) is Outcome.ACCEPTED
    assert sink.write(payments, FIRST) is Outcome.DUPLICATE
    assert sink.write(payments, SECOND) is Outcome.ACCEPTED
    assert asked(url, "SELECT count(*), count(DISTINCT id), min(name) FROM payments") == [(200, 100, "payment 0")]
    assert asked(url, "SELECT sink_id, query_id, batch_id, digest, row_count FROM semel_batches") == [
        ("payments", "query", 1, "b", 100)
    ]


def test_a_batch_without_rows_is_claimed(url: str, payments: DataFrame) -> None:
    sink = sql_sink(url, "payments")
    assert sink.write(payments.where("id < 0"), FIRST) is Outcome.ACCEPTED
    assert sink.write(payments, SECOND) is Outcome.ACCEPTED


@pytest.mark.parametrize(
    "batch",
    [Batch("query", 1, "other"), Batch("query", 0, "a"), Batch("query", 3, "d"), Batch("another", 2, "c")],
    ids=["planned anew", "older", "gap", "checkpoint lost"],
)
def test_a_refused_batch_changes_nothing_and_goes_on_where_the_user_says_so(
    url: str, payments: DataFrame, batch: Batch
) -> None:
    sink = sql_sink(url, "payments")
    sink.write(payments, FIRST)
    sink.write(payments, SECOND)
    with pytest.raises(BatchRefused) as refused:
        sink.write(payments, batch)
    assert asked(url, "SELECT count(*) FROM payments") == [(200,)]
    _, mark, _ = str(refused.value).rsplit("'", 2)
    going_on = sql_sink(url, "payments", accept_after=mark)
    assert going_on.write(payments, batch) is Outcome.ACCEPTED
    assert going_on.write(payments, batch) is Outcome.DUPLICATE
    with pytest.raises(BatchRefused):
        going_on.write(payments, Batch("query", 7, "z"))
    assert asked(url, "SELECT count(*) FROM payments") == [(300,)]


def test_two_sinks_of_one_database_claim_each_for_itself(url: str, payments: DataFrame) -> None:
    for name in ("one", "other"):
        assert sql_sink(url, "payments", sink_id=name).write(payments, FIRST) is Outcome.ACCEPTED
    assert asked(url, "SELECT count(*) FROM payments") == [(200,)]


def test_an_upsert_leaves_one_row_for_each_key(url: str, payments: DataFrame) -> None:
    sink = sql_sink(url, "payments", mode="upsert", key="id")
    sink.write(payments, FIRST)
    sink.write(payments.where("id < 10").selectExpr("id", "'changed' AS name"), SECOND)
    assert asked(url, "SELECT count(*), sum(CASE name WHEN 'changed' THEN 1 ELSE 0 END) FROM payments") == [(100, 10)]


def test_the_greatest_version_of_a_key_stays_whatever_order_the_rows_are_in(url: str, spark: SparkSession) -> None:
    sink = sql_sink(url, "accounts", mode="upsert", key=["id"], version="version")
    columns = "id long, version long, name string, note string"

    def rows(*given: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(given, columns)

    both = [(1, 5, "e", "x"), (1, 7, "g", None), (1, 6, "f", "x"), (2, None, "null", "x"), (3, 1, "a", "y")]
    sink.write(rows(*both, (3, 1, "a", "z"), (3, 1, None, "z")), FIRST)
    assert asked(url, "SELECT * FROM accounts") == [(1, 7, "g", None), (2, None, "null", "x"), (3, 1, "a", "z")]
    sink.write(rows((1, 6, "late", "x"), (2, 0, "first", "x"), (3, 1, "again", "x"), (3, None, "null", "x")), SECOND)
    assert asked(url, "SELECT * FROM accounts") == [(1, 7, "g", None), (2, 0, "first", "x"), (3, 1, "again", "x")]


def test_two_rows_of_one_key_without_a_version_are_refused(url: str, spark: SparkSession) -> None:
    sink = sql_sink(url, "accounts", mode="upsert", key=["id"])
    doubled = spark.createDataFrame([(1, "a"), (1, "b")], "id long, name string")
    with pytest.raises(ValueError, match="two rows of one batch have the same key"):
        sink.write(doubled, FIRST)
    assert asked(url, "SELECT * FROM accounts") == []
    assert sink.write(doubled.limit(1), FIRST) is Outcome.ACCEPTED


def test_rows_that_are_all_key_are_kept_once(url: str, spark: SparkSession) -> None:
    sink = sql_sink(url, "seen", mode="upsert", key="id")
    for batch in (FIRST, SECOND):
        sink.write(spark.range(5), batch)
    assert asked(url, "SELECT count(*) FROM seen") == [(5,)]


def test_a_merge_adds_up_over_rows_and_batches(url: str, spark: SparkSession) -> None:
    sink = sql_sink(url, "balances", mode="merge", key="id", merge={"total": "sum", "least": "min", "most": "max"})

    def write(batch: Batch, *amounts: tuple[int, int | None]) -> Outcome:
        moved = spark.createDataFrame(amounts, "id long, total long")
        return sink.write(moved.selectExpr("*", "total AS least", "total AS most"), batch)

    write(FIRST, (1, 10), (1, 5), (2, None), (1, -3))
    assert write(SECOND, (1, 100), (2, 4), (1, None), (3, None)) is Outcome.ACCEPTED
    assert write(SECOND, (1, 100), (2, 4), (1, None), (3, None)) is Outcome.DUPLICATE
    assert set(asked(url, "SELECT id, total, least, most FROM balances WHERE id < 3")) == {
        (1, 112, -3, 100),
        (2, 4, 4, 4),
    }
    assert asked(url, "SELECT * FROM balances WHERE id = 3") == [(3, None, None, None)]


def test_a_merge_may_be_a_statement_of_the_users_own(url: str, payments: DataFrame) -> None:
    changed(url, "CREATE TABLE lengths (length integer PRIMARY KEY, names integer)")
    statement = (
        "INSERT INTO lengths AS target SELECT length(name), count(*) FROM {rows} AS staged "
        "WHERE name LIKE 'payment%' GROUP BY length(name) "
        "ON CONFLICT (length) DO UPDATE SET names = target.names + excluded.names"
    )
    sink = sql_sink(url, "lengths", mode="merge", merge=statement)
    for batch in (FIRST, SECOND, SECOND):
        sink.write(payments, batch)
    assert asked(url, "SELECT * FROM lengths") == [(9, 20), (10, 180)]


MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
VALUES: list[tuple[str, Any, Any, Any]] = [
    # The type of Spark, the value, what PostgreSQL gives back, and what SQLite does.
    ("boolean", True, True, 1),
    ("tinyint", -128, -128, -128),
    ("smallint", 32767, 32767, 32767),
    ("int", -5, -5, -5),
    ("bigint", 2**63 - 1, 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5, 0.5),
    ("double", 0.1, 0.1, 0.1),
    ("decimal(38,18)", Decimal("1E-18"), Decimal("1E-18"), "1E-18"),
    ("string", 'a "quoted",\nand \\N \\. é', 'a "quoted",\nand \\N \\. é', 'a "quoted",\nand \\N \\. é'),
    ("binary", bytes(range(256)), bytes(range(256)), bytes(range(256))),
    ("date", date(1, 1, 1), date(1, 1, 1), "0001-01-01"),
    ("timestamp", MOMENT, MOMENT, "1969-12-31 23:59:59.999999Z"),
    ("timestamp_ntz", datetime(9999, 12, 31, 1, 2, 3), datetime(9999, 12, 31, 1, 2, 3), "9999-12-31 01:02:03.000000"),
    ("array<int>", [1, None], [1, None], "[1,null]"),
    ("map<string,int>", {"a": 1}, {"a": 1}, '{"a":1}'),
    ("struct<a:int,b:string>", (1, None), {"a": 1, "b": None}, '{"a":1,"b":null}'),
]


def test_each_type_arrives_as_it_was(url: str, spark: SparkSession) -> None:
    # Names that Spark would take for a part of a column, or for the end of the name.
    schema = ", ".join(f"`c.``{number}` {type_}" for number, (type_, *_) in enumerate(VALUES))
    given = tuple(value for _, value, *_ in VALUES)
    rows = spark.createDataFrame([given, tuple(None for _ in VALUES)], schema)
    sink = sql_sink(url, 'odd "name"')
    assert sink.write(rows.repartition(1), FIRST) is Outcome.ACCEPTED
    kept = 3 if url.startswith("sqlite") else 2
    [arrived] = asked(url, 'SELECT * FROM "odd ""name""" WHERE "c.`0" IS NOT NULL')
    assert arrived == tuple(expected[kept] for expected in VALUES)
    assert asked(url, 'SELECT * FROM "odd ""name""" WHERE "c.`0" IS NULL') == [tuple(None for _ in VALUES)]


def test_an_empty_string_is_no_null(url: str, spark: SparkSession) -> None:
    sql_sink(url, "strings").write(spark.createDataFrame([("",), (None,)], "name string"), FIRST)
    assert asked(url, "SELECT count(*), count(name), max(length(name)) FROM strings") == [(2, 1, 0)]


def test_a_moment_of_a_session_in_another_zone_is_the_same_moment(url: str, spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp '2026-07-01 12:00:00+00:00' AS at")
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        sql_sink(url, "moments").write(rows, FIRST)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    expected = "2026-07-01 12:00:00.000000Z" if url.startswith("sqlite") else datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert asked(url, "SELECT at FROM moments") == [(expected,)]


def test_a_moment_inside_of_a_value_keeps_its_microseconds(url: str, spark: SparkSession) -> None:
    moment = "1969-12-31 23:59:59.000001"
    rows = spark.sql(f"SELECT array(timestamp '{moment}Z') AS at, map('ntz', timestamp_ntz '{moment}') AS local")
    sql_sink(url, "nested").write(rows, FIRST)
    [found] = asked(url, "SELECT * FROM nested")
    at, local = map(json.loads, found) if url.startswith("sqlite") else found
    assert (at, local) == (["1969-12-31T23:59:59.000001Z"], {"ntz": "1969-12-31T23:59:59.000001"})


def test_a_row_that_has_null_in_its_key_is_refused(url: str, spark: SparkSession) -> None:
    changed(url, "CREATE TABLE balances (account text UNIQUE, balance bigint)")
    rows = spark.sql("SELECT cast(NULL AS string) AS account, 5L AS balance")
    for options in ({"mode": "upsert"}, {"mode": "merge", "merge": {"balance": "sum"}}):
        sink = sql_sink(url, "balances", key="account", **options)  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match=r"1 row has null in the key \(account\), such as \(account=NULL, balance=5\)"
        ):
            sink.write(rows, FIRST)
    assert asked(url, "SELECT * FROM balances") == []


def test_a_column_by_the_name_of_one_that_the_sink_adds_is_refused(url: str, spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 5 AS SEMEL_rank, 7 AS version")
    sink = sql_sink(url, "ranks", "upsert", key="id", version="version")
    with pytest.raises(ValueError, match="column 'SEMEL_rank' has a name that the sink needs for itself"):
        sink.write(rows, FIRST)


def test_a_table_that_is_there_keeps_its_types(postgres: PostgresServer, spark: SparkSession) -> None:
    url = postgres.new_database()
    changed(
        url,
        "CREATE SCHEMA bank",
        "CREATE TABLE bank.events (id uuid, body jsonb, at timestamp, at_text timestamptz, extra text DEFAULT 'kept')",
    )
    rows = spark.sql(
        "SELECT '7f9c24e8-3b12-4fef-91e0-56a2d5c2a3b1' AS id, '{\"a\": 1}' AS body, "
        "timestamp '2026-07-01 12:00:00+00:00' AS at, '2026-07-01 12:00:00+02:00' AS at_text"
    )
    sql_sink(url, "bank.events").write(rows, FIRST)
    [(identity, body, at, at_text, extra)] = asked(url, "SELECT * FROM bank.events")
    assert (str(identity)[:8], body, at) == ("7f9c24e8", {"a": 1}, datetime(2026, 7, 1, 12))
    assert (at_text, extra) == (datetime(2026, 7, 1, 10, tzinfo=UTC), "kept")


def test_bytes_are_not_written_as_text_that_stands_for_them(postgres: PostgresServer, spark: SparkSession) -> None:
    url = postgres.new_database()
    changed(url, "CREATE TABLE events (id bytea, value text)")
    rows = spark.sql("SELECT X'01' AS id, X'7b7d' AS value")
    with pytest.raises(ValueError, match="column 'value' is binary in the rows and text in events: cast it"):
        sql_sink(url, "events").write(rows, FIRST)
    sql_sink(url, "events", columns=["id", "cast(value AS string) AS value"]).write(rows, FIRST)
    assert asked(url, "SELECT * FROM events") == [(b"\x01", "{}")]


def test_a_column_that_the_table_lacks_is_named(url: str, payments: DataFrame) -> None:
    changed(url, "CREATE TABLE payments (id bigint)")
    with pytest.raises(ValueError, match="table payments has no column 'name': it has id") as refused:
        sql_sink(url, "payments").write(payments, FIRST)
    [statement] = re.findall(r"(ALTER TABLE .*?)\)", str(refused.value))
    changed(url, statement)
    assert sql_sink(url, "payments").write(payments, FIRST) is Outcome.ACCEPTED
    with pytest.raises(ValueError, match=r"key=\.\.\. names 'number', and table payments has no such column"):
        sql_sink(url, "payments", "upsert", key="number")


def test_a_type_that_no_database_has_is_refused_by_the_name_of_its_column(url: str, spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="column 'pause' is of type interval day"):
        sql_sink(url, "pauses").write(spark.sql("SELECT interval 1 day AS pause"), FIRST)


def test_sqlite_neither_adds_up_nor_compares_decimals(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 1.50BD AS amount")
    for options in ({"mode": "merge", "merge": {"amount": "sum"}}, {"mode": "upsert", "version": "amount"}):
        sink = sql_sink(f"sqlite:///{tmp_path}/rows.db", "amounts", key="id", **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"column 'amount' is a decimal\(3,2\), for which SQLite has no number"):
            sink.write(rows, FIRST)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("NUMERIC(38, 2)", "12345678901234567.89BD"),
        ("INTEGER", "'007'"),
        ("DECIMAL", "'1e5'"),
        ("double", "9007199254740993L"),
        ("VARCHAR(99)", "cast(0.1 AS double) + cast(0.2 AS double)"),
    ],
)
def test_a_column_of_sqlite_that_would_change_a_value_is_refused(
    tmp_path: Path, spark: SparkSession, declared: str, value: str
) -> None:
    url = f"sqlite:///{tmp_path}/rows.db"
    changed(url, f"CREATE TABLE rows (id INTEGER, amount {declared})")
    rows = spark.sql(f"SELECT 1 AS id, {value} AS amount")
    with pytest.raises(ValueError, match=rf"column 'amount' is .* in the rows and {re.escape(declared)} in rows"):
        sql_sink(url, "rows").write(rows, FIRST)
    assert asked(url, "SELECT * FROM rows") == []


def test_a_column_of_sqlite_that_keeps_a_value_takes_it(tmp_path: Path, spark: SparkSession) -> None:
    url = f"sqlite:///{tmp_path}/rows.db"
    changed(url, "CREATE TABLE rows (amount NUMERIC, day DATE, at DATETIME, account, number TEXT)")
    rows = spark.sql(
        "SELECT 1234567890123.45BD AS amount, date '2026-01-01' AS day, timestamp '2026-01-01 00:00:00Z' AS at, "
        "'007' AS account, 9007199254740993L AS number"
    )
    sql_sink(url, "rows").write(rows, FIRST)
    kept = (1234567890123.45, "2026-01-01", "2026-01-01 00:00:00.000000Z", "007", "9007199254740993")
    assert asked(url, "SELECT * FROM rows") == [kept]


NARROWER = [
    ("numeric(10,2)", "1.005BD"),
    ("numeric(10,2)", "cast(1.005 AS double)"),
    ("numeric(10,2)", "'1.005'"),
    ("numeric(5,-2)", "12345"),
    ("real", "12345678.5BD"),
    ("real", "123456789"),
    ("double precision", "9007199254740993L"),
    ("real", "'12345678.5'"),
    ("double precision", "'0.12345678901234567'"),
    ("date", "'2026-07-01 12:00:00'"),
    ("time without time zone", "'2026-07-01 12:00:00'"),
    ("timestamp without time zone", "'2026-07-01 12:00:00+02'"),
    ("date", "timestamp '2026-07-01 12:00:00Z'"),
    ("timestamp(3) with time zone", "timestamp '2026-07-01 12:00:00.000001Z'"),
    ("character(9)", "'a'"),
    ("cents", "1.005BD"),
    ("fee", "1.005BD"),
    ("money", "1.005BD"),
    ("money", "'1.005'"),
    ("name", "repeat('a', 64)"),
    ('"char"', "'ab'"),
]


def test_a_column_of_postgresql_that_would_round_a_value_or_cut_it_off_is_refused(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    """What does not fit PostgreSQL refuses by itself; these it would store as another value, without a word."""
    url = postgres.new_database()
    changed(url, "CREATE DOMAIN cents AS numeric(10,2)")
    changed(url, "CREATE DOMAIN fee AS cents")
    for number, (declared, value) in enumerate(NARROWER):
        changed(url, f"CREATE TABLE rows{number} (id bigint, amount {declared})")
        rows = spark.sql(f"SELECT 1L AS id, {value} AS amount")
        with pytest.raises(ValueError, match=rf"column 'amount' is .* in the rows and .* in rows{number}, where"):
            sql_sink(url, f"rows{number}").write(rows, FIRST)
        assert asked(url, f"SELECT * FROM rows{number}") == []


def test_a_column_of_postgresql_that_keeps_a_value_takes_it(postgres: PostgresServer, spark: SparkSession) -> None:
    url = postgres.new_database()
    changed(
        url,
        "CREATE TABLE rows (amount numeric(12,3), total numeric, text numeric, part real, number double precision, "
        "at timestamp(6) with time zone, said timestamptz, name character varying(9))",
    )
    rows = spark.sql(
        "SELECT 1.05BD AS amount, 1.005BD AS total, '1.005' AS text, 1.5BD AS part, 9007199 AS number, "
        "timestamp '2026-07-01 12:00:00.000001Z' AS at, '2026-07-01 14:00:00.000001+02' AS said, 'a' AS name"
    )
    sql_sink(url, "rows").write(rows, FIRST)
    at = datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=UTC)
    kept = (Decimal("1.050"), Decimal("1.005"), Decimal("1.005"), 1.5, 9007199.0, at, at, "a")
    assert asked(url, "SELECT * FROM rows") == [kept]


def test_a_text_of_which_postgresql_would_cut_off_the_last_spaces_is_refused(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    """As it refuses by itself what is too long for other reasons; what fits keeps its spaces."""
    url = postgres.new_database()
    changed(url, "CREATE DOMAIN code AS character varying(3)")
    changed(url, 'CREATE TABLE rows (name character varying(3), "a""code" code, "üß" varchar(3) PRIMARY KEY)')
    sink = sql_sink(url, "rows", "upsert", key="üß")
    for name, code in [("abc ", "abc"), ("abc", "abc ")]:
        with pytest.raises(Exception, match=r"column (name|a\"code): over 3 characters"):
            sink.write(spark.sql(f"SELECT '{name}' AS name, '{code}' AS `a\"code`, 'üß' AS `üß`"), FIRST)
        assert asked(url, "SELECT * FROM rows") == []
    sink.write(spark.sql("""SELECT 'ab ' AS name, 'ä  ' AS `a"code`, '  ü' AS `üß`"""), FIRST)
    assert asked(url, "SELECT * FROM rows") == [("ab ", "ä  ", "  ü")]


@pytest.mark.parametrize("value", ["'12abc'", "date '2026-07-01'", "timestamp '2026-07-01 12:00:00'", "X'31'"])
def test_sqlite_adds_up_nothing_but_numbers(tmp_path: Path, spark: SparkSession, value: str) -> None:
    sink = sql_sink(f"sqlite:///{tmp_path}/rows.db", "sums", "merge", key="id", merge={"amount": "sum"})
    with pytest.raises(ValueError, match="column 'amount' is no number, and cannot be added up"):
        sink.write(spark.sql(f"SELECT 1 AS id, {value} AS amount"), FIRST)


def test_a_sum_that_is_too_great_for_its_column_is_refused_and_not_rounded(url: str, spark: SparkSession) -> None:
    sink = sql_sink(url, "sums", "merge", key="id", merge={"amount": "sum"})
    assert sink.write(spark.sql(f"SELECT 1 AS id, {2**63 - 1} AS amount"), FIRST) is Outcome.ACCEPTED
    with pytest.raises(Exception, match=r"overflow|out of range"):
        sink.write(spark.sql("SELECT 1 AS id, 1L AS amount"), SECOND)
    assert asked(url, "SELECT id, amount FROM sums") == [(1, 2**63 - 1)]
    assert sink.write(spark.sql("SELECT 1 AS id, -1L AS amount"), SECOND) is Outcome.ACCEPTED
    assert asked(url, "SELECT id, amount FROM sums") == [(1, 2**63 - 2)]


def test_an_upsert_into_a_table_without_the_key_is_refused(url: str, payments: DataFrame) -> None:
    changed(url, "CREATE TABLE payments (id bigint, name text)")
    with pytest.raises(ValueError, match=r"needs a primary key or a unique index on exactly \(id\)"):
        sql_sink(url, "payments", mode="upsert", key="id").write(payments, FIRST)


def test_rows_without_a_column_that_was_named_are_refused(tmp_path: Path, payments: DataFrame) -> None:
    for arguments in ({"mode": "upsert", "key": "number"}, {"mode": "merge", "key": "number", "merge": {"id": "sum"}}):
        sink = sql_sink(f"sqlite:///{tmp_path}/rows.db", "payments", **arguments)
        with pytest.raises(
            ValueError, match=r"key=\.\.\. names 'number', and the rows have no such column: they have id"
        ):
            sink.write(payments, FIRST)


def test_an_upsert_beside_another_writer_of_the_same_new_key_replaces_its_row(
    postgres: PostgresServer, payments: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits when we have looked for the key, and not yet inserted it."""
    url = postgres.new_database()
    sink = sql_sink(url, "payments", mode="upsert", key="id")
    sink.write(payments.limit(0), FIRST)
    changed(
        url,
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_advisory_lock(7); PERFORM pg_advisory_unlock(7); RETURN NEW; END $$",
        "CREATE TRIGGER late BEFORE INSERT ON payments FOR EACH ROW WHEN (NEW.name <> 'of another writer') "
        "EXECUTE FUNCTION late()",
    )
    with psycopg.connect(url) as other, ThreadPoolExecutor() as pool:
        other.execute("SELECT pg_advisory_lock(7)")
        writing = pool.submit(sink.write, payments, SECOND)
        waits = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        while asked(url, waits) == [(0,)]:
            assert not writing.done()
        other.execute("INSERT INTO payments VALUES (3, 'of another writer')")
        other.commit()
        other.execute("SELECT pg_advisory_unlock(7)")
        assert writing.result() is Outcome.ACCEPTED
    assert asked(url, "SELECT count(*), min(name) FROM payments") == [(100, "payment 0")]
