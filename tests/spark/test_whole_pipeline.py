"""The whole way, as a user writes it: payments whose sender repeats itself become rows of a database and of a Delta
table, once each, though Spark runs a batch of each query again. The same code for semel and for Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from semel.audit import audit
from semel.spark import accepted, dedup, delta_sink, fan_out, lanes, sql_sink
from semel.spark.versions import ASKS_FOR_LIMITS, STREAMS_INTO_PYTHON

if TYPE_CHECKING:
    from log_under_test import LogUnderTest
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

SECONDS_MAX = 300
TERMINALS = 5


class WholePipeline:
    """Two queries: from the sent payments to the accepted ones, and from those to the tables."""

    def __init__(self, spark: SparkSession, log: LogUnderTest, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = log.bootstrap
        self.sent, self.accepted = log.make(2), log.make(2)
        self.sink_id = log.new_name("sink")
        self.directory = directory
        self.database, self.table = directory / "shop.db", directory / "payments"

    def send(self, numbers: range) -> None:
        """A payment of each terminal for each of its numbers."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "enable.idempotence": True})
        for number in numbers:
            for terminal in range(TERMINALS):
                payment = {"id": f"{terminal}-{number}", "terminal": terminal, "number": number, "cents": number + 5}
                producer.produce(self.sent, json.dumps(payment), str(terminal))
        assert producer.flush(SECONDS_MAX) == 0

    def run(self) -> list[int]:
        """Both queries, one after the other, over all that there is; with which batch each began."""
        into_the_log = self._into_the_log().option("checkpointLocation", self._checkpoint("log"))
        return [self._finish(into_the_log), self._finish(self._into_tables())]

    def forget_last_commits(self) -> None:
        """Have Spark believe that neither query has finished its last batch."""
        for query in ("log", "tables"):
            commits = Path(self._checkpoint(query), "commits")
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
            (commits / str(last)).unlink()
            (commits / f".{last}.crc").unlink(missing_ok=True)

    def _into_the_log(self) -> DataStreamWriter:
        judged = dedup(self._payments(self.sent), "terminal", epoch=None, sequence="number", scope=[])
        writer = lanes(accepted(judged).select("key", "value"), 2).writeStream.format("semel")
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", self.accepted)
        return writer.option("sinkId", self.sink_id)

    def _into_tables(self) -> DataStreamWriter:
        payments = self._payments(self.accepted).select("id", "cents")
        sinks = [sql_sink(f"sqlite:///{self.database}", "payments"), delta_sink(self.table)]
        return fan_out(payments, sinks, checkpoint=self._checkpoint("tables"))

    def _payments(self, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("semel").option("kafka.bootstrap.servers", self.bootstrap)
        records = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        payment = "from_json(cast(value AS string), 'id string, terminal long, number long, cents long') AS payment"
        return records.selectExpr("key", "value", payment).select("key", "value", "payment.*")

    def _checkpoint(self, query: str) -> str:
        return str(self.directory / f"{query}-checkpoint")

    @staticmethod
    def _finish(writer: DataStreamWriter) -> int:
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(SECONDS_MAX), "the query does not end"
        finally:
            query.stop()
        return query.recentProgress[0].batchId


@pytest.mark.skipif(not STREAMS_INTO_PYTHON, reason='Spark 4.0 cannot stream into format("semel")')
def test_every_payment_is_once_in_the_log_the_database_and_the_delta_table(
    spark: SparkSession, log: LogUnderTest, tmp_path: Path
) -> None:
    pipeline = WholePipeline(spark, log, tmp_path)
    for _ in range(2):
        pipeline.send(range(20))
    assert pipeline.run() == [0, 0]
    pipeline.forget_last_commits()
    pipeline.send(range(10, 40))
    assert pipeline.run() == [0, 0]
    if not ASKS_FOR_LIMITS:
        # A run of Spark 4.1 that replays a batch reads nothing besides: once more for each query.
        pipeline.run()
        pipeline.run()
    verdict = audit(
        f"semel://{pipeline.bootstrap}/{pipeline.sent}?id=value.$.id&amount=value.$.cents",
        [
            f"semel://{pipeline.bootstrap}/{pipeline.accepted}?id=value.$.id&amount=value.$.cents",
            f"sqlite:{pipeline.database}/payments?id=id&amount=cents",
            f"delta:{pipeline.table}?id=id&amount=cents",
        ],
        once=True,
    )
    assert verdict.is_clean, verdict.sinks
    assert verdict.source.rows == 70 * TERMINALS
    assert [sink.sink.rows for sink in verdict.sinks] == [40 * TERMINALS] * 3
