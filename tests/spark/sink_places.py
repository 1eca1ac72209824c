"""Where the sinks of tables write to in the tests of failures, and a query that writes there: also for a driver in a
process of its own. A batch is one file of a directory, so that the test says how many batches there are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mariadb_under_test import asked
from semel.spark import delta_sink, sql_sink
from semel.spark.tables.sink import Sink

BATCH_ROWS = 100
KINDS = ("postgresql", "mariadb", "sqlite", "delta", "parquet")


class Place:
    """One directory with all of a query: what it reads, its checkpoint, and, but for the servers, where it writes."""

    def __init__(self, kind: str, directory: Path, url: str = "") -> None:
        self.kind = kind
        self.directory = directory
        self.incoming = directory / "incoming"
        self.checkpoint = directory / "checkpoint"
        self.out = directory / "out"
        self.url = f"sqlite:///{directory}/rows.db" if kind == "sqlite" else url
        self.incoming.mkdir(parents=True, exist_ok=True)

    def feed(self, *batches: int) -> None:
        for batch in batches:
            ids = range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)
            path = self.incoming / f"{batch}.parquet"
            parquet.write_table(pyarrow.table({"id": pyarrow.array(ids, pyarrow.int64())}), path)
            # Spark takes the oldest first, and a file is as old as a second here.
            os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))

    def sink(self, **options: Any) -> Sink:
        return delta_sink(self.out, **options) if self.kind == "delta" else sql_sink(self.url, "rows", **options)

    def stream(self, spark: SparkSession, partitions: int) -> DataFrame:
        files = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        return files.parquet(str(self.incoming)).repartition(partitions)

    def start(self, stream: DataFrame, sink: Sink | None = None) -> StreamingQuery:
        """Begins to write all that has come in, into Spark's own Parquet sink where that is the kind."""
        writer = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(self.checkpoint))
        if self.kind == "parquet":
            return writer.format("parquet").start(str(self.out))
        return writer.foreachBatch(sink or self.sink()).start()

    def run(self, spark: SparkSession, sink: Sink | None = None, partitions: int = 2) -> None:
        self.start(self.stream(spark, partitions), sink).awaitTermination()

    def ids(self, spark: SparkSession) -> list[int]:
        """What a reader finds."""
        if self.kind in ("delta", "parquet"):
            return self.files_ids(spark)
        if self.kind == "sqlite":
            import sqlite3

            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as file:
                return [row[0] for row in file.execute("SELECT id FROM rows")]
        if self.kind == "mariadb":
            return [row[0] for row in asked(self.url, 'SELECT id FROM "rows"')]
        import psycopg

        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM rows").fetchall()]

    def files_ids(self, spark: SparkSession) -> list[int]:
        if self.kind == "parquet":
            return [row[0] for row in spark.read.parquet(str(self.out)).collect()]
        from deltalake import DeltaTable

        found: list[int] = DeltaTable(self.out).to_pyarrow_table()["id"].to_pylist()
        return found

    def forget_commit(self, batch: int) -> None:
        """As after a crash between the sink's commit and Spark's."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()


def place_of(kind: str, directory: Path, request: pytest.FixtureRequest) -> Place:
    """A place of this kind; where it is a server, its database is empty."""
    url = ""
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    elif kind == "mariadb":
        url = request.getfixturevalue("mariadb_url")
    return Place(kind, directory, url)


def verdict(place: Place, spark: SparkSession, batches: Sequence[int]) -> dict[str, int]:
    """What became of the rows of these batches: counted, and said."""
    sent = {number for batch in batches for number in range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)}
    found = Counter(place.ids(spark))
    counts = {
        "sent": len(sent),
        "stored": sum(found.values()),
        "lost": len(sent - found.keys()),
        "doubled": sum(1 for times in found.values() if times > 1),
    }
    print(place.kind, counts)
    return counts


def once(batches: Sequence[int]) -> dict[str, int]:
    """The verdict that has to come out."""
    rows = len(batches) * BATCH_ROWS
    return {"sent": rows, "stored": rows, "lost": 0, "doubled": 0}


def whole_files(directory: Path) -> list[Path]:
    """The files of Parquet that somebody has finished; what a task left that died is none."""
    return [path for path in directory.glob("*.parquet") if _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        return path.read_bytes().endswith(b"PAR1")
    except FileNotFoundError:
        # Spark takes away what a task left.
        return False
