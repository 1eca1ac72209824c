"""The measure of writing from Spark into PostgreSQL: the exactly-once sink beside what people use today. It must never
count a run that did not write every row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

import psycopg

from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers import spark_jdbc
from bench.peers.process import Broker, SkipReason
from bench.peers.semel import Semel
from bench.spark_driver import SparkDriver
from semel.testing.postgres import PostgresMissing, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

PARTITIONS: Final = 4
COLUMNS: Final = ("id", "name", "amount", "at")
TABLE: Final = "CREATE TABLE rows (id bigint PRIMARY KEY, name text, amount double precision, at timestamptz)"
UPSERT: Final = (
    "INSERT INTO rows VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
    "name = excluded.name, amount = excluded.amount, at = excluded.at"
)
TUNED: Final = "&reWriteBatchedInserts=true"
WAYS: Final = ("upsert", "append", "executemany", "jdbc", "jdbc_tuned")


class SparkSql(Measure):
    """Rows a second of one micro-batch from Spark on two cores into PostgreSQL on the same machine, with fsync: four
    columns, in a table that is empty, with a primary key where rows are upserted and without an index where they are
    appended. The peer of the row is no Kafka: an upsert by psycopg's executemany in every task, and Spark's JDBC
    append, as it comes and with batches of 10,000 and reWriteBatchedInserts. Neither of them keeps a replayed batch
    from being written again."""

    name = "spark-sql"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = (
        Row.beside(
            "SQL sink, upsert; executemany upsert, rows/s",
            "upsert",
            "executemany",
            Target(Kind.RATIO_AT_LEAST, 1.0),
        ),
        Row.beside("SQL sink, upsert; JDBC append", "upsert", "jdbc"),
        Row.beside("SQL sink, append; JDBC append", "append", "jdbc"),
        Row.beside("SQL sink, append; JDBC append, tuned", "append", "jdbc_tuned"),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        """The broker is none of it."""
        rows = scale.spark_sql_rows
        try:
            server = PostgresServer(settings={"fsync": "on"})
        except PostgresMissing as missing:
            raise SkipReason(str(missing)) from None
        try:
            with SparkDriver({"spark.jars": str(spark_jdbc.install())}) as driver:
                for way in WAYS:
                    driver.run(write_all, way, server.new_database(), rows)
                return {way: rows / driver.run(write_all, way, server.new_database(), rows) for way in WAYS}
        finally:
            server.stop()


def write_all(spark: SparkSession, way: str, url: str, rows: int) -> float:
    """How many seconds it took to write so many rows in this way."""
    given = spark.range(rows, numPartitions=PARTITIONS).selectExpr(
        "id", "concat('payment ', id) AS name", "id * 0.01D AS amount", "timestamp_micros(1700000000000000 + id) AS at"
    )
    given.persist().count()
    if way == "executemany":
        with psycopg.connect(url) as connection:
            connection.execute(TABLE)
    started = time.perf_counter()
    _write(given, way, url)
    seconds = time.perf_counter() - started
    given.unpersist()
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM rows").fetchone()
    if found != (rows,):
        raise LoadFailed(f"{way}: {found} rows instead of {rows}")
    return seconds


def _write(rows: DataFrame, way: str, url: str) -> None:
    from semel.spark import sql_sink
    from semel.spark.claims import Batch

    if way == "upsert":
        sql_sink(url, "rows", "upsert", key="id").write(rows, Batch("bench", 0))
    elif way == "append":
        sql_sink(url, "rows").write(rows, Batch("bench", 0))
    elif way == "executemany":
        rows.foreachPartition(_upsert_in(url))
    else:
        is_tuned = way == "jdbc_tuned"
        host = url.replace("semel@", "")
        writer = rows.write.format("jdbc").mode("append").option("dbtable", "rows")
        writer = writer.option("driver", spark_jdbc.DRIVER_CLASS).option("batchsize", 10_000 if is_tuned else 1000)
        writer.option("url", f"jdbc:{host}?user=semel{TUNED if is_tuned else ''}").save()


def _upsert_in(url: str):  # type: ignore[no-untyped-def]
    def upsert(rows: Iterator[SparkRow]) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.executemany(UPSERT, map(tuple, rows))

    return upsert
