"""A sink into PostgreSQL through PgBouncer in transaction mode writes each row once."""

from __future__ import annotations

import psycopg
from pyspark.sql import SparkSession

from semel.spark.claims import Batch, Outcome
from semel.spark.tables.sql_sink import sql_sink

BATCHES = 4


def test_each_mode_writes_a_batch_once_through_a_pooler(
    spark: SparkSession, pooled_url: str, postgres_url: str
) -> None:
    """Three tasks copy rows into a staging table over connections of their own, and the driver moves them."""
    rows = spark.range(0, 30, numPartitions=3).selectExpr("id", "current_timestamp() AS at", "id % 7 AS amount")
    modes = {
        "appended": sql_sink(pooled_url, "appended"),
        "upserted": sql_sink(pooled_url, "upserted", mode="upsert", key="id"),
        "merged": sql_sink(pooled_url, "merged", mode="merge", key="id", merge={"amount": "sum", "at": "max"}),
    }
    for number in range(BATCHES):
        batch = Batch("query", number, f"digest {number}")
        for sink in modes.values():
            assert [sink.write(rows, batch) for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    once = sum(number % 7 for number in range(30))
    with psycopg.connect(postgres_url) as connection:
        found = {
            table: connection.execute(f"SELECT count(*), sum(amount) FROM {table}".encode()).fetchone()
            for table in modes
        }
        left = connection.execute("SELECT relname FROM pg_class WHERE starts_with(relname, 'semel_stage_')").fetchall()
    assert found == {
        "appended": (30 * BATCHES, once * BATCHES),
        "upserted": (30, once),
        "merged": (30, once * BATCHES),
    }
    assert left == []
