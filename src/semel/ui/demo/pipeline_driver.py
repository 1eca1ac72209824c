"""The driver of the demo's pipeline: a real Spark program, in its own process, so that it can be killed.

It reads a topic with doubled payments, and writes each payment once to a topic, to SQL and to Parquet. Each line on
standard output says what has happened; before each micro-batch it waits for a line on standard input, so that the demo
can cause a fault there. It must never hide an error.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from semel.spark import dedup, fan_out, log_sink, session, sql_sink
from semel.spark.claims import Batch, Outcome
from semel.spark.tables.sink import Sink
from semel.ui.demo.database import BALANCES, CLAIMS, PAYMENTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

# The module to start with `python -m`.
MODULE: Final = "semel.ui.demo.pipeline_driver"
# The names of the sinks for the user.
TOPIC_SINK: Final = "enriched topic"
PAYMENTS_SINK: Final = "payments"
BALANCES_SINK: Final = "balances"
LANES: Final = 2
SCHEMA: Final = "payment string, till int, number int, account string, cents long"
ENRICHED_SCHEMA: Final = "payment string, account string, cents long, branch string"
# Four attempts for each task, because a local master allows only one by default.
MASTER: Final = "local[2,4]"
BRANCHES: Final = ("north", "east", "south", "west")
MERGE: Final = {"cents": "sum", "payments": "sum"}
_ACCEPTED: Final = "outcome = 'accepted'"


@dataclass(frozen=True)
class Orders:
    """Everything that the driver has to know."""

    bootstrap: str
    source: str
    enriched: str
    database: str
    directory: str
    rows_per_batch: int

    @property
    def checkpoint(self) -> Path:
        return Path(self.directory, "checkpoint")

    @property
    def parquet(self) -> Path:
        return Path(self.directory, "parquet")

    @property
    def assassin(self) -> Path:
        """If this file exists, the next task removes it and kills its own process."""
        return Path(self.directory, "kill-a-task")

    def written(self) -> str:
        return json.dumps(asdict(self))


def main(orders: Orders) -> None:
    spark = session("semel-demo", master=MASTER)
    _tell(event="ready")
    _payments(spark, orders).awaitTermination()
    # A classic way to lose track: the sinks have the last batch, but Spark does not know it.
    commits = orders.checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    _tell(event="replay", batch=last)
    _payments(spark, orders).awaitTermination()
    _files(spark, orders).awaitTermination()
    _tell(event="files")
    _tell(event="done")
    spark.stop()


def _payments(spark: "SparkSession", orders: Orders) -> "StreamingQuery":
    reader = _reader(spark, orders, orders.source).option("maxOffsetsPerTrigger", orders.rows_per_batch)
    payments = _parsed(reader.load(), SCHEMA)
    judged = dedup(payments, producer="till", epoch=None, sequence="number", scope=[])
    passed = judged.mapInArrow(killing_once(str(orders.assassin)), judged.schema)
    return (
        fan_out(passed, sinks=[Announced(), *_sinks(orders)])
        .option("checkpointLocation", str(orders.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def _sinks(orders: Orders) -> list[Sink]:
    from pyspark.sql import functions as F

    branches = F.array(*(F.lit(branch) for branch in BRANCHES))
    enriched = F.struct(
        "payment", "account", "cents", F.element_at(branches, F.col("till") % len(BRANCHES) + 1).alias("branch")
    )
    return [
        Told(
            TOPIC_SINK,
            log_sink(orders.bootstrap, orders.enriched, sink_id="demo-enriched", lanes=LANES),
            lambda rows: rows.select(F.col("account").alias("key"), F.to_json(enriched).alias("value")),
        ),
        Told(
            PAYMENTS_SINK,
            sql_sink(orders.database, PAYMENTS, claims_table=CLAIMS),
            lambda rows: rows.select("payment", "account", "cents"),
        ),
        Told(
            BALANCES_SINK,
            sql_sink(orders.database, BALANCES, "merge", key="account", merge=MERGE, claims_table=CLAIMS),
            lambda rows: rows.select("account", "cents", F.lit(1).cast("long").alias("payments")),
        ),
    ]


def _files(spark: "SparkSession", orders: Orders) -> "StreamingQuery":
    """The enriched topic into Parquet: Spark's own sink needs only a source that can be read again."""
    rows = _parsed(_reader(spark, orders, orders.enriched).load(), ENRICHED_SCHEMA)
    return (
        rows.writeStream.format("parquet")
        .option("path", str(orders.parquet))
        .option("checkpointLocation", str(Path(orders.directory, "checkpoint-parquet")))
        .trigger(availableNow=True)
        .start()
    )


def _reader(spark: "SparkSession", orders: Orders, topic: str) -> "DataStreamReader":
    return (
        spark.readStream.format("semel")
        .option("kafka.bootstrap.servers", orders.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def _parsed(read: "DataFrame", schema: str) -> "DataFrame":
    """The JSON values of a topic, as columns."""
    from pyspark.sql import functions as F

    return read.select(F.from_json(F.col("value").cast("string"), schema).alias("payment")).select("payment.*")


class Announced(Sink):
    """Not a real sink: it reports the outcomes of a batch's rows, after it has waited for permission to go on."""

    name = "announced"

    def write(self, rows: "DataFrame", batch: Batch) -> Outcome:
        _tell(event="batch", batch=batch.batch_id)
        if not sys.stdin.readline():
            os._exit(0)
        outcomes = rows.select("outcome").toArrow().column("outcome").value_counts().to_pylist()
        _tell(event="judged", batch=batch.batch_id, outcomes={one["values"]: one["counts"] for one in outcomes})
        return Outcome.DUPLICATE


class Told(Sink):
    """A sink that gets the accepted rows in its own shape, and whose outcome is reported."""

    def __init__(self, name: str, sink: Sink, shape: "Callable[[DataFrame], DataFrame]") -> None:
        self.name = name
        self._sink = sink
        self._shape = shape

    def write(self, rows: "DataFrame", batch: Batch) -> Outcome:
        outcome = self._sink.write(self._shape(rows.where(_ACCEPTED)), batch)
        _tell(event="sink", batch=batch.batch_id, sink=self.name, outcome=outcome.value)
        return outcome


def killing_once(assassin: str) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Pass rows on; if the order file exists, die by SIGKILL."""

    def passed(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            yield batch
            try:
                # The task that removes the order is the one that dies; the others find no order.
                os.unlink(assassin)
            except FileNotFoundError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return passed


def _tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
