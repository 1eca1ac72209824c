"""Queries from the log into tables go on when another broker takes over in the middle of a batch."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_under_test import LogUnderTest
from sink_places import KINDS, Place, place_of

from eventually import eventually
from semel.audit import Verdict, audit
from takeover_pair import Pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000
# So many tasks has a batch, of which Spark runs two at a time here: the others read from the next broker.
TASKS = 8


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path / "pair")
    yield pair
    pair.end()


class Gate:
    """Tasks wait at it while it is closed, each in the middle of its rows."""

    def __init__(self, directory: Path) -> None:
        self._lock = directory / "gate"
        self._lock.touch()
        self.reached = directory / "reached"

    @contextmanager
    def closed(self) -> Iterator[None]:
        with self._lock.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def before(self, rows: DataFrame) -> DataFrame:
        """The same rows, behind the gate."""
        lock, reached = self._lock, self.reached

        def pass_through(batches: Iterator[Any]) -> Iterator[Any]:
            import fcntl

            for batch in batches:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                reached.touch()
                with lock.open() as gate:
                    fcntl.flock(gate, fcntl.LOCK_SH)
                yield batch.slice(half)

        return rows.mapInArrow(pass_through, rows.schema)


class Query:
    """From a topic into one of the places."""

    def __init__(self, spark: SparkSession, bootstrap: str, place: Place) -> None:
        self._log = LogUnderTest(bootstrap)
        self._place = place
        self.gate = Gate(place.directory)
        self.topic = self._log.make(2)
        reader = spark.readStream.format("semel").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.options(subscribe=self.topic, startingOffsets="earliest", minPartitions=str(TASKS))
        self._rows = self.gate.before(reader.load().selectExpr("cast(cast(value AS string) AS bigint) AS id"))
        self._fed = 0

    def feed(self) -> None:
        for partition in range(2):
            numbers = range(self._fed + partition, self._fed + ROWS, 2)
            self._log.put(self.topic, *map(str, numbers), partition=partition)
        self._fed += ROWS

    def run(self) -> None:
        self._place.start(self._rows).awaitTermination()

    def verdict(self) -> Verdict:
        """What the place has, without Spark, whose tasks may all be waiting."""
        return audit(f"semel://{self._log.bootstrap}/{self.topic}?id=value", f"{self._address}?id=id")

    @property
    def _address(self) -> str:
        match self._place.kind:
            case "postgresql" | "mariadb":
                return f"{self._place.url}/rows"
            case "sqlite":
                return f"sqlite:{self._place.directory}/rows.db/rows"
            case kind:
                return f"{kind}:{self._place.out}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_takeover_in_the_middle_of_a_batch_costs_no_row_of_a_table(
    kind: str, spark: SparkSession, pair: Pair, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The broker is killed with its disk when two tasks have half of their rows, and the others none."""
    query = Query(spark, pair.bootstrap, place_of(kind, tmp_path / "place", request))

    def take_over() -> Verdict:
        with query.gate.closed():
            closed.set()
            assert eventually(query.gate.reached.exists)
            before = query.verdict()
            pair.take_over("kill")
        return before

    query.feed()
    query.run()
    query.gate.reached.unlink()
    query.feed()
    closed = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        takeover = executor.submit(take_over)
        assert closed.wait(30)
        query.run()
        before = takeover.result()
    assert (before.source.rows, before.sinks[0].sink.rows) == (2 * ROWS, ROWS)
    query.feed()
    query.run()
    verdict = query.verdict()
    assert verdict.is_clean, verdict.sinks
    assert verdict.source.rows == 3 * ROWS
