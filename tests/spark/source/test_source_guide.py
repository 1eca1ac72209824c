"""Runs what the guide of the source shows: what a reader copies has to work as it stands, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from log_under_test import LogUnderTest

from chapters import ONCE_AND_AGAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
GUIDE = (ROOT / "docs/how-to/spark-source.md").read_text().partition("\n## Connect to a cluster\n")[0]
HOUR_MS = 3_600_000


@ONCE_AND_AGAIN
def test_the_guide_reads_what_it_says(spark: SparkSession, log: LogUnderTest, runs: int, tmp_path: Path) -> None:
    topic = log.make(2)
    for hour in range(3):
        log.put(topic, str(hour), partition=hour % 2, timestamp=1_700_000_000_000 + (hour - 1) * HOUR_MS)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for block in blocks * runs:
        own = block.replace("127.0.0.1:9092", log.bootstrap).replace(
            '"subscribe", "payments"', f'"subscribe", "{topic}"'
        )
        with contextlib.redirect_stdout(printed):
            exec(own.replace('"payments-', f'"{tmp_path}/payments-'), names)
    promised = [line for block in blocks for line in re.findall(r"print\(.*\)  # (.*)", block)]
    assert len(promised) == 4
    assert printed.getvalue().splitlines() == promised * runs
