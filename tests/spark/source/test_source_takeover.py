"""A query goes on when another broker on the store takes over in the middle of its batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from semel.testing.pair import BrokerPair

SECONDS_MAX = 300


@pytest.mark.slow
def test_a_takeover_in_the_middle_of_a_batch_costs_no_record_and_doubles_none(
    spark: SparkSession, semel_pair: BrokerPair, tmp_path: Path
) -> None:
    """The batch is planned with one broker, and read from the next: one is killed, the other stopped."""
    batches: list[list[str]] = []

    def read(rows: DataFrame, _: int) -> None:
        semel_pair.take_over("kill" if len(batches) % 2 == 0 else "stop")
        batches.append(sorted(row.value.decode() for row in rows.collect()))

    semel_pair.active.create_topic("payments", 2)
    reader = spark.readStream.format("semel").option("kafka.bootstrap.servers", semel_pair.bootstrap)
    rows = reader.options(subscribe="payments", startingOffsets="earliest").load()
    query = rows.writeStream.foreachBatch(read).option("checkpointLocation", str(tmp_path)).start()
    try:
        for number in range(3):
            for partition in range(2):
                semel_pair.active.seed("payments", f"{number} {partition}", partition=partition)
            query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(value for batch in batches for value in batch) == [f"{n} {p}" for n in range(3) for p in range(2)]
    assert len(batches) >= 3
