"""Runs what the guide of deduplication shows: what a reader copies has to work as it stands, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import semel
from chapters import chapter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = chapter("spark-pipeline", "Deduplicate")


@pytest.mark.slow
def test_the_guide_judges_as_it_says(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    printed = io.StringIO()
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    with semel.broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for payment in (b"1", b"2", b"3"):
            producer.produce("payments", payment)
        assert producer.flush(20) == 0
        for block in blocks:
            own = block.replace("127.0.0.1:9092", broker.bootstrap).replace('"payments-', f'"{tmp_path}/payments-')
            with contextlib.redirect_stdout(printed):
                exec(own, names)
    promised = [line for block in blocks for line in re.findall(r"print\(.*\)\s+# (.*)", block)]
    assert len(promised) == 6
    assert printed.getvalue().splitlines() == promised
