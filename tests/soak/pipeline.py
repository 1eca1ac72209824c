"""The driver of the soak: two streaming queries at once, from the log to the log, and from there into tables.

It runs until a line comes on standard input; then both queries go on to the end of what there is, and it says that it
is done. Each line on standard output says how far they are. It must never hold back what makes it go wrong: a query
that fails ends it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from semel.spark import dedup, delta_sink, fan_out, session, sql_sink
from semel.ui.demo.pipeline_driver import MASTER, SCHEMA, killing_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MODULE: Final = "soak.pipeline"
ENRICHING: Final = "enriching"
TABLES: Final = "tables"
# As many tasks as the source has partitions: each is a lane, and its rows are the same whenever it is run.
LANES: Final = 4
PAUSE: Final = "1 second"
TOLD_SECONDS: Final = 1
HEAP_SECONDS: Final = 10.0
# Java's heap is there as a whole from the beginning, so that what its process takes on top of that is seen.
_HEAP: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch",
}
# Spark remembers the last 100 batches of each query, in memory and in the checkpoint: more than a soak of some minutes
# has, so that what it remembers would look like a leak.
_REMEMBERED: Final = {
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@dataclass(frozen=True)
class Orders:
    """All that the driver has to know."""

    bootstrap: str
    source: str
    enriched: str
    directory: str
    rows_per_batch: int

    @property
    def checkpoints(self) -> Path:
        return Path(self.directory, "checkpoints")

    @property
    def tables(self) -> Path:
        return Path(self.directory, "tables")

    @property
    def database(self) -> Path:
        return self.tables / "payments.db"

    @property
    def delta(self) -> Path:
        return self.tables / "delta"

    def assassin(self, query: str) -> Path:
        """While this file is there, the query's next task takes it away and kills its own process."""
        return Path(self.directory, f"kill-a-task-of-{query}")

    def written(self) -> str:
        return json.dumps(asdict(self))


def main(orders: Orders) -> None:
    _make_delta_table(orders)
    spark = session("semel-soak", master=MASTER, config={**_HEAP, **_REMEMBERED})
    leave = threading.Event()
    threading.Thread(target=_wait_for_leave, args=(leave,), daemon=True).start()
    queries = [build(spark, orders).trigger(processingTime=PAUSE).start() for build in (_enriching, _tables)]
    _tell(event="started")
    told, heap = _ToldOnce(), _Heap(spark)
    while not leave.wait(TOLD_SECONDS):
        for query in queries:
            told.tell_of(query)
        heap.tell_if_due()
    for query in queries:
        # In the middle of whatever it does: its successor runs that batch again.
        query.stop()
    for build in (_enriching, _tables):
        rest = build(spark, orders).trigger(availableNow=True).start()
        while not rest.awaitTermination(TOLD_SECONDS):
            told.tell_of(rest)
            heap.tell_if_due()
        told.tell_of(rest)
    _tell(event="done")
    spark.stop()


def _make_delta_table(orders: Orders) -> None:
    """Each opening reads all commits since the last checkpoint, and the more there are the more memory that takes:
    100 at most, of which a soak of some minutes would see nothing but the growth."""
    from deltalake import DeltaTable, Field, Schema

    columns = Schema([Field("payment", "string"), Field("account", "string"), Field("cents", "long")])
    DeltaTable.create(orders.delta, columns, mode="ignore", configuration={"delta.checkpointInterval": "10"})


def _enriching(spark: SparkSession, orders: Orders) -> DataStreamWriter:
    """From topic to topic, in one task from end to end: who dies in it leaves a transaction open."""
    from pyspark.sql import functions as F

    read = _read(spark, orders, orders.source)
    payments = read.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("payment")).select("payment.*")
    enriched = F.struct(*(F.col(name) for name in payments.columns), (F.col("cents") / 100).alias("amount"))
    rows = payments.select(F.col("till").cast("string").alias("key"), F.to_json(enriched).alias("value"))
    passed = rows.mapInArrow(killing_once(str(orders.assassin(ENRICHING))), rows.schema)
    return (
        passed.writeStream.format("semel")
        .queryName(ENRICHING)
        .option("kafka.bootstrap.servers", orders.bootstrap)
        .option("topic", orders.enriched)
        .option("sinkId", "soak")
        .option("lanes", LANES)
        .option("checkpointLocation", str(orders.checkpoints / ENRICHING))
    )


def _tables(spark: SparkSession, orders: Orders) -> DataStreamWriter:
    """What the other query writes, deduplicated by the tills' own numbers, into three tables at once."""
    from pyspark.sql import functions as F

    read = _read(spark, orders, orders.enriched)
    payments = read.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("payment")).select("payment.*")
    judged = dedup(payments, producer="till", epoch=None, sequence="number", scope=[])
    accepted = judged.where("outcome = 'accepted'").select("payment", "account", "cents")
    passed = accepted.mapInArrow(killing_once(str(orders.assassin(TABLES))), accepted.schema)
    database = f"sqlite:///{orders.database}"
    sinks = [
        sql_sink(database, "payments", "upsert", key="payment"),
        sql_sink(
            database,
            "balances",
            "merge",
            key="account",
            merge={"cents": "sum", "payments": "sum"},
            columns=["account", "cents", "1L AS payments"],
        ),
        delta_sink(orders.delta),
    ]
    return fan_out(passed, sinks=sinks).queryName(TABLES).option("checkpointLocation", str(orders.checkpoints / TABLES))


def _read(spark: SparkSession, orders: Orders, topic: str) -> DataFrame:
    return (
        spark.readStream.format("semel")
        .option("kafka.bootstrap.servers", orders.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", orders.rows_per_batch)
        .load()
    )


class _ToldOnce:
    """Says of each batch that has ended how many rows it had."""

    def __init__(self) -> None:
        self._last = {ENRICHING: -1, TABLES: -1}

    def tell_of(self, query: StreamingQuery) -> None:
        if failure := query.exception():
            raise failure
        for progress in query.recentProgress:
            if progress.batchId > self._last[query.name]:
                self._last[query.name] = progress.batchId
                _tell(event="batch", query=query.name, batch=progress.batchId, rows=progress.numInputRows)


class _Heap:
    """Tells from time to time what Java still holds when it has thrown away all that it may."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        self._java = spark._jvm.java.lang
        self._due = time.monotonic()

    def tell_if_due(self) -> None:
        if time.monotonic() < self._due:
            return
        self._java.System.gc()
        runtime = self._java.Runtime.getRuntime()
        process_id = self._java.ProcessHandle.current().pid()
        _tell(event="heap", process_id=process_id, bytes=runtime.totalMemory() - runtime.freeMemory())
        self._due = time.monotonic() + HEAP_SECONDS


def _wait_for_leave(leave: threading.Event) -> None:
    for _ in sys.stdin:
        leave.set()
    # Nobody listens any more.
    os._exit(0)


def _tell(**told: Any) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
