"""What is decided for MySQL and MariaDB alone, asked of the driver's connection: which tables, keys and columns a sink
takes, and that no statement commits rows without their claim.
"""

from __future__ import annotations

import dataclasses
from itertools import count
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from test_table_commits import APPEND, BY_KEY, BY_VERSION, FIRST, SCHEMA, SECOND, asked, commit, rule_of, staged, stored

from semel.spark.claims import Outcome
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.database import Database, Staged, Target
from semel.spark.tables.mysql_columns import staging_types
from semel.spark.tables.sql_sink import database_of, sql_sink
from semel.spark.tables.statements import Write, literal

_numbers = count()
TENANT = "tenant varchar(9) CHARACTER SET utf8mb4"
REST = "id bigint NOT NULL, version bigint, name text"


def table_of(url: str, write: Write = APPEND, **more: Any) -> Database:
    return database_of(url, dataclasses.replace(Target("payments", "payments", "semel_batches", write), **more))


def in_staging(url: str, schema: StructType, *rows: tuple[Any, ...]) -> Staged:
    """These rows in a table such as the one that tasks write into."""
    table = f"staging{next(_numbers)}"
    columns = ", ".join(f"{name} {kind}" for name, kind in staging_types(schema, "utf8mb4_nopad_bin").items())
    lines = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    asked(url, f"CREATE TABLE {table} ({columns})", f"INSERT INTO {table} VALUES {lines}")
    return Staged(f"(SELECT * FROM {table})", len(rows))


def in_quarantine(url: str) -> list[Any]:
    return asked(url, "SELECT reason FROM payments_quarantine")


# Which server, and which tables


def test_the_url_is_the_one_of_the_application_kit(mariadb_url: str) -> None:
    server = mariadb_url.partition("://")[2]
    for scheme in ("mysql", "mariadb", "mysql+pymysql", "mysql+aiomysql"):
        table_of(f"{scheme}://{server}?connect_timeout=60").check()
    assert sql_sink(f"mysql://{server}", "rows").name == "mysql:rows"
    with pytest.raises(
        ConnectionError, match=r"sink 'mysql:payments' cannot reach MySQL or MariaDB at 127\.0\.0\.1:1/shop"
    ) as failed:
        table_of("mysql://app:secret@127.0.0.1:1/shop").check()
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("table", ["payments", "semel_batches", "payments_quarantine"])
def test_a_table_whose_engine_rolls_nothing_back_is_refused_by_its_name(mariadb_url: str, table: str) -> None:
    """Else its rows would stay when the claim is undone."""
    asked(mariadb_url, f"CREATE TABLE {table} (tenant varchar(9)) ENGINE = MyISAM")
    said = rf"{table} is in the engine MyISAM, which rolls nothing back.*ALTER TABLE {table} ENGINE = InnoDB"
    with pytest.raises(ValueError, match=said):
        commit(table_of(mariadb_url, quarantine="payments_quarantine"), FIRST, ("a", 1, 1, "x"))
    asked(mariadb_url, f"RENAME TABLE {table} TO there", f"CREATE VIEW {table} AS SELECT * FROM there")
    with pytest.raises(ValueError, match="is a view"):
        commit(table_of(mariadb_url, quarantine="payments_quarantine"), FIRST, ("a", 1, 1, "x"))


def test_a_table_of_another_database_of_the_server_is_meant_by_its_full_name(mariadb_url: str) -> None:
    database = mariadb_url.rpartition("/")[2]
    full = table_of(mariadb_url, table=f"{database}.payments", claims_table=f"{database}.semel_batches")
    assert commit(full, FIRST, ("a", 1, 1, "x")) is Outcome.ACCEPTED
    assert commit(table_of(mariadb_url), FIRST, ("a", 1, 1, "x")) is Outcome.DUPLICATE


def test_two_sinks_never_share_a_claim_because_somebody_converted_the_table_of_claims(mariadb_url: str) -> None:
    assert commit(table_of(mariadb_url, sink="Payments"), FIRST, ("a", 1, 1, "x")) is Outcome.ACCEPTED
    asked(mariadb_url, "ALTER TABLE semel_batches CONVERT TO CHARACTER SET utf8mb4")
    with pytest.raises(ValueError, match="key column 'sink_id' of semel_batches is compared by") as refused:
        commit(table_of(mariadb_url), FIRST, ("b", 1, 1, "x"))
    asked(mariadb_url, str(refused.value).partition("one: ")[2])
    assert commit(table_of(mariadb_url), FIRST, ("b", 1, 1, "x")) is Outcome.ACCEPTED
    asked(mariadb_url, "ALTER TABLE semel_batches DROP PRIMARY KEY")
    with pytest.raises(ValueError, match=r"semel_batches needs a primary key or a unique index on exactly \(sink_id\)"):
        commit(table_of(mariadb_url), SECOND, ("c", 1, 1, "x"))


def test_a_quarantine_that_could_cut_a_row_is_refused(mariadb_url: str) -> None:
    database = table_of(mariadb_url, quarantine="payments_quarantine")
    commit(database, FIRST, ("a", 1, 1, "x"))
    asked(mariadb_url, 'ALTER TABLE payments_quarantine MODIFY "row" char(200)')
    with pytest.raises(ValueError, match=r"column 'row' is string in the rows and char\(200\) in payments_quarantine"):
        commit(database, SECOND, ("a", 1, 1, "x"))


# Keys


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_a_key_that_takes_different_texts_for_one_is_refused_with_the_remedy(mariadb_url: str, collation: str) -> None:
    asked(mariadb_url, f"CREATE TABLE payments ({TENANT} COLLATE {collation}, {REST}, PRIMARY KEY (tenant, id))")
    with pytest.raises(ValueError, match=f"key column 'tenant' of payments is compared by {collation}") as refused:
        commit(table_of(mariadb_url, BY_KEY), FIRST, ("a", 1, 1, "x"))
    asked(mariadb_url, str(refused.value).partition("one: ")[2])
    rows: list[Any] = [("A", 1, 1, "A"), ("a", 1, 1, "a"), ("a ", 1, 1, "a "), ("ä", 1, 1, "ä")]
    assert commit(table_of(mariadb_url, BY_KEY), FIRST, *rows) is Outcome.ACCEPTED
    assert len(stored(mariadb_url)) == len(rows)


def test_texts_that_an_ordinary_collation_takes_for_one_are_different_keys(mariadb_url: str) -> None:
    rows: list[Any] = [(tenant, 1, version, tenant) for version, tenant in enumerate(["A", "a", "a ", "ä"])]
    for write, claim in ((BY_VERSION, FIRST), (BY_KEY, SECOND)):
        assert commit(table_of(mariadb_url, write), claim, *rows) is Outcome.ACCEPTED
        assert sorted(stored(mariadb_url)) == sorted(rows)


def test_keys_that_differ_only_at_their_ends_are_different_ones(mariadb_url: str) -> None:
    """A server sorts the first 1024 bytes of a text, unless it is told to sort more."""
    schema = StructType([StructField("k", StringType()), StructField("v", LongType())])
    declared = "CHARACTER SET latin1 COLLATE latin1_nopad_bin"
    asked(mariadb_url, f"CREATE TABLE greatest (k varchar(3072) {declared} PRIMARY KEY, v bigint)")
    for table, begin in (("payments", "é" * 767), ("greatest", "u" * 3071)):
        given = in_staging(mariadb_url, schema, (begin + "A", 1), (begin + "B", 2))
        with table_of(mariadb_url, Write("upsert", ("k",), "v"), table=table, sink=table).connected(
            schema
        ) as connected:
            connected.commit(given, FIRST, rule_of(FIRST))
        assert asked(mariadb_url, f"SELECT right(k, 1), v FROM {table} ORDER BY v") == [("A", 1), ("B", 2)]


def test_of_two_long_rows_with_one_version_the_same_one_stays_in_any_order(mariadb_url: str) -> None:
    """And the greater one in what begins a text."""
    fields = {"k": LongType(), "v": LongType(), "name": StringType(), "nested": ArrayType(LongType())}
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    ends = [(1, 1, "x" * 70000 + end, "[]") for end in ("A", "B", "C")]
    begins = [(2, 1, "a", "[2]"), (2, 1, "b", "[1]"), (2, 1, "b", "[0]")]
    for table, rows in (("forth", [*ends, *begins]), ("back", [*reversed(ends), *reversed(begins)])):
        database = table_of(mariadb_url, Write("upsert", ("k",), "v"), table=table, sink=table)
        with database.connected(schema) as connected:
            connected.commit(in_staging(mariadb_url, schema, *rows), FIRST, rule_of(FIRST))
    kept = asked(mariadb_url, "SELECT * FROM forth ORDER BY k")
    assert kept == asked(mariadb_url, "SELECT * FROM back ORDER BY k")
    assert kept[1][2:] == ("b", "[1]")


def test_a_version_that_is_too_long_to_be_sorted_is_refused(mariadb_url: str) -> None:
    schema = StructType([StructField("k", LongType()), StructField("v", StringType())])
    with table_of(mariadb_url, Write("upsert", ("k",), "v")).connected(schema) as connected:
        fits: Any = connected.fits(staging_types(schema, ""))  # type: ignore[attr-defined]
        assert fits["v"].bytes_max == 3072


@pytest.mark.parametrize("write", [BY_KEY, BY_VERSION, Write("merge", ("tenant", "id"), merge={"version": "sum"})])
def test_a_row_that_is_like_another_one_only_outside_of_its_key_is_refused(mariadb_url: str, write: Write) -> None:
    """MySQL would replace the other one."""
    key = f"{TENANT} COLLATE utf8mb4_nopad_bin NOT NULL"
    asked(mariadb_url, f"CREATE TABLE payments ({key}, {REST}, PRIMARY KEY (tenant, id), UNIQUE (version))")
    schema = StructType(SCHEMA.fields[:3]) if write.mode == "merge" else SCHEMA
    database = table_of(mariadb_url, write, quarantine="payments_quarantine")
    first = [("a", 1, 5, None), ("c", 1, 6, None)]
    second = [("a", 1, 7, None), ("b", 1, 6, None), ("b", 2, 8, None)]
    for claim, rows in ((FIRST, first), (SECOND, second)):
        with database.connected(schema) as connected:
            given = staged(database, *rows)
            assert connected.commit(given, claim, rule_of(claim)) is Outcome.ACCEPTED
    changed = 12 if write.mode == "merge" else 7
    assert [row[:3] for row in stored(mariadb_url)] == [("a", 1, changed), ("b", 2, 8), ("c", 1, 6)]
    [(reason,)] = in_quarantine(mariadb_url)
    assert reason == "another row has the same value in another unique index"


@pytest.mark.parametrize(
    "declared",
    ["bigint AUTO_INCREMENT PRIMARY KEY", "bigint UNIQUE", "timestamp(6) NOT NULL PRIMARY KEY"],
)
@pytest.mark.parametrize("is_merge", [False, True])
def test_a_row_that_is_like_another_one_is_refused_whatever_null_means_in_its_key(
    mariadb_url: str, declared: str, is_merge: bool
) -> None:
    """Null is the next number in one of these columns, the time in another one: the row stored there got that key."""
    kind: DataType
    keys, kind = ("5", "7"), LongType()
    if "timestamp" in declared:
        keys, kind = ("TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2021-01-01 00:00:00'"), TimestampType()
        asked(mariadb_url, "SET GLOBAL explicit_defaults_for_timestamp = OFF")
    try:
        asked(mariadb_url, f"CREATE TABLE payments (id {declared}, other bigint UNIQUE, n bigint)")
        combined = {"other": "max", "n": "sum"}
        write = Write("merge", ("id",), merge=combined) if is_merge else Write("upsert", ("id",))
        database = table_of(mariadb_url, write, quarantine="payments_quarantine")
        fields = (StructField("id", kind), StructField("other", LongType()), StructField("n", LongType()))
        with database.connected(StructType([*fields])) as connected:
            for claim, key in zip((FIRST, SECOND), keys, strict=True):
                one = Staged(f"(SELECT {key} AS id, 1 AS other, {claim.batch_id} AS n)", 1)
                assert connected.commit(one, claim, rule_of(claim)) is Outcome.ACCEPTED
    finally:
        asked(mariadb_url, "SET GLOBAL explicit_defaults_for_timestamp = ON")
    assert asked(mariadb_url, f"SELECT other, n FROM payments WHERE id = {keys[0]}") == [(1, 0)]
    assert in_quarantine(mariadb_url) == [("another row has the same value in another unique index",)]


def test_a_unique_index_on_a_part_of_the_key_is_not_enough(mariadb_url: str) -> None:
    key = f"{TENANT} COLLATE utf8mb4_nopad_bin"
    asked(mariadb_url, f"CREATE TABLE payments ({key}, {REST}, UNIQUE (tenant(3), id))")
    with pytest.raises(ValueError, match=r"needs a primary key or a unique index on exactly \(tenant, id\)"):
        commit(table_of(mariadb_url, BY_KEY), FIRST, ("a", 1, 1, "x"))


# Columns

LOSSES: list[tuple[DataType, str]] = [
    *((DecimalType(4, 3), declared) for declared in ("decimal(10,2)", "int", "text")),
    *((DoubleType(), declared) for declared in ("decimal(10,2)", "bigint", "float", "double(10,2)")),
    (FloatType(), "float(7,2)"),
    *((StringType(), declared) for declared in ("bigint", "decimal(10,2)", "double", "datetime(6)", "char(9)")),
    *((StringType(), declared) for declared in ("enum('A')", "binary(9)", "bit(8)")),
    *((LongType(), declared) for declared in ("double", "float", "year", "bit(8)", "text")),
    *((TimestampType(), declared) for declared in ("date", "datetime", "datetime(3)", "timestamp", "text")),
    *((TimestampNTZType(), "timestamp(6)"), (BinaryType(), "text"), (DateType(), "time"), (IntegerType(), "float")),
    *((ArrayType(LongType()), "blob"), (DecimalType(16, 0), "double"), (BooleanType(), "text")),
]


def test_a_column_that_could_change_a_value_is_refused_by_its_name(mariadb_url: str) -> None:
    for number, (kind, declared) in enumerate(LOSSES):
        asked(mariadb_url, f"CREATE TABLE rows{number} (amount {declared})")
        database = table_of(mariadb_url, table=f"rows{number}")
        with (
            pytest.raises(ValueError, match=rf"column 'amount' is .* in the rows and .* in rows{number}, where MySQL"),
            database.connected(StructType([StructField("amount", kind)])),
        ):
            pass


KEPT: list[tuple[DataType, str, str, Any]] = [
    (DecimalType(38, 0), "bigint", "CAST(9007199254740993 AS decimal(38,0))", 9007199254740993),
    (DecimalType(4, 2), "decimal(10,3)", "CAST('1.05' AS decimal(4,2))", 1.05),
    (DecimalType(15, 2), "double", "CAST('1234567890123.45' AS decimal(15,2))", 1234567890123.45),
    (LongType(), "int unsigned", "4294967295", 4294967295),
    (IntegerType(), "double", "2147483647", 2147483647.0),
    (FloatType(), "float", "CAST(0.5 AS double)", 0.5),
    (StringType(), "varchar(3)", "'ab '", "ab "),
    (StringType(), "varbinary(3)", "'ab '", b"ab "),
    (StringType(), "json", """'{"a": 1}'""", '{"a": 1}'),
    (ArrayType(LongType()), "text", "'[1,null]'", "[1,null]"),
    (BooleanType(), "boolean", "true", 1),
]


def test_a_column_that_keeps_a_value_takes_it(mariadb_url: str) -> None:
    for number, (kind, declared, value, expected) in enumerate(KEPT):
        asked(mariadb_url, f"CREATE TABLE rows{number} (amount {declared})")
        database = table_of(mariadb_url, table=f"rows{number}", sink=str(number))
        with database.connected(StructType([StructField("amount", kind)])) as connected:
            connected.commit(Staged(f"(SELECT {value} AS amount)", 1), FIRST, rule_of(FIRST))
        [(kept,)] = asked(mariadb_url, f"SELECT amount FROM rows{number}")
        assert (float(kept) if isinstance(expected, float) else kept) == expected


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("int", 2**31),
        ("int unsigned", -1),
        ("bigint NOT NULL", None),
        ("bigint AUTO_INCREMENT PRIMARY KEY", None),
    ],
)
def test_a_number_that_a_column_has_no_place_for_is_refused_and_not_changed(
    mariadb_url: str, declared: str, value: int | None
) -> None:
    asked(mariadb_url, f"CREATE TABLE payments (tenant text, id {declared}, version bigint, name text)")
    database = table_of(mariadb_url)
    if value is None:
        # The task refuses it already: MySQL would give a number to one of these columns.
        with database.connected(SCHEMA) as connected:
            fits: Any = connected.fits({"id": "bigint"})  # type: ignore[attr-defined]
            assert fits["id"].is_needed
        return
    with pytest.raises(ValueError, match=r"payments refuses a row.*Out of range value for column 'id'"):
        commit(database, FIRST, ("a", 1, 1, "x"), ("a", value, 1, "x"))
    assert stored(mariadb_url) == []


def test_a_number_zero_stays_zero_where_the_server_counts(mariadb_url: str) -> None:
    counted = "id bigint AUTO_INCREMENT PRIMARY KEY"
    asked(mariadb_url, f"CREATE TABLE payments (tenant text, {counted}, version bigint, name text)")
    assert commit(table_of(mariadb_url), FIRST, ("a", 0, 1, "x")) is Outcome.ACCEPTED
    assert [row[1] for row in stored(mariadb_url)] == [0]


def test_the_statement_that_adds_a_column_can_be_run_as_it_is_shown(mariadb_url: str) -> None:
    asked(mariadb_url, "CREATE TABLE payments (tenant text, id bigint, version bigint)")
    with pytest.raises(ValueError, match="no column 'name'") as refused:
        commit(table_of(mariadb_url), FIRST, ("a", 1, 1, "x"))
    statement = str(refused.value).partition("add_columns=True, or ")[2].partition("), or leave")[0]
    asked(mariadb_url, "SET sql_mode = ''", statement)
    assert commit(table_of(mariadb_url), FIRST, ("a", 1, 1, "x")) is Outcome.ACCEPTED


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin", "latin1_swedish_ci"])
def test_texts_of_any_collation_are_replaced_and_compared_byte_by_byte(mariadb_url: str, collation: str) -> None:
    """MariaDB's json is a text in utf8mb4_bin, too, and mixes with no other collation."""
    text = f"varchar(9) CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}"
    columns = f"v {text}, name {text}, nested json"
    asked(mariadb_url, *(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {columns})" for table in ("newer", "greater")))
    kinds = {"id": LongType(), "v": StringType(), "name": StringType(), "nested": ArrayType(LongType())}
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    rows = [("B", "first", "[1]"), ("a", "second", "[2]"), ("C", "older", "[3]")]
    combined = {"v": "max", "name": "min", "nested": "max"}
    writes = {"newer": Write("upsert", ("id",), "v"), "greater": Write("merge", ("id",), merge=combined)}
    for table, write in writes.items():
        with table_of(mariadb_url, write, table=table, sink=table).connected(schema) as connected:
            for number, row in enumerate(rows):
                claim = TableClaim("query", number, str(number))
                connected.commit(in_staging(mariadb_url, schema, (1, *row)), claim, rule_of(claim))
    assert asked(mariadb_url, "SELECT v, name, nested FROM newer") == [("a", "second", "[2]")]
    assert asked(mariadb_url, "SELECT v, name, nested FROM greater") == [("a", "first", "[3]")]


# Rows and claim


def test_a_statement_of_the_users_own_that_commits_by_itself_is_refused_before_it_runs(mariadb_url: str) -> None:
    with pytest.raises(ValueError, match="this statement may commit by itself"):
        table_of(mariadb_url, Write("merge", merge="CREATE TABLE copy AS SELECT * FROM {rows} AS new"))


def test_a_transaction_that_the_users_own_statement_has_ended_is_not_taken_for_the_claims(mariadb_url: str) -> None:
    asked(mariadb_url, "CREATE TABLE payments (id bigint)")
    database = table_of(mariadb_url, Write("merge", merge="EXECUTE ends /* {rows} */"))
    with database.connected(SCHEMA) as connected:
        connected.run("PREPARE ends FROM 'COMMIT'")  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="has ended the transaction of the claim"):
            connected.commit(staged(database, ("a", 1, 1, "x")), FIRST, rule_of(FIRST))
    assert asked(mariadb_url, "SELECT query_id FROM semel_batches") == [(None,)]


def test_a_claim_that_another_driver_does_not_let_go_is_named_with_the_remedy(mariadb_url: str) -> None:
    impatient = table_of(f"{mariadb_url}?init_command=SET+innodb_lock_wait_timeout=0")
    with table_of(mariadb_url).connected(SCHEMA) as other:
        other.run("BEGIN")  # type: ignore[attr-defined]
        other.claim("FOR UPDATE")  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match=r"another driver holds the claim of sink 'payments'.*KILL"):
            commit(impatient, FIRST, ("a", 1, 1, "x"))


def test_a_driver_may_be_silent_while_tasks_stage_and_not_while_it_holds_the_claim(mariadb_url: str) -> None:
    database = table_of(mariadb_url)
    with database.connected(SCHEMA) as connected:
        ask: Any = connected.answer  # type: ignore[attr-defined]
        assert ask("SELECT @@wait_timeout") == [(30 * 24 * 60 * 60,)]
        connected.commit(staged(database, ("a", 1, 1, "x")), FIRST, rule_of(FIRST))
        assert ask("SELECT @@wait_timeout") == [(600,)]


def test_a_refused_row_that_no_quarantine_can_have_ends_the_query_by_name(mariadb_url: str) -> None:
    """As JSON a row may be longer than it was."""
    asked(mariadb_url, "CREATE TABLE payments (n bigint CHECK (n < 2), name longtext CHARACTER SET utf8mb4)")
    schema = StructType([StructField("n", LongType()), StructField("name", StringType())])
    with table_of(mariadb_url, quarantine="payments_quarantine").connected(schema) as connected:
        rows = Staged("(SELECT 5 AS n, repeat(char(10), @@max_allowed_packet * 0.6) AS name UNION SELECT 1, 'x')", 2)
        with pytest.raises(ValueError, match=r'payments refuses a row, {"n": 5, .*Raise max_allowed_packet'):
            connected.commit(rows, FIRST, rule_of(FIRST))
    assert asked(mariadb_url, "SELECT * FROM payments") == []


def test_a_claim_that_somebody_deletes_meanwhile_has_its_batch_run_again(mariadb_url: str) -> None:
    database = table_of(mariadb_url)
    with database.connected(SCHEMA) as connected:
        asked(mariadb_url, "DELETE FROM semel_batches")
        with pytest.raises(RuntimeError, match="is gone since the batch began"):
            connected.commit(staged(database, ("a", 1, 1, "x")), FIRST, rule_of(FIRST))
    assert stored(mariadb_url) == []


def test_a_name_that_is_too_long_for_a_claim_is_refused_and_not_cut(mariadb_url: str) -> None:
    with pytest.raises(Exception, match="Data too long for column 'sink_id'"):
        commit(table_of(mariadb_url, sink="x" * 256), FIRST, ("a", 1, 1, "x"))
