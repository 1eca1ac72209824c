"""Runs the page on a whole pipeline as it stands, twice in one directory: the second time changes nothing."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

import semel
from chapters import chapter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = chapter("spark-pipeline", "A whole pipeline")
BLOCKS = re.findall(r"^```python\n(# \w+\.py\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
CONTENTS = {
    "orders": "SELECT id, cents FROM orders ORDER BY 1",
    "quarantine": "SELECT DISTINCT reason, text FROM quarantine",
    "totals": "SELECT customer, minute, orders, cents FROM totals ORDER BY 1, 2",
}


def files_of(bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each block is a file of its own, as a reader has it."""
    written = []
    for block in BLOCKS:
        own = block.replace("127.0.0.1:9092", bootstrap)
        for name in ("sqlite:///shop", '"shop', "sqlite:shop"):
            own = own.replace(name, name.replace("shop", f"{directory}/shop"))
        written.append(directory / own.partition("\n")[0].removeprefix("# "))
        written[-1].write_text(own)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return [file for file in written if file.name != "shop.py"]


def run(*files: Path) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for file in files:
            runpy.run_path(str(file))
    return printed.getvalue().splitlines()


def test_the_pipeline_of_the_page_gives_the_same_when_everything_is_sent_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = [line for block in BLOCKS for line in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)]
    assert (len(BLOCKS), len(promised)) == (5, 6)
    with semel.broker() as broker:
        written = files_of(broker.bootstrap, tmp_path, monkeypatch)
        for _ in range(2):
            assert run(*written) == promised
            with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
                contents = {table: file.execute(query).fetchall() for table, query in CONTENTS.items()}
            assert contents == {
                "orders": [("o-1", 4200), ("o-2", 150000), ("o-3", 800), ("o-4", 100)],
                "quarantine": [("id missing", "no JSON at all")],
                "totals": [
                    ("anna", "2026-07-01 12:00:00.000000Z", 2, 5000),
                    ("anna", "2026-07-01 12:01:00.000000Z", 1, 100),
                    ("bert", "2026-07-01 12:00:00.000000Z", 1, 150000),
                ],
            }


def test_an_order_that_is_sent_again_when_it_is_mended_is_stored_and_the_audit_is_clean_when_a_person_has_seen_both(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (statement,) = re.findall(r"^```sql\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    mended = {"id": "o-5", "customer": "carl", "cents": 700, "at": "2026-07-01T12:01:30Z"}
    broken = {**mended, "cents": "seven"}
    with semel.broker() as broker:
        send, sort, total, audit = files_of(broker.bootstrap, tmp_path, monkeypatch)
        run(send)
        for orders in ([broken, broken], [mended, mended]):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for order in orders:
                producer.produce("orders", json.dumps(order))
            assert producer.flush(60) == 0
            run(sort)
        run(total)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
            assert file.execute("SELECT cents FROM orders WHERE id = 'o-5'").fetchall() == [(700,)]
            assert file.execute("SELECT reason FROM quarantine WHERE text LIKE '%o-5%'").fetchall() == [
                ("cents missing",),
                ("cents missing",),
            ]
            assert run(audit)[0] == "[(0, 2, 0)]"
            file.execute(statement)
            file.commit()
            assert file.execute("SELECT count(*) FROM quarantine").fetchall() == [(1,)]
        assert run(audit)[0] == "[(0, 0, 0)]"
