"""Runs what the guide of the registry shows: what a reader copies has to work as it stands."""

from __future__ import annotations

import json
import re
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from log_under_test import LogUnderTest
from registries import Subject

from chapters import ONCE_AND_AGAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
GUIDE = (ROOT / "docs/how-to/spark-registry.md").read_text()
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}

GIVEN = [{"id": "a", "cents": Decimal(5)}, {"id": "b", "cents": Decimal(7)}]


@ONCE_AND_AGAIN
def test_the_guide_reads_and_writes_what_it_says(
    spark: SparkSession, log: LogUnderTest, registry_url: str, runs: int, tmp_path: Path
) -> None:
    orders, totals = Subject(registry_url, log.make()), Subject(registry_url, log.make())
    orders.send(log.bootstrap, *orders.written(ORDER, *GIVEN), b"no schema")
    kept: list[Any] = []
    names: dict[str, Any] = {"kept": kept}
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks * runs:
        own = block.replace("127.0.0.1:9092", log.bootstrap).replace("http://127.0.0.1:8081", registry_url)
        for name, topic in (("orders", orders.topic), ("totals", totals.topic)):
            own = own.replace(f'"{name}-value"', f'"{topic}-value"').replace(
                f'subscribe", "{name}"', f'subscribe", "{topic}"'
            )
            own = own.replace(f'topic", "{name}"', f'topic", "{topic}"')
        own = own.replace("sqlite:///shop", f"sqlite:///{tmp_path}/shop").replace(
            '"orders-ch', f'"{tmp_path}/orders-ch'
        )
        exec(own.replace('sinkId", "totals"', f'sinkId", "{totals.topic}"'), names)
        with sqlite3.connect(tmp_path / "shop.db") as file:
            assert file.execute("SELECT id, cents FROM orders ORDER BY 1").fetchall() == [("a", "5.00"), ("b", "7.00")]
            kept[:] = file.execute('SELECT topic, partition, "offset", raw FROM unread').fetchall()
        assert kept == [(orders.topic, 0, 2, b"no schema")]
    values = log.values(totals.topic, committed_only=True)
    assert sorted(totals.read(*filter(None, values)), key=json.dumps)[:2][0] == {
        "customer": "anna",
        "cents": 5000,
        "note": None,
    }
