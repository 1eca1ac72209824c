"""Runs what the guide of the sink into the log shows: what a reader copies has to work, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from chapters import ONCE_AND_AGAIN
from semel.spark.versions import STREAMS_INTO_PYTHON

if TYPE_CHECKING:
    from log_under_test import LogUnderTest
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
GUIDE = (ROOT / "docs/how-to/spark-log-sink.md").read_text()


@pytest.mark.skipif(not STREAMS_INTO_PYTHON, reason='Spark 4.0 cannot stream into format("semel")')
@ONCE_AND_AGAIN
def test_the_guide_writes_what_it_says(spark: SparkSession, log: LogUnderTest, runs: int, tmp_path: Path) -> None:
    own_names = {name: log.make(2) for name in ("payments", "enriched", "copied", "totals", "audit")}
    own_names |= {name: log.new_name("sink") for name in ("enriching", "copying", "daily-totals")}
    producer = Producer({"bootstrap.servers": log.bootstrap, "log_level": 0})
    for number in range(50):
        producer.produce(own_names["payments"], f"payment {number}", str(number % 7))
    producer.flush()
    names: dict[str, Any] = {}
    printed = io.StringIO()
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for block in blocks * runs:
        own = block.replace("127.0.0.1:9092", log.bootstrap)
        own = re.sub(r'"(\w+-checkpoint)"', rf'"{tmp_path}/\1"', own)
        own = re.sub(r'"([a-z-]+)"', lambda quoted: f'"{own_names.get(quoted[1], quoted[1])}"', own)
        with contextlib.redirect_stdout(printed):
            exec(own, names)
    promised = [line for block in blocks for line in re.findall(r"print\(.*\)  # (.*)", block)]
    assert printed.getvalue().splitlines() == promised * runs
    expected = sorted(f"PAYMENT {number}".encode() for number in range(50))
    for topic in ("enriched", "copied", "audit"):
        assert sorted(value or b"" for value in log.values(own_names[topic], committed_only=True)) == expected


def test_a_sink_of_foreach_batch_says_what_it_had_already(spark: SparkSession, log: LogUnderTest) -> None:
    from semel.spark import log_sink
    from semel.spark.claims import Batch, Outcome

    topic = log.make(2)
    sink = log_sink(log.bootstrap, topic, sink_id=log.new_name("sink"), lanes=2)
    rows = spark.range(100).selectExpr("cast(id as string) value")
    assert [sink.write(rows, Batch("q", 0)) for _ in range(2)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
    assert sink.write(rows.limit(0), Batch("q", 1)) is Outcome.ACCEPTED
    assert len(log.values(topic, committed_only=True)) == 100
