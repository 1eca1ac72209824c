"""A query from one topic to another through lanes, with all that a test of failures wants to do to it.

Every record that is fed has a value of its own, so what was lost or doubled can be counted by looking at the output.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer
from faulty_sink import Faults
from pyspark.errors import StreamingQueryException

from semel.spark import lanes
from semel.spark.versions import ASKS_FOR_LIMITS

if TYPE_CHECKING:
    from log_under_test import LogUnderTest
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

SECONDS_MAX = 300
# Spark listens at a free port for each Python worker and gives up if anybody else comes first, as a client of another
# test may that still looks for a broker which had that port. A supervisor would start the query again, and so do we.
NO_WORKER = "Python worker failed to connect back"
STARTS_MAX = 3


class Verdict(NamedTuple):
    fed: int
    stored: int
    lost: int
    doubled: int


class Names(NamedTuple):
    """Where the query reads and writes, for a driver in another process as well."""

    bootstrap: str
    input: str
    output: str
    sink: str


class LaneQuery:
    """The query, with its checkpoint and the faults of its sink in a directory."""

    def __init__(self, spark: SparkSession, names: Names, directory: Path) -> None:
        self.spark = spark
        self.names = names
        self.checkpoint = directory / "checkpoint"
        self.faults = Faults(directory / "faults")

    def rows(self, starting_offsets: str = "earliest") -> DataFrame:
        reader = self.spark.readStream.format("semel").option("kafka.bootstrap.servers", self.names.bootstrap)
        reader = reader.option("subscribe", self.names.input).option("startingOffsets", starting_offsets)
        return reader.load().select("key", "value")

    def run(self, rows: DataFrame | None = None, **options: object) -> None:
        """One run of the query over all that there is."""
        writer = (rows if rows is not None else lanes(self.rows(), 2)).writeStream.format("semel_faulty")
        settings: dict[str, object] = {
            "faults": self.faults.directory,
            "kafka.bootstrap.servers": self.names.bootstrap,
            "topic": self.names.output,
            "sinkId": self.names.sink,
            "checkpointLocation": self.checkpoint,
            **options,
        }
        writer = writer.options(**{name: str(value) for name, value in settings.items()}).trigger(availableNow=True)
        # A run of Spark 4.1 that replays a batch reads nothing besides.
        for _ in range(1 if ASKS_FOR_LIMITS else 2):
            self._run_once(writer)

    def _run_once(self, writer: DataStreamWriter) -> None:
        for _ in range(STARTS_MAX):
            query = writer.start()
            try:
                assert query.awaitTermination(SECONDS_MAX), "the query does not end"
                return
            except StreamingQueryException as failed:
                if NO_WORKER not in str(failed):
                    raise
            finally:
                query.stop()
        raise AssertionError("Spark does not get a Python worker")


class Pipeline(LaneQuery):
    """The query, what was fed to it, and what became of that."""

    def __init__(self, spark: SparkSession, log: LogUnderTest, directory: Path) -> None:
        names = Names(log.bootstrap, log.make(2), log.make(2), log.new_name("sink"))
        super().__init__(spark, names, directory)
        self.fed = 0
        self._log = log

    def feed(self, count: int) -> None:
        """So many new records."""
        producer = Producer({"bootstrap.servers": self.names.bootstrap, "log_level": 0})
        for number in range(self.fed, self.fed + count):
            producer.produce(self.names.input, str(number), str(number % 17), partition=number % 2)
        producer.flush()
        self.fed += count

    def stored(self, *, committed_only: bool = True) -> list[bytes | None]:
        """The values that the query has written."""
        return self._log.values(self.names.output, committed_only=committed_only)

    def refusal(self, run: Callable[[], None] | None = None) -> str:
        """What a run fails with, which it has to, in the line that a user looks for."""
        with pytest.raises(StreamingQueryException) as failure:
            (run or self.run)()
        return next((line for line in str(failure.value).splitlines() if "semel.spark" in line), str(failure.value))

    def forget_last_commit(self) -> None:
        """Has Spark believe that the last batch was not finished."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    @property
    def query_id(self) -> str:
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found

    def verdict(self) -> Verdict:
        """What consumers of committed records have got, counted and printed."""
        counted = Counter(self.stored())
        expected = {str(number).encode() for number in range(self.fed)}
        assert counted.keys() <= expected, "rows that nobody fed"
        doubled = sum(count - 1 for count in counted.values())
        found = Verdict(self.fed, counted.total(), len(expected - counted.keys()), doubled)
        print(f"{found.fed} fed, {found.stored} stored, {found.lost} lost, {found.doubled} doubled")
        return found

    def once(self) -> Verdict:
        return Verdict(self.fed, self.fed, 0, 0)
