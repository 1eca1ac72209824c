"""Each sink through each failure, with real streaming queries: every row once, or the loud refusal. What Spark's own
Parquet sink makes of the same failures stands beside it, for the guide says so."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from driver_process import DriverProcess
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from sink_places import BATCH_ROWS, KINDS, Place, once, place_of, verdict, whole_files

from semel.spark import error_of
from semel.spark.claims import Batch, Outcome
from semel.spark.tables import sqlite
from semel.spark.tables.delta_sink import DeltaFiles
from semel.spark.tables.mysql import MysqlConnection
from semel.spark.tables.postgres import PostgresConnection
from semel.spark.tables.postgres_copy import Copying, copy_rows
from semel.spark.tables.servers import Server
from semel.spark.tables.sql_sink import sql_sink
from semel.spark.tables.sqlite import SqliteConnection
from semel.testing.postgres import PostgresServer

OURS = [kind for kind in KINDS if kind != "parquet"]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, tmp_path, request)


# That each of the others knows a batch that comes again, the contract of tables says.
every_place = pytest.mark.parametrize(
    "place",
    [pytest.param(kind, marks=pytest.mark.slow) if kind in ("mariadb", "delta") else kind for kind in KINDS],
    indirect=True,
)
our_places = pytest.mark.parametrize(
    "place",
    [kind if kind == "sqlite" else pytest.param(kind, marks=pytest.mark.slow) for kind in OURS],
    indirect=True,
)


@every_place
def test_a_batch_whose_commit_spark_lost_is_not_written_again_in_other_partitions(
    place: Place, spark: SparkSession
) -> None:
    place.feed(0, 1)
    place.run(spark)
    place.forget_commit(1)
    place.feed(2)
    place.run(spark, partitions=5)
    assert verdict(place, spark, [0, 1, 2]) == once([0, 1, 2])


@our_places
def test_a_lost_checkpoint_is_refused_until_it_is_named(place: Place, spark: SparkSession) -> None:
    place.feed(0, 1)
    place.run(spark)
    shutil.rmtree(place.checkpoint)
    with pytest.raises(StreamingQueryException, match="of another query") as refused:
        place.run(spark)
    assert verdict(place, spark, [0, 1]) == once([0, 1])
    # Whoever looked, and found that what the sink has came from files that are gone, goes on behind it.
    for file in place.incoming.iterdir():
        file.unlink()
    shutil.rmtree(place.checkpoint)
    place.feed(2, 3)
    mark = str(refused.value).split("accept_after='")[1].split("'")[0]
    place.run(spark, place.sink(accept_after=mark))
    place.run(spark, place.sink(accept_after=mark))
    assert verdict(place, spark, [0, 1, 2, 3]) == once([0, 1, 2, 3])


def test_spark_s_own_parquet_sink_loses_rows_without_a_word_when_its_checkpoint_is_lost(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = Place("parquet", tmp_path)
    place.feed(0, 1)
    place.run(spark)
    shutil.rmtree(place.checkpoint)
    for file in place.incoming.iterdir():
        file.unlink()
    place.feed(2, 3, 4)
    place.run(spark)
    assert verdict(place, spark, [0, 1, 2, 3, 4])["lost"] == 2 * BATCH_ROWS


@our_places
def test_an_old_checkpoint_is_refused_whatever_number_its_next_batch_has(place: Place, spark: SparkSession) -> None:
    copy = place.directory / "copy"
    place.feed(0)
    place.run(spark)
    shutil.copytree(place.checkpoint, copy)
    place.feed(1)
    place.run(spark)
    # The next batch of the copy has the number of the last one of the sink, and other rows: those of two files.
    (place.incoming / "1.parquet").unlink()
    place.feed(2)
    restore(copy, place.checkpoint)
    with pytest.raises(StreamingQueryException, match="planned at another time"):
        place.run(spark)
    assert verdict(place, spark, [0, 1]) == once([0, 1])


@our_places
def test_a_batch_older_than_the_last_one_is_refused(place: Place, spark: SparkSession) -> None:
    copy = place.directory / "copy"
    place.feed(0)
    place.run(spark)
    shutil.copytree(place.checkpoint, copy)
    place.feed(1, 2)
    place.run(spark)
    restore(copy, place.checkpoint)
    with pytest.raises(StreamingQueryException, match="is older than the last one it has, 2"):
        place.run(spark)
    assert verdict(place, spark, [0, 1, 2]) == once([0, 1, 2])


def restore(copy: Path, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)


# Where the driver stands when all tasks are done and nothing is committed.
COMMITS: dict[str, tuple[Any, str]] = {
    "postgresql": (PostgresConnection, "commit"),
    "mariadb": (MysqlConnection, "commit"),
    "sqlite": (SqliteConnection, "commit"),
    "delta": (DeltaFiles, "committed"),
}


@our_places
def test_a_driver_that_wakes_up_late_adds_nothing(
    place: Place, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them have staged the same batch. The late one commits when the other is a batch ahead already."""
    rows = spark.range(BATCH_ROWS)
    zombie = threading.Thread(target=lambda: told.append(refusal(place, Batch("query", 1), rows)))
    told: list[str] = []
    staged, woken = threading.Event(), threading.Event()
    owner, name = COMMITS[place.kind]
    original = getattr(owner, name)

    def late(*arguments: Any) -> Any:
        if threading.current_thread() is zombie:
            staged.set()
            assert woken.wait(300)
        return original(*arguments)

    place.sink().write(rows.limit(0), Batch("query", 0))
    monkeypatch.setattr(owner, name, late)
    zombie.start()
    assert staged.wait(300)
    assert place.sink().write(rows, Batch("query", 1)) is Outcome.ACCEPTED
    assert place.sink().write(rows.limit(0), Batch("query", 2)) is Outcome.ACCEPTED
    woken.set()
    zombie.join()
    # Its staging table is gone, as a leftover; or its claim is found to be old.
    assert "is older than the last one" in told[0] or re.search("does(n't| not) exist", told[0])
    assert verdict(place, spark, [0]) == once([0])


def refusal(place: Place, batch: Batch, rows: Any) -> str:
    try:
        return place.sink().write(rows, batch).value
    except RuntimeError as error:
        return str(error)


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, before: Callable[[Any], None]) -> None:
    """Has something happen when a driver gets to this method, the first time."""
    original = getattr(owner, name)
    happened: list[bool] = []

    def hit(self: Any, *arguments: Any) -> Any:
        if not happened:
            happened.append(True)
            before(self)
        return original(self, *arguments)

    monkeypatch.setattr(owner, name, hit)


def test_rows_that_a_crash_of_the_server_swept_from_the_stage_are_missed(
    postgres_to_crash: PostgresServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: all tasks have staged, and the driver connects anew, to a server whose stage is empty."""
    place = Place("postgresql", tmp_path, postgres_to_crash.new_database())
    place.feed(0, 1)

    def crash(connected: PostgresConnection) -> None:
        postgres_to_crash.crash()
        postgres_to_crash.start()
        connected.connection = psycopg.connect(place.url, autocommit=True)

    failing_once(monkeypatch, PostgresConnection, "commit", crash)
    with pytest.raises(StreamingQueryException, match="100 rows were staged for rows and 0 are left"):
        place.run(spark)
    place.run(spark)
    assert verdict(place, spark, [0, 1]) == once([0, 1])


@pytest.mark.parametrize("step", ["move", "drop"])
def test_a_connection_that_is_cut_costs_a_replay_and_no_row(
    postgres: PostgresServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the rows are moved; and after the commit, when nothing but the stage is left to be dropped."""
    place = Place("postgresql", tmp_path, postgres.new_database())
    place.feed(0, 1)
    place.sink().write(spark.range(0), Batch("another", 0))

    def cut(connected: PostgresConnection) -> None:
        with psycopg.connect(place.url) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [connected.connection.info.backend_pid])

    failing_once(monkeypatch, PostgresConnection, step, cut)
    sink = place.sink(sink_id="cut")
    if step == "move":
        with pytest.raises(StreamingQueryException, match="terminating connection") as failed:
            place.run(spark, sink)
        server = place.url.rpartition("@")[2]
        assert error_of(failed.value).startswith(
            f"sink 'postgresql:cut' cannot write into rows of PostgreSQL at {server}: terminating connection"
        )
    place.run(spark, sink)
    assert verdict(place, spark, [0, 1]) == once([0, 1])


def test_a_task_that_stages_late_adds_nothing(
    postgres: PostgresServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie stages the rows of a task again: once before the driver commits, and once after."""
    place = Place("postgresql", tmp_path, postgres.new_database())
    place.feed(0, 1)
    tables: list[str] = []

    def stage_again(connected: PostgresConnection) -> None:
        [(table,)] = connected.connection.execute(
            "SELECT relname FROM pg_class WHERE starts_with(relname, 'semel_stage_') AND relkind = 'r'"
        ).fetchall()
        tables.append(table)
        again()

    def again() -> None:
        rows = parquet.read_table(place.incoming / "0.parquet").to_batches()
        into = Copying(place.url, Server("postgresql:rows", "rows", "PostgreSQL"), tables[0], None, set())
        assert copy_rows(into, 999_999, iter(rows)) == (BATCH_ROWS, 0)

    failing_once(monkeypatch, PostgresConnection, "commit", stage_again)
    place.run(spark)
    with pytest.raises(RuntimeError, match="does not exist"):
        again()
    assert verdict(place, spark, [0, 1]) == once([0, 1])


def test_what_a_crash_left_on_the_stage_is_dropped_by_the_next_batch(
    postgres: PostgresServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("postgresql", tmp_path, postgres.new_database())
    with monkeypatch.context() as crashed:
        crashed.setattr(PostgresConnection, "drop", lambda *_: None)
        place.sink().write(spark.range(5), Batch("query", 0))
    with psycopg.connect(place.url) as connection:
        counted = "SELECT count(*) FROM pg_class WHERE starts_with(relname, 'semel_stage_') AND relkind = 'r'"
        assert connection.execute(counted).fetchone() == (1,)
    place.sink().write(spark.range(5), Batch("query", 1))
    with psycopg.connect(place.url) as connection:
        assert connection.execute(counted).fetchone() == (0,)


def test_sinks_with_one_name_and_claims_of_their_own_leave_each_others_stage(
    postgres: PostgresServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writes a whole batch between the stage and the commit of the other."""
    url, batch = postgres.new_database(), Batch("query", 0)
    one, other = (sql_sink(url, "payments", claims_table=claims) for claims in ("a_batches", "b_batches"))
    wrote: list[Outcome] = []
    failing_once(monkeypatch, PostgresConnection, "commit", lambda _: wrote.append(other.write(spark.range(5), batch)))
    wrote.append(one.write(spark.range(5), batch))
    assert wrote == [Outcome.ACCEPTED] * 2
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM payments").fetchone() == (10,)


def test_a_claims_table_has_one_stage_however_it_is_called(
    postgres: PostgresServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    with monkeypatch.context() as crashed:
        crashed.setattr(PostgresConnection, "drop", lambda *_: None)
        sql_sink(url, "payments").write(spark.range(5), Batch("query", 0))
    sql_sink(url, "payments", claims_table="public.semel_batches").write(spark.range(5), Batch("query", 1))
    with psycopg.connect(url) as connection:
        counted = "SELECT count(*) FROM pg_class WHERE starts_with(relname, 'semel_stage_') AND relkind = 'r'"
        assert connection.execute(counted).fetchone() == (0,)


def test_a_file_that_somebody_else_writes_to_for_too_long_costs_a_replay_and_no_row(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place("sqlite", tmp_path)
    place.feed(0)
    place.run(spark)
    place.feed(1)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.1)
    with sqlite3.connect(tmp_path / "rows.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StreamingQueryException, match="database is locked"):
            place.run(spark)
        other.execute("ROLLBACK")
    place.run(spark)
    assert verdict(place, spark, [0, 1]) == once([0, 1])


def test_two_queries_write_into_one_file_at_once(tmp_path: Path, spark: SparkSession) -> None:
    one, other = Place("sqlite", tmp_path / "one"), Place("sqlite", tmp_path / "other")
    other.url = one.url
    one.feed(0, 1, 2)
    other.feed(3, 4, 5)
    queries = [place.start(place.stream(spark, 2), place.sink(sink_id=place.directory.name)) for place in (one, other)]
    for query in queries:
        query.awaitTermination()
    assert verdict(one, spark, range(6)) == once(range(6))


# One driver with a query for each sink, in a session that tries a failed task again. Every first attempt at a task
# dies when it has done its work, and that of PostgreSQL when its rows are staged, too. The drivers then stop where all
# tasks are done and nothing is committed; that of Parquet, where one of two tasks is done.
DRIVER = """
import os, sys, threading
from pathlib import Path
from semel.spark import session
from semel.spark.tables import delta_sink, mysql, postgres, postgres_copy, sqlite
from sink_places import KINDS, Place

root, urls = Path(sys.argv[1]), dict(zip(("postgresql", "mariadb"), sys.argv[2:]))
spark = session("killed", master="local[4,4]")
spark.sparkContext.setLogLevel("OFF")

def stop(*_):
    print("all tasks are done", flush=True)
    threading.Event().wait()

def dying(kind, directory):
    def work(batches):
        from pyspark import TaskContext
        yield from batches
        partition = TaskContext.get().partitionId()
        try:
            (Path(directory) / f"died-{partition}").touch(exist_ok=False)
        except FileExistsError:
            (Path(directory) / f"again-{partition}").touch()
            if kind == "parquet" and partition == 1:
                threading.Event().wait()
            return
        os._exit(1)
    return work

def dies_when_it_has_staged(into, task, batches):
    count = copy_rows(into, task, batches)
    try:
        (root / f"staged-{task % 2}").touch(exist_ok=False)
    except FileExistsError:
        return count
    os._exit(1)

copy_rows = postgres_copy.copy_rows
postgres_copy.copy_rows = lambda *all_: dies_when_it_has_staged(*all_)
postgres.PostgresConnection.commit = stop
mysql.MysqlConnection.commit = stop
sqlite.SqliteConnection.commit = stop
delta_sink.DeltaFiles.committed = stop
for kind in KINDS:
    place = Place(kind, root / kind, urls.get(kind, ""))
    place.start(place.stream(spark, 2).mapInArrow(dying(kind, place.directory), "id long"))
threading.Event().wait()
"""


@pytest.mark.slow
def test_tasks_that_die_and_a_driver_that_is_killed_before_its_commit_cost_no_row(
    tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    places = [place_of(kind, tmp_path / kind, request) for kind in KINDS]
    for place in places:
        place.feed(0)
        place.run(spark)
        place.feed(1)
    urls = [place.url for place in places if place.kind in ("postgresql", "mariadb")]
    with DriverProcess(DRIVER, tmp_path, *urls) as driver:
        driver.wait_until(lambda: driver.lines.count("all tasks are done") == len(OURS), "did not get to its commits")
        half_written = Place("parquet", tmp_path / "parquet").out
        # What a first attempt left is taken away before the second one begins.
        driver.wait_until(
            lambda: len(list((tmp_path / "parquet").glob("again-*"))) == 2, "did not try both tasks of Parquet again"
        )
        driver.wait_until(lambda: len(whole_files(half_written)) > 2, "did not write half a batch")
        driver.kill()
    assert len(list(tmp_path.glob("*/died-*"))) == 2 * len(KINDS)
    assert len(list(tmp_path.glob("staged-*"))) >= 1
    for place in places:
        place.feed(2)
        place.run(spark)
        assert verdict(place, spark, [0, 1, 2]) == once([0, 1, 2])
    # Who reads the directory of Spark's own sink without its list of files, finds what the dead driver left as well.
    left = [row for path in half_written.glob("*.parquet") for row in parquet.read_table(path)["id"].to_pylist()]
    assert len(left) > len(set(left)) == 3 * BATCH_ROWS
