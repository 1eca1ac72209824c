"""The sink into the log goes on when another broker takes over in the middle of a batch, and each row is there once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import faulty_sink
import pytest
from lane_pipeline import Pipeline
from log_under_test import LogUnderTest

from eventually import eventually
from semel.audit import audit
from semel.spark import lanes
from takeover_pair import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000
# So small that what a task has written does not wait for its commit.
REQUEST_BYTES = {"kafka.max.request.size": 1_000}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path / "pair")
    yield pair
    pair.end()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "pause", "stop"])
def test_a_takeover_behind_rows_that_are_not_committed_costs_no_row_and_doubles_none(
    how: str, spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    """Killed with its disk, stopped as by SIGTERM, or standing still until the other one has taken over."""
    faulty_sink.register(spark)
    pipeline = Pipeline(spark, LogUnderTest(pair.bootstrap), tmp_path)
    reached = pipeline.faults.directory / faulty_sink.REACHED

    def run() -> None:
        # In one lane, so whatever is in the log meanwhile is of the task that waits.
        pipeline.run(lanes(pipeline.rows(), 1), **REQUEST_BYTES)

    def take_over() -> tuple[int, int]:
        assert eventually(reached.exists)
        written = eventually(lambda: len(pipeline.stored(committed_only=False)) - ROWS)
        # The task goes on while nobody is active.
        return written, pair.take_over(how, meanwhile=pipeline.faults.go_on)

    pipeline.feed(ROWS)
    run()
    pipeline.feed(ROWS)
    pipeline.faults.set(faulty_sink.WAIT_IN_TASK)
    with ThreadPoolExecutor(1) as executor:
        takeover = executor.submit(take_over)
        run()
        written, code = takeover.result()
    assert 0 < written < ROWS
    assert code == {"kill": -9, "pause": 3, "stop": 0}[how]
    pipeline.feed(ROWS)
    run()
    source, sink = (f"semel://{pair.bootstrap}/{topic}?id=value" for topic in pipeline.names[1:3])
    verdict = audit(source, sink)
    assert verdict.is_clean, verdict.sinks
    assert verdict.source.rows == 3 * ROWS
