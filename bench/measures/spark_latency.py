"""The measure of a micro-batch with next to nothing in it: what the source adds to what Spark takes in any case. It
must never compare batches that were made under different loads: the sources take turns in one session."""

from __future__ import annotations

import json
import tempfile
from statistics import median
from typing import TYPE_CHECKING, ClassVar, Final

from bench import clients
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers import spark_kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.spark_driver import SparkDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

TOPIC: Final = "trickle"
VALUE_BYTES: Final = 100
TURNS: Final = 3
# A query's first batches load classes and start workers.
BATCHES_WARM: Final = 5
POLL_SECONDS: Final = 0.1
# The sources by the names that Spark has for them; the one in the middle makes its rows up.
SOURCES: Final = ("semel", "rate-micro-batch", "kafka")


class SparkLatency(Measure):
    """How long a micro-batch takes that has one record of 100 B and goes nowhere: planning, the task, and the notes in
    the checkpoint. What it would take without any log is that of Spark's rate source, with one row. The peer is Spark's
    own connector on the same topic. The median of three turns in one session, in each of which another one goes first,
    after a turn that does not count, and without the first batches of each query."""

    name = "spark-latency"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(durability="os")}
    rows = (
        Row.beside(
            "micro-batch of one record, p50 ms",
            "semel_ms",
            "kafka_ms",
            Target(Kind.RATIO_AT_MOST, 1.2),
            reason="Spark asks a source in Python, in processes of its own, for the offsets and for the rows.",
        ),
        Row.beside(
            "what it takes beyond a micro-batch of the rate source, p50 ms",
            "semel_beyond_ms",
            "kafka_beyond_ms",
            Target(Kind.VALUE_AT_MOST, 150),
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        jars = ",".join(map(str, spark_kafka.install()))
        batches = BATCHES_WARM + scale.spark_micro_batches
        broker.start()
        clients.create_topic(broker, TOPIC, 1)
        # More than are read, or a query would run out of them.
        clients.run(broker, clients.one_at_a_time, [(TOPIC, [0], VALUE_BYTES, 0, 2 * batches)])
        took_ms: dict[str, list[float]] = {source: [] for source in SOURCES}
        config = {"spark.jars": jars, "spark.sql.streaming.numRecentProgressUpdates": str(2 * batches)}
        with SparkDriver(config) as driver:
            # The first source has to wait for classes and for compiled code that all of them need.
            for source in SOURCES:
                driver.run(micro_batches, source, broker.bootstrap, batches)
            for turn in range(TURNS):
                for source in (*SOURCES[turn:], *SOURCES[:turn]):
                    took_ms[source] += driver.run(micro_batches, source, broker.bootstrap, batches)
        semel_ms, rate_ms, kafka_ms = (median(took_ms[source]) for source in SOURCES)
        return {
            "semel_ms": semel_ms,
            "kafka_ms": kafka_ms,
            "semel_beyond_ms": semel_ms - rate_ms,
            "kafka_beyond_ms": kafka_ms - rate_ms,
        }


def micro_batches(spark: SparkSession, source: str, bootstrap: str, batches: int) -> list[float]:
    """How long each of so many micro-batches of a query took, in ms, without the first ones."""
    with tempfile.TemporaryDirectory(prefix="semel-bench-spark-") as checkpoint:
        rows = _reader(spark, source, bootstrap).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            while len(took_ms := _took_ms(query)) < batches:
                query.awaitTermination(POLL_SECONDS)
        finally:
            query.stop()
        return took_ms[BATCHES_WARM:batches]


def _took_ms(query: StreamingQuery) -> list[float]:
    """The time of each batch so far that had its one row; the progress of an idle query is none."""
    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [float(one["durationMs"]["triggerExecution"]) for one in found if one["numInputRows"] == 1]


def _reader(spark: SparkSession, source: str, bootstrap: str) -> DataStreamReader:
    reader = spark.readStream.format(source)
    if source == "rate-micro-batch":
        return reader.options(rowsPerBatch="1", numPartitions="1")
    return reader.options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1",
        }
    )
