"""The measure of reading into Spark: `format("semel")` beside Spark's own Kafka connector, on the same log. It must
never count a run that did not read every row."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

from bench import clients
from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers import spark_kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import take_turns
from bench.spark_driver import TURNS, SparkDriver, seconds_of_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["batch", "stream"]
Sink = Literal["noop", "parquet"]

PARTITIONS: Final = 4
SMALL_BYTES: Final = 100
KILOBYTE: Final = 1000
# The options of each source beyond those that both have.
SOURCES: Final = {"semel": {}, "kafka": spark_kafka.TUNED}


class Workload(NamedTuple):
    """One kind of query over one of the topics."""

    mode: Mode
    sink: Sink
    value_bytes: int

    @property
    def topic(self) -> str:
        return f"values-{self.value_bytes}"

    def metric(self, source: str) -> str:
        return f"{source}_{self.mode}_{self.sink}_{self.value_bytes}"

    def title(self) -> str:
        size = "1 KB" if self.value_bytes == KILOBYTE else f"{self.value_bytes} B"
        return f"Spark source, {self.mode} to {self.sink}, {size}, rows/s"


class Took(NamedTuple):
    """How many seconds a query took: that which counts, and, of a stream, what comes before and after."""

    seconds: float
    beside: float = 0.0


def workloads() -> Iterator[Workload]:
    modes: tuple[Mode, ...] = ("batch", "stream")
    sinks: tuple[Sink, ...] = ("noop", "parquet")
    for value_bytes in (SMALL_BYTES, KILOBYTE):
        for mode in modes:
            for sink in sinks:
                yield Workload(mode, sink, value_bytes)


*_, LAST = workloads()


def _row(workload: Workload) -> Row:
    return Row.beside(
        workload.title(),
        workload.metric("semel"),
        workload.metric("kafka"),
        Target(Kind.RATIO_AT_LEAST, 1.3),
        reason="what Spark itself does with the rows, such as writing Parquet, is in both figures.",
    )


class SparkSource(Measure):
    """Rows a second from a topic of four partitions into Spark on two cores, all columns, not compressed; as a batch,
    and as a stream that reads all there is (AvailableNow), to nowhere and to Parquet. The peer is Spark's own
    connector, tuned by kafka.max.poll.records=100000, on the same topics of the same broker. Each contender has a
    session of its own that ran the same query before; they take turns, query by query, and each goes first as often.
    The time of a batch is that of the whole query. That of a stream is what its progress says that its micro-batches
    took, planning and commits included: a query is started once, and the time that this takes does not show how fast it
    goes. What a stream takes beside its micro-batches, to start and to end, has a row of its own."""

    name = "spark-source"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(durability="os")}
    rows: ClassVar[tuple[Row, ...]] = (
        *(_row(workload) for workload in workloads()),
        Row.beside(
            "the last of these streams, beside its micro-batches, s",
            f"{LAST.metric('semel')}_beside",
            f"{LAST.metric('kafka')}_beside",
            Target(Kind.EXCESS_AT_MOST, 0.5),
            decimals=2,
            reason="Spark starts a process of Python for a source in Python, and asks it before the first micro-batch.",
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        jars = ",".join(map(str, spark_kafka.install()))
        broker.start()
        counts = {SMALL_BYTES: scale.spark_small_rows, KILOBYTE: scale.spark_kilobyte_rows}
        for workload in {workload.topic: workload for workload in workloads()}.values():
            clients.create_topic(broker, workload.topic, PARTITIONS)
            arguments = (workload.topic, PARTITIONS, workload.value_bytes, counts[workload.value_bytes], True)
            counts[workload.value_bytes] = clients.run(broker, clients.flood, [arguments]).results[0]
        with SparkDriver() as ours, SparkDriver({"spark.jars": jars}) as own:
            drivers = {"semel": ours, "kafka": own}
            figures = {}
            for workload in workloads():
                rows = counts[workload.value_bytes]
                seconds = dict.fromkeys(drivers, 0.0)
                beside = dict.fromkeys(drivers, 0.0)
                for source, driver in drivers.items():
                    driver.run(read_all, source, broker.bootstrap, workload, rows)
                for _, source in take_turns(drivers, TURNS):
                    took = drivers[source].run(read_all, source, broker.bootstrap, workload, rows)
                    seconds[source] += took.seconds
                    beside[source] += took.beside
                for source in drivers:
                    figures[workload.metric(source)] = TURNS * rows / seconds[source]
                    figures[f"{workload.metric(source)}_beside"] = beside[source] / TURNS
            return figures


def read_all(spark: SparkSession, source: str, bootstrap: str, workload: Workload, rows: int) -> Took:
    """How long the query took that reads so many rows."""
    directory = Path(tempfile.mkdtemp(prefix="semel-bench-spark-"))
    try:
        counted, took = (_stream if workload.mode == "stream" else _batch)(
            spark, source, bootstrap, workload, directory
        )
        if workload.sink == "parquet":
            counted = spark.read.parquet(str(directory / "rows")).count()
        if counted not in (None, rows):
            raise LoadFailed(f"{source}, {workload}: {counted} rows instead of {rows}")
        return took
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _options(source: str, bootstrap: str, workload: Workload) -> dict[str, str]:
    both = {"kafka.bootstrap.servers": bootstrap, "subscribe": workload.topic, "startingOffsets": "earliest"}
    return {**both, **SOURCES[source]}


def _batch(
    spark: SparkSession, source: str, bootstrap: str, workload: Workload, directory: Path
) -> tuple[int | None, Took]:
    """Nobody says how many rows went nowhere; in Parquet they are counted afterwards."""
    started = time.perf_counter()
    frame = spark.read.format(source).options(**_options(source, bootstrap, workload)).load()
    frame.write.format(workload.sink).mode("append").save(str(directory / "rows"))
    return None, Took(time.perf_counter() - started)


def _stream(
    spark: SparkSession, source: str, bootstrap: str, workload: Workload, directory: Path
) -> tuple[int | None, Took]:
    started = time.perf_counter()
    frame = spark.readStream.format(source).options(**_options(source, bootstrap, workload)).load()
    writer = frame.writeStream.format(workload.sink).option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.option("path", str(directory / "rows")).trigger(availableNow=True).start()
    query.awaitTermination()
    whole, seconds = time.perf_counter() - started, seconds_of_batches(query)
    return sum(batch.numInputRows for batch in query.recentProgress), Took(seconds, whole - seconds)
