"""What Spark's micro-batch engine asks of a source, without Spark: the same calls in order, over JSON and pickle.

A query of it costs milliseconds where Spark's costs seconds; that Spark does ask in this order is for the tests with
Spark to show. What the engine keeps in its checkpoint is a list of offsets here, and survives the driver.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from log_under_test import LogUnderTest

from semel.spark.data_source import SemelDataSource
from semel.spark.source.options import read_options
from semel.spark.source.rows import chosen_columns
from semel.spark.source.stream import SemelStreamReader
from semel.spark.versions import ASKS_FOR_LIMITS

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from semel.spark.source.limited_stream import LimitedStreamReader


@dataclass
class Checkpoint:
    """Ends of batches that were planned, and how many of them are finished."""

    planned: list[str] = field(default_factory=list)
    finished: int = 0


def source(options: Mapping[str, str]) -> SemelDataSource:
    return SemelDataSource({name.lower(): value for name, value in options.items()})


def stream_reader(options: Mapping[str, str]) -> LimitedStreamReader:
    if not ASKS_FOR_LIMITS:
        pytest.skip("only Spark 4.2 and newer asks a source in Python for limits")
    from semel.spark.source.limited_stream import LimitedStreamReader

    found = source(options)
    reader = found.streamReader(found.schema())
    assert isinstance(reader, LimitedStreamReader)
    return reader


def plain_reader(options: Mapping[str, str]) -> SemelStreamReader:
    """The reader for Spark 4.0 and 4.1."""
    read = read_options({name.lower(): value for name, value in options.items()})
    return SemelStreamReader(read, chosen_columns(source(options).schema()))


class SmallDriver:
    """One run of a query: from its checkpoint on."""

    def __init__(
        self, options: Mapping[str, str], checkpoint: Checkpoint | None = None, *, available_now: bool = False
    ):
        self.checkpoint = checkpoint or Checkpoint()
        self._planner = stream_reader(options)
        self._worker = pickle.dumps(stream_reader(options))
        if available_now:
            self._planner.prepareForTriggerAvailableNow()
        self._limit = self._planner.getDefaultReadLimit()

    def batch(self, limit: ReadLimit | None = None) -> pa.Table | None:
        """The rows of the next batch, or None if there is none to be made; a batch left unfinished is replayed."""
        if not self.plan(limit):
            return None
        rows = self.run()
        self.finish()
        return rows

    def everything(self) -> list[Any]:
        """The rows of all batches that there are."""
        rows: list[Any] = []
        while (found := self.batch()) is not None:
            rows.extend(found.to_pylist())
        return rows

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Plan the next batch and note it, unless one is noted that is not finished."""
        noted = self.checkpoint
        if len(noted.planned) > noted.finished:
            return True
        start = self._start()
        end = json.dumps(self._latest_offset(json.loads(start), limit))
        if noted.planned and end == start:
            return False
        noted.planned.append(end)
        return True

    def slices(self) -> list[bytes]:
        """The tasks of the batch that is noted and not finished, as they go to other processes."""
        end = self.checkpoint.planned[self.checkpoint.finished]
        return [
            pickle.dumps(partition)
            for partition in self._planner.partitions(json.loads(self._start()), json.loads(end))
        ]

    def read(self, slices: list[bytes]) -> pa.Table:
        worker: SemelStreamReader = pickle.loads(self._worker)
        batches = [batch for piece in slices for batch in worker.read(pickle.loads(piece))]
        return pa.Table.from_batches(batches) if batches else pa.table({"value": pa.array([], pa.binary())})

    def run(self) -> pa.Table:
        return self.read(self.slices())

    def finish(self) -> None:
        self.checkpoint.finished += 1
        self._planner.commit(json.loads(self.checkpoint.planned[self.checkpoint.finished - 1]))

    def initial(self) -> dict[str, Any]:
        """Where the query begins, as the source says each time that Spark asks."""
        return self._planner.initialOffset()

    def latest(self) -> dict[str, Any] | None:
        """What the progress of the query would say of the end of the log."""
        return self._planner.reportLatestOffset()

    def _latest_offset(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        return self._planner.latestOffset(start, limit or self._limit)

    def _start(self) -> str:
        """Where the next batch begins; the first one begins where the source says when it is asked."""
        before = self.checkpoint.finished
        return self.checkpoint.planned[before - 1] if before else json.dumps(self.initial())


class PlainDriver(SmallDriver):
    """The same as Spark 4.0 and 4.1 do it: they name the last end once, and only if they go on from a checkpoint."""

    def __init__(self, options: Mapping[str, str], checkpoint: Checkpoint | None = None):
        self.checkpoint = checkpoint or Checkpoint()
        self._plain = plain_reader(options)
        self._planner = self._plain  # type: ignore[assignment]
        self._worker = pickle.dumps(plain_reader(options))
        if self.checkpoint.planned:
            last = self.checkpoint.planned[-1]
            self._plain.partitions(json.loads(last), json.loads(last))

    def _latest_offset(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        assert limit is None
        return self._plain.latestOffset()


DRIVERS = (SmallDriver, PlainDriver)


def query(log: LogUnderTest, topic: str, **options: str) -> dict[str, str]:
    """The options of a query that reads a topic from its beginning, and looks again at a loss at once."""
    return {
        "kafka.bootstrap.servers": log.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "fetchOffset.retryIntervalMs": "0",
        **options,
    }


def values(rows: pa.Table | None) -> list[str] | None:
    return None if rows is None else [value.decode() for value in rows["value"].to_pylist()]


def all_available() -> ReadLimit:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()
