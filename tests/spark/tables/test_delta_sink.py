"""What a batch becomes in a Delta table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from file_names import NEEDS_MORE_THAN_ASCII
from semel.spark import delta_sink
from semel.spark.claims import Batch, BatchRefused, Outcome
from semel.spark.tables import delta_claims, delta_files, delta_schema
from semel.spark.tables.claims import TableClaim

FIRST, SECOND = Batch("query", 0, "a"), Batch("query", 1, "b")


@pytest.fixture
def payments(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100, numPartitions=3).selectExpr("id", "concat('payment ', id) AS name")


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.glob("semel-*/**/[!._]*.parquet")}


def test_a_batch_that_is_written_twice_is_in_the_table_once(tmp_path: Path, payments: DataFrame) -> None:
    sink = delta_sink(tmp_path / "table")
    assert sink.write(payments, FIRST) is Outcome.ACCEPTED
    assert sink.write(payments, FIRST) is Outcome.DUPLICATE
    assert sink.write(payments.where("id < 0"), SECOND) is Outcome.ACCEPTED
    assert sink.write(payments, Batch("query", 2)) is Outcome.ACCEPTED
    assert ids(tmp_path / "table") == sorted([*range(100), *range(100)])
    assert list(tmp_path.glob("**/_SUCCESS")) == []


@pytest.mark.parametrize("name", ["ts=2024-01-01 00%3A00", "100%25", "%20"])
def test_a_path_that_the_library_would_read_as_another_one_is_refused(tmp_path: Path, name: str) -> None:
    """It takes %3A for a colon, and the table would be in a directory beside it."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / name)
    for path in (tmp_path / name / "table", f"file://{tmp_path}/{name}", link / "table"):
        with pytest.raises(ValueError, match=r"deltalake would read .* as another path"):
            delta_sink(path)
    assert list(tmp_path.iterdir()) == [link]


@pytest.mark.parametrize("name", ["100%", "a%zz", "50% off", pytest.param("ü b#c?d+e:f", marks=NEEDS_MORE_THAN_ASCII)])
def test_a_path_with_what_looks_odd_and_is_itself_is_that_path(tmp_path: Path, payments: DataFrame, name: str) -> None:
    path = tmp_path / name / "table"
    assert delta_sink(path).write(payments, FIRST) is Outcome.ACCEPTED
    assert delta_sink(path).write(payments, FIRST) is Outcome.DUPLICATE
    assert [one.name for one in tmp_path.iterdir()] == [name]


def noted(path: Path, **versions: int) -> None:
    """A commit of another writer's, with application transactions of its own."""
    noted = [Transaction(app_id, version) for app_id, version in versions.items()]
    rows = pyarrow.table({"id": pyarrow.array([], pyarrow.int64()), "name": pyarrow.array([], pyarrow.string())})
    write_deltalake(path, rows, mode="append", commit_properties=CommitProperties(app_transactions=noted))


def test_an_application_id_of_the_users_own_that_is_the_name_of_the_sink_is_no_claim(
    tmp_path: Path, payments: DataFrame
) -> None:
    """Spark's own writer takes option txnAppId, and `semel` or `billing` are names that anybody may choose."""
    noted(tmp_path, semel=41, billing=7)
    for sink_id in (None, "billing"):
        sink = delta_sink(tmp_path, sink_id=sink_id)
        assert sink.write(payments, FIRST) is Outcome.ACCEPTED
        assert sink.write(payments, FIRST) is Outcome.DUPLICATE
    assert [DeltaTable(tmp_path).transaction_version(app_id) for app_id in ("semel", "billing")] == [41, 7]


def test_what_an_attempt_that_came_too_late_left_is_in_no_commit(tmp_path: Path) -> None:
    """A zombie makes the committer's directories again, behind the commit of its job."""
    late = "_temporary/0/_temporary/attempt_2_m_1"
    for name in (
        *("day=1/_hour=a%3Db/part-1.parquet", "day=2/_hour=3/part-2.parquet"),
        *(f"{late}/part-0.parquet", f"{late}/day=1/_hour=3/part-1.parquet", "day=1/_temporary/part-3.parquet"),
        *("part-4.parquet", "day=1/part-5.parquet", "day=1/_hour=1/.part-6.parquet", "day=1/_hour=1/_part-7.parquet"),
        *("other=1/_hour=1/part-8.parquet", "day=1/_hour=1/more=1/part-9.parquet", "day=1/_hour=1/part-1.parquet.crc"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(*partition_by: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in delta_files.files_of(tmp_path, partition_by)]

    assert found("day", "_hour") == ["day=1/_hour=a%3Db/part-1.parquet", "day=2/_hour=3/part-2.parquet"]
    assert found() == ["part-4.parquet"]


def test_a_refused_batch_leaves_the_table_as_it_is(tmp_path: Path, payments: DataFrame) -> None:
    sink = delta_sink(tmp_path)
    sink.write(payments, FIRST)
    before = files(tmp_path)
    with pytest.raises(BatchRefused):
        sink.write(payments, Batch("query", 3, "d"))
    assert (DeltaTable(tmp_path).version(), files(tmp_path)) == (1, before)


@contextmanager
def settings_of_old_spark(spark: SparkSession) -> Iterator[None]:
    """A session whose own files hold moments in another calendar, and in a type that Delta does not know."""
    old = {
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    }
    before = {name: str(spark.conf.get(name)) for name in old}
    try:
        for name, value in old.items():
            spark.conf.set(name, value)
        yield
        assert {name: spark.conf.get(name) for name in old} == old
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@NEEDS_MORE_THAN_ASCII
def test_partitions_and_types_are_read_as_they_were_written(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT *, timestamp '0001-01-01 00:00:00.000001+00:00' AS at, date '0001-01-01' AS day, "
        "1.50BD AS price, named_struct('a', array(1, null)) AS nested, timestamp_ntz '9999-12-31 01:02:03' AS local "
        "FROM VALUES ('a:b/c%d é=x', 1), (null, 2), ('plain', 3), ('', 4), ('__HIVE_DEFAULT_PARTITION__', 5) "
        "AS given(`kind of`, number)"
    )
    sink = delta_sink(f"file://{tmp_path}/table", partition_by=["kind of", "number"])
    with settings_of_old_spark(spark):
        assert sink.write(rows, FIRST) is Outcome.ACCEPTED
    read = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    kinds = {row["number"]: row["kind of"] for row in read}
    # Spark has one name for the directory of the last two and of what is null.
    assert kinds == {1: "a:b/c%d é=x", 2: None, 3: "plain", 4: None, 5: None}
    assert {str(row["at"])[:26] for row in read} == {"0001-01-01 00:00:00.000001"}
    assert {(str(row["day"]), str(row["price"]), str(row["local"])) for row in read} == {
        ("0001-01-01", "1.50", "9999-12-31 01:02:03")
    }
    assert read[0]["nested"] == {"a": [1, None]}


def test_a_session_keeps_its_own_settings(tmp_path: Path, payments: DataFrame) -> None:
    settings = {name: payments.sparkSession.conf.get(name) for name in delta_files.PARQUET_SETTINGS}
    delta_sink(tmp_path).write(payments, FIRST)
    assert {name: payments.sparkSession.conf.get(name) for name in settings} == settings


def test_rows_that_do_not_fit_the_table_are_refused(tmp_path: Path, spark: SparkSession, payments: DataFrame) -> None:
    sink = delta_sink(tmp_path)
    sink.write(payments, FIRST)
    adds = r"has no column 'extra': it has id, name\. .*alter\.add_columns\(deltalake\.Field\('extra', 'integer'\)\)"
    with pytest.raises(ValueError, match=adds):
        sink.write(payments.selectExpr("*", "1 AS extra"), SECOND)
    with pytest.raises(ValueError, match=r"column 'name' is integer in the rows and string in .* Cast it"):
        sink.write(payments.selectExpr("id", "1 AS name"), SECOND)
    with pytest.raises(ValueError, match="is partitioned by nothing, and partition_by is id"):
        delta_sink(tmp_path, partition_by="id")
    # Of these, Spark's name for a directory is not what Delta reads, or depends on the session.
    unfit = {"price": "0.1D", "amount": "1.5BD", "at": "timestamp '2026-01-01 00:00:00Z'", "bits": "X'00'"}
    for number, (name, value) in enumerate(unfit.items()):
        rows = spark.sql(f"SELECT 1 AS a, {value} AS {name}")
        with pytest.raises(ValueError, match=rf"column '{name}' is [a-z(),0-9]+: partition by"):
            delta_sink(tmp_path / f"other{number}", partition_by=name).write(rows, FIRST)


def test_a_column_that_the_rows_no_longer_have_is_null_in_them(tmp_path: Path, payments: DataFrame) -> None:
    """As in SQL, where it gets its default."""
    sink = delta_sink(tmp_path)
    sink.write(payments.where("id < 1"), FIRST)
    assert sink.write(payments.where("id < 1").select("id"), SECOND) is Outcome.ACCEPTED
    assert set(DeltaTable(tmp_path).to_pyarrow_table()["name"].to_pylist()) == {"payment 0", None}
    by_name = tmp_path / "by name"
    delta_sink(by_name, partition_by="name").write(payments.where("id < 1"), FIRST)
    with pytest.raises(ValueError, match=r"partition_by=\.\.\. names 'name', and the rows have no such column: id"):
        delta_sink(by_name, partition_by="name").write(payments.select("id"), SECOND)


def test_a_table_with_promises_that_nobody_would_check_is_refused(tmp_path: Path, payments: DataFrame) -> None:
    DeltaTable.create(tmp_path, Schema([Field("id", PrimitiveType("long"), nullable=False)]))
    with pytest.raises(ValueError, match="the table promises what this sink does not check for each row: id NOT NULL"):
        delta_sink(tmp_path).write(payments.select("id"), FIRST)


@pytest.mark.parametrize(
    ("metadata", "configuration", "promise"),
    [
        ({"delta.generationExpression": "other + 1"}, {}, "delta.generationExpression"),
        ({"delta.identity.start": 1, "delta.identity.step": 1}, {}, "delta.identity.start"),
        ({"delta.invariants": '{"expression": {"expression": "id > 0"}}'}, {}, "delta.invariants"),
        ({}, {"delta.columnMapping.mode": "name"}, "delta.columnMapping.mode"),
        ({}, {"delta.columnMapping.mode": "id"}, "delta.columnMapping.mode"),
    ],
    ids=["generated", "identity", "invariant", "mapped by name", "mapped by id"],
)
def test_a_table_whose_columns_another_writer_would_compute_or_rename_is_refused(
    tmp_path: Path, metadata: dict[str, str | int], configuration: dict[str, str], promise: str
) -> None:
    """Files with plain columns would have wrong values in it, or none that a reader finds."""
    schema = Schema([Field("other", PrimitiveType("long")), Field("id", PrimitiveType("long"), metadata=metadata)])
    table = DeltaTable.create(tmp_path, schema, configuration=configuration)
    with pytest.raises(ValueError, match=f"promises what this sink does not check for each row: {promise}\\. "):
        delta_schema.check_promises(table, json.loads(table.schema().to_json()))


def test_a_table_with_constraints_is_refused(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, Schema([Field("id", PrimitiveType("long"))]))
    table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ValueError, match=r"for each row: delta\.constraints\.positive\. Drop these"):
        delta_schema.check_promises(table, json.loads(table.schema().to_json()))


def test_a_file_is_added_with_its_rows_counted_and_its_partitions_named(tmp_path: Path) -> None:
    """Readers answer how many rows there are from the count alone."""
    directory = tmp_path / "semel-0" / "kind of=a%3Ab" / f"day={delta_files.NULL_PARTITION}"
    directory.mkdir(parents=True)
    parquet.write_table(pyarrow.table({"id": [1, 2, 3]}), directory / "part-0.parquet")
    parquet.write_table(pyarrow.table({"id": pyarrow.array([], pyarrow.int64())}), directory / "part-1.parquet")
    added = delta_files.add_action(directory / "part-0.parquet", tmp_path, tmp_path / "semel-0")
    assert added is not None
    assert added.path == f"semel-0/kind of=a%3Ab/day={delta_files.NULL_PARTITION}/part-0.parquet"
    assert added.partition_values == {"kind of": "a:b", "day": None}
    assert json.loads(added.stats) == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 3},
        "nullCount": {"id": 0},
    }
    assert added.size == (directory / "part-0.parquet").stat().st_size
    assert delta_files.add_action(directory / "part-1.parquet", tmp_path, tmp_path / "semel-0") is None


def test_the_numbers_of_a_claim_are_those_that_tables_hold_already() -> None:
    """A table knows a query and a plan by these numbers alone: fewer digits would take two of them for one, and others
    would take the last batch for that of another query.
    """
    claim = TableClaim("8c9de14c-c5ce-4d3f-9a68-9e8b1f3a2d10", 7, "0" * 64)
    assert delta_claims.numbered(claim) == TableClaim("375336755615051129", 7, "436292523663121138")


def test_the_name_that_spark_gives_to_the_directory_of_nulls_is_known() -> None:
    assert delta_files.partition_of("kind=__HIVE_DEFAULT_PARTITION__") == ("kind", None)
    assert delta_files.partition_of("kind=__hive_default_partition__") == ("kind", "__hive_default_partition__")


def test_a_table_that_would_forget_claims_in_time_is_refused(tmp_path: Path, payments: DataFrame) -> None:
    """A sink that is idle for so long would take its last batch for new."""
    forgets = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    DeltaTable.create(tmp_path, Schema([Field("id", PrimitiveType("long"))]), configuration=forgets)
    with pytest.raises(
        ValueError, match=r"has delta\.setTransactionRetentionDuration=interval 7 days, and would forget"
    ):
        delta_sink(tmp_path).write(payments.select("id"), FIRST)


@pytest.fixture
def restored(tmp_path: Path, spark: SparkSession) -> Path:
    """A table with three batches of one row each, versions 1 to 3, and what a person does with it afterwards."""
    sink = delta_sink(tmp_path)
    for number in range(3):
        assert sink.write(row(spark, number), Batch("query", number, "a")) is Outcome.ACCEPTED
    return tmp_path


def row(spark: SparkSession, number: int) -> DataFrame:
    return spark.range(number, number + 1)


@pytest.mark.parametrize("by_time", [False, True])
def test_a_table_that_was_restored_has_the_claim_of_the_rows_that_are_left(
    restored: Path, spark: SparkSession, by_time: bool
) -> None:
    """Delta keeps the claims of the batches whose rows RESTORE took away."""
    table = DeltaTable(restored)
    # The library goes by when the version's file was written, and that may be later than the time in it.
    written_ms = (restored / "_delta_log" / f"{1:020}.json").stat().st_mtime_ns // 1_000_000 + 1
    table.restore(datetime.fromtimestamp(written_ms / 1000, UTC) if by_time else 1)
    sink = delta_sink(restored)
    for number in (2, 3):
        with pytest.raises(BatchRefused, match=rf"batch {number} .*a gap: its last batch is 0"):
            sink.write(row(spark, number), Batch("query", number, "a"))
    # With the checkpoint of that time, the query writes again what was taken away.
    assert sink.write(row(spark, 0), Batch("query", 0, "a")) is Outcome.DUPLICATE
    assert sink.write(row(spark, 1), Batch("query", 1, "b")) is Outcome.ACCEPTED
    assert delta_sink(restored).write(row(spark, 2), Batch("query", 2, "b")) is Outcome.ACCEPTED
    assert ids(restored) == [0, 1, 2]


def test_a_table_that_was_restored_with_all_its_rows_goes_on(restored: Path, spark: SparkSession) -> None:
    write_deltalake(restored, pyarrow.table({"id": [99]}), mode="append")
    DeltaTable(restored).restore(3)
    sink = delta_sink(restored)
    assert sink.write(row(spark, 2), Batch("query", 2, "a")) is Outcome.DUPLICATE
    assert sink.write(row(spark, 3), Batch("query", 3, "a")) is Outcome.ACCEPTED
    assert ids(restored) == [0, 1, 2, 3]


def test_a_restore_that_was_itself_taken_back_takes_no_claim_away(restored: Path, spark: SparkSession) -> None:
    DeltaTable(restored).restore(1)
    DeltaTable(restored).restore(3)
    assert delta_sink(restored).write(row(spark, 3), Batch("query", 3, "a")) is Outcome.ACCEPTED
    assert ids(restored) == [0, 1, 2, 3]


def test_a_table_restored_twice_has_the_claim_of_the_last_restore(restored: Path, spark: SparkSession) -> None:
    DeltaTable(restored).restore(2)
    sink = delta_sink(restored)
    assert sink.write(row(spark, 2), Batch("query", 2, "c")) is Outcome.ACCEPTED
    DeltaTable(restored).restore(1)
    with pytest.raises(BatchRefused, match="a gap: its last batch is 0"):
        sink.write(row(spark, 3), Batch("query", 3, "a"))


def test_a_table_restored_to_before_the_sink_has_no_claim(restored: Path, spark: SparkSession) -> None:
    DeltaTable(restored).restore(0)
    sink = delta_sink(restored)
    with pytest.raises(BatchRefused, match="the sink has claimed nothing so far"):
        sink.write(row(spark, 3), Batch("query", 3, "a"))
    assert sink.write(row(spark, 0), Batch("other", 0, "a")) is Outcome.ACCEPTED


def test_a_table_whose_log_no_longer_has_the_version_it_was_restored_to_is_refused(
    restored: Path, spark: SparkSession
) -> None:
    table = DeltaTable(restored)
    table.restore(1)
    DeltaTable(restored).create_checkpoint()
    for version in (0, 1):
        (restored / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(BatchRefused, match=r"was restored to version 1, .* go on under a new sink_id"):
        delta_sink(restored).write(row(spark, 3), Batch("query", 3, "a"))
