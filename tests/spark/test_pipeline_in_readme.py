"""What the README shows of the pipeline is run as it stands: payments of the log become balances in a database."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from semel.testing.broker import FaultyBroker

README = (Path(__file__).parent.parent.parent / "README.md").read_text()


def test_each_payment_is_in_its_balance_once_however_often_the_example_is_run(
    spark: SparkSession, semel_broker: FaultyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [block] = [block for block in re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S) if "readStream" in block]
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap, "log_level": 0})
    monkeypatch.chdir(tmp_path)
    own = block.replace("127.0.0.1:9092", semel_broker.bootstrap)
    own = own.replace('"balances-checkpoint"', f'"{tmp_path}/balances-checkpoint"')
    for run in (1, 2):
        for number in range(100):
            producer.produce("payments", str(number), f"account {number % 3}")
        producer.flush()
        exec(own, {})
        with sqlite3.connect(tmp_path / "shop.db") as shop:
            balances = dict(shop.execute("SELECT account, balance FROM balances"))
        assert balances == {f"account {k}": run * sum(range(k, 100, 3)) for k in range(3)}
