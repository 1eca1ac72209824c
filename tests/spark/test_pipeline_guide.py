"""Runs the page on a whole pipeline as it stands, twice in one directory: the second time changes nothing."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import semel
from chapters import chapter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = chapter("spark-pipeline", "A whole pipeline")
CONTENTS = {
    "orders": "SELECT id, cents FROM orders ORDER BY 1",
    "quarantine": "SELECT DISTINCT reason, text FROM quarantine",
    "totals": "SELECT customer, minute, orders, cents FROM totals ORDER BY 1, 2",
}


def test_the_pipeline_of_the_page_gives_the_same_when_everything_is_sent_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is a file of its own, as a reader has it."""
    blocks = re.findall(r"^```python\n(# \w+\.py\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    promised = [line for block in blocks for line in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)]
    assert (len(blocks), len(promised)) == (5, 6)
    monkeypatch.syspath_prepend(tmp_path)
    with semel.broker() as broker:
        for _ in range(2):
            printed = io.StringIO()
            monkeypatch.delitem(sys.modules, "shop", raising=False)
            for block in blocks:
                own = block.replace("127.0.0.1:9092", broker.bootstrap)
                for name in ("sqlite:///shop", '"shop', "sqlite:shop"):
                    own = own.replace(name, name.replace("shop", f"{tmp_path}/shop"))
                file = tmp_path / own.partition("\n")[0].removeprefix("# ")
                file.write_text(own)
                if file.name != "shop.py":
                    with contextlib.redirect_stdout(printed):
                        runpy.run_path(str(file))
            assert printed.getvalue().splitlines() == promised
            with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
                contents = {table: file.execute(query).fetchall() for table, query in CONTENTS.items()}
            assert contents == {
                "orders": [("o-1", 4200), ("o-2", 150000), ("o-3", 800), ("o-4", 100)],
                "quarantine": [("unclaimed", "no JSON at all")],
                "totals": [
                    ("anna", "2026-07-01 12:00:00.000000Z", 2, 5000),
                    ("anna", "2026-07-01 12:01:00.000000Z", 1, 100),
                    ("bert", "2026-07-01 12:00:00.000000Z", 1, 150000),
                ],
            }
