"""The measure of writing from Spark into the log: `format("semel")`, exactly once, beside Spark's own Kafka sink, which
is at-least-once. It must never count a run after which a row is missing or there twice."""

from __future__ import annotations

import shutil
import tempfile
import time
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench import clients
from bench.clients import LoadFailed
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers import spark_kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import take_turns
from bench.spark_driver import TURNS, WARM_TURNS, SparkDriver, seconds_of_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

PARTITIONS: Final = 4
SMALL_BYTES: Final = 100
KILOBYTE: Final = 1000
SINKS: Final = ("semel", "kafka")
READ_SECONDS_MAX: Final = 120.0
EXACTLY_ONCE: Final = (
    "the peer is at-least-once, and runs in the JVM. Spark hands each row to a lane of semel's sink in Python, which "
    "also computes a digest of its rows and commits them with a marker, in a transaction."
)


class Copy(NamedTuple):
    """All rows of one topic into another, which nobody wrote before."""

    bootstrap: str
    value_bytes: int
    rows: int
    sink: str
    turn: int

    @property
    def source(self) -> str:
        return f"values-{self.value_bytes}"

    @property
    def target(self) -> str:
        return f"{self.source}-{self.sink}-{self.turn}"


def _row(value_bytes: int) -> Row:
    size = "1 KB" if value_bytes == KILOBYTE else f"{value_bytes} B"
    return Row.beside(
        f"Spark sink, stream from topic to topic, {size}, rows/s",
        f"semel_{value_bytes}",
        f"kafka_{value_bytes}",
        Target(Kind.RATIO_AT_LEAST, 1.2 if value_bytes == SMALL_BYTES else 1.0),
        reason=EXACTLY_ONCE,
    )


class SparkSink(Measure):
    """Rows a second from a topic of four partitions through Spark on two cores into another, as a stream that takes all
    there is (AvailableNow), keys and values, not compressed. Both read with `format("semel")`, so that the sinks alone
    differ: ours in four lanes, exactly once; the peer is Spark's own Kafka sink, at-least-once, with batches as large.
    Each has a session of its own that ran the same query before; they take turns, and each goes first as often. The
    time is what the query's progress says that its micro-batches took, planning and commits included, as for the
    source; the committed records are counted afterwards."""

    name = "spark-sink"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(durability="os")}
    rows: ClassVar[tuple[Row, ...]] = tuple(_row(value_bytes) for value_bytes in (SMALL_BYTES, KILOBYTE))

    def run(self, broker: Broker, scale: Scale) -> Figures:
        jars = ",".join(map(str, spark_kafka.install()))
        broker.start()
        figures = {}
        with SparkDriver() as ours, SparkDriver({"spark.jars": jars}) as own:
            drivers = dict(zip(SINKS, (ours, own), strict=True))
            for value_bytes, count in ((SMALL_BYTES, scale.spark_small_rows), (KILOBYTE, scale.spark_kilobyte_rows)):
                topic = f"values-{value_bytes}"
                clients.create_topic(broker, topic, PARTITIONS)
                flood = (topic, PARTITIONS, value_bytes, count, True)
                rows = clients.run(broker, clients.flood, [flood]).results[0]
                seconds = dict.fromkeys(SINKS, 0.0)
                for turn, sink in take_turns(SINKS, WARM_TURNS + TURNS):
                    copy = Copy(broker.bootstrap, value_bytes, rows, sink, turn)
                    clients.create_topic(broker, copy.target, PARTITIONS)
                    took = drivers[sink].run(copy_all, copy)
                    _check(copy)
                    seconds[sink] += took if turn >= WARM_TURNS else 0.0
                for sink in SINKS:
                    figures[f"{sink}_{value_bytes}"] = TURNS * rows / seconds[sink]
        return figures


def copy_all(spark: SparkSession, copy: Copy) -> float:
    """How many seconds its micro-batches took."""
    checkpoint = tempfile.mkdtemp(prefix="semel-bench-spark-")
    try:
        query = _writer(spark, copy).option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        return seconds_of_batches(query)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _writer(spark: SparkSession, copy: Copy) -> DataStreamWriter:
    reader = spark.readStream.format("semel").schema("key binary, value binary")
    reader = reader.option("kafka.bootstrap.servers", copy.bootstrap).option("startingOffsets", "earliest")
    writer = reader.option("subscribe", copy.source).load().writeStream.format(copy.sink).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", copy.bootstrap).option("topic", copy.target)
    if copy.sink == "semel":
        return writer.option("sinkId", copy.target).option("lanes", PARTITIONS)
    return writer.option("kafka.linger.ms", "20").option("kafka.batch.size", "1000000")


def _check(copy: Copy) -> None:
    """Counts what a consumer of committed records gets: one at the end of a partition more or less would be noticed."""
    consumer = Consumer(
        {
            "bootstrap.servers": copy.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(copy.target, number, 0) for number in range(PARTITIONS)])
        counted, ended, deadline = 0, 0, time.monotonic() + READ_SECONDS_MAX
        while ended < PARTITIONS and time.monotonic() < deadline:
            for message in consumer.consume(100_000, 0.5):
                if message.error() is None:
                    counted += 1
                else:
                    ended += 1
    finally:
        consumer.close()
    if counted != copy.rows:
        raise LoadFailed(f"{copy.target} has {counted} rows, and {copy.rows} were to be written")
