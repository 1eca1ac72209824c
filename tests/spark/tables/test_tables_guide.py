"""Runs what the guide of the sinks shows: what a reader copies has to work as it stands."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from deltalake import DeltaTable

from chapters import ONCE_AND_AGAIN
from semel.testing.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
GUIDE = (ROOT / "docs/how-to/spark-tables.md").read_text()
PAYMENTS = [
    {"id": 1, "account": "a", "amount": 5, "at": "2026-07-01T12:00:00Z"},
    {"id": 2, "account": "a", "amount": -2, "at": "2026-07-02T12:00:00Z"},
    {"id": 3, "account": "b", "amount": 7, "at": "2026-07-01T12:00:00Z"},
]


@ONCE_AND_AGAIN
def test_the_guide_writes_what_it_says(
    spark: SparkSession, postgres: PostgresServer, runs: int, tmp_path: Path
) -> None:
    from pyiceberg.catalog import load_catalog

    url = postgres.new_database()
    (tmp_path / "payments-in").mkdir()
    (tmp_path / "payments-in/1.json").write_text("\n".join(map(json.dumps, PAYMENTS)))
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 10
    for block in blocks * runs:
        own = block.replace("postgresql://app@127.0.0.1/shop", url).replace(
            "sqlite:///pay", f"sqlite:///{tmp_path}/pay"
        )
        exec(own.replace('"payments-', f'"{tmp_path}/payments-'), names)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT id FROM payments ORDER BY id").fetchall() == [(1,), (2,), (3,)]
    with sqlite3.connect(tmp_path / "payments-rows.db") as file:
        assert file.execute("SELECT account, id FROM latest ORDER BY 1").fetchall() == [("a", 2), ("b", 3)]
        assert file.execute("SELECT * FROM balances ORDER BY 1").fetchall() == [("a", 3, 2, 5), ("b", 7, 1, 7)]
        assert file.execute("SELECT id FROM good ORDER BY 1").fetchall() == [(1,), (2,), (3,)]
        assert file.execute("SELECT * FROM bad").fetchall() == []
        file.execute("CREATE TABLE days (day TEXT PRIMARY KEY, total INTEGER)")
    table = DeltaTable(tmp_path / "payments-delta")
    assert table.metadata().partition_columns == ["day"]
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    ledger = load_catalog("lake", **names["lake"]).load_table("shop.payments")
    assert [field.name for field in ledger.spec().fields] == ["at_day", "account_bucket"]
    assert sorted(ledger.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    # The statement of the reader's own is in no query of the guide.
    days = names["fan_out"](names["payments"], [names["own"]], checkpoint=str(tmp_path / "days"))
    days.trigger(availableNow=True).start().awaitTermination()
    with sqlite3.connect(tmp_path / "payments-rows.db") as file:
        assert file.execute("SELECT * FROM days ORDER BY 1").fetchall() == [("2026-07-01", 12), ("2026-07-02", -2)]
