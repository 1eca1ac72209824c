"""`python -m bench.mysql_rows mysql://USER@HOST/DATABASE`: rows a second from Spark into MySQL or MariaDB.

Beside the sink stands an upsert by PyMySQL's executemany in every task; both take turns in one run, on the server that
the URL names. This must never count a run that did not write every row. It drops the table `bench_rows` there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pymysql

from bench.clients import LoadFailed
from bench.sides import take_turns
from bench.spark_driver import SparkDriver
from semel.database.engines import driver_settings

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PARTITIONS: Final = 4
TURNS: Final = 3
WAYS: Final = ("upsert", "append", "executemany")
TABLE: Final = "bench_rows"
COLUMNS: Final = "id bigint PRIMARY KEY, name longtext, amount double, at datetime(6)"
# PyMySQL itself makes statements of many rows of it, of up to a megabyte.
UPSERT: Final = (
    f"INSERT INTO {TABLE} VALUES (%s, %s, %s, %s) "
    "ON DUPLICATE KEY UPDATE name = VALUES(name), amount = VALUES(amount), at = VALUES(at)"
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mysql_rows", description=__doc__)
    parser.add_argument("url", help="of a database in which the table bench_rows may be dropped")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the batch (default %(default)s)")
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with SparkDriver() as driver:
        # The first turn is for what Java compiles while it runs.
        for turn, way in take_turns(WAYS, TURNS + 1):
            took = driver.run(write_all, way, arguments.url, arguments.rows, f"{way}-{turn}")
            if turn:
                seconds[way].append(took)
                print(f"{way}: {arguments.rows / took:,.0f} rows/s", flush=True)
    speeds = {way: arguments.rows / median(took) for way, took in seconds.items()}
    for way, speed in speeds.items():
        print(f"{way}, median of {TURNS}: {speed:,.0f} rows/s, {speed / speeds['executemany']:.2f} x executemany")


def write_all(spark: SparkSession, way: str, url: str, rows: int, sink_id: str) -> float:
    """How many seconds it took to write so many rows in this way into an empty table."""
    from semel.spark import sql_sink
    from semel.spark.claims import Batch

    given = spark.range(rows, numPartitions=PARTITIONS).selectExpr(
        "id", "concat('payment ', id) AS name", "id * 0.01D AS amount", "timestamp_micros(1700000000000000 + id) AS at"
    )
    given.persist().count()
    settings = driver_settings(url)
    with pymysql.connect(**settings, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        if way == "executemany":
            cursor.execute(f"CREATE TABLE {TABLE} ({COLUMNS}) ENGINE=InnoDB")
        started = time.perf_counter()
        if way == "executemany":
            given.foreachPartition(_upsert_in(settings))
        else:
            mode, key = ("upsert", "id") if way == "upsert" else ("append", ())
            sql_sink(url, TABLE, mode, key=key, sink_id=f"{sink_id}-{started}").write(given, Batch("bench", 0))
        seconds = time.perf_counter() - started
        given.unpersist()
        cursor.execute(f"SELECT count(*) FROM {TABLE}")
        if cursor.fetchall() != ((rows,),):
            raise LoadFailed(f"{way} did not write {rows} rows")
    return seconds


def _upsert_in(settings: dict[str, Any]):  # type: ignore[no-untyped-def]
    def upsert(rows: Iterator[Row]) -> None:
        with pymysql.connect(**settings) as connection, connection.cursor() as cursor:
            cursor.executemany(UPSERT, [tuple(row) for row in rows])
            connection.commit()

    return upsert


if __name__ == "__main__":
    main()
