"""The log as one of several sinks of a query: each micro-batch is a batch write, claimed lane by lane.

It is for `fan_out` and `foreachBatch`; a query with this sink alone should use `format("semel")`, which finds the batch
by itself. Both must make the same claims and refuse the same writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import is_remote

from semel.client import LogClient
from semel.spark.claims import OTHER_QUERY, RESTORE, Batch, BatchRefused, Outcome
from semel.spark.lanes import assignment, progress
from semel.spark.lanes.options import SinkOptions, read_options
from semel.spark.lanes.protocol import LaneClaim, fence_of
from semel.spark.tables.claims import state_lost
from semel.spark.tables.output_modes import check_output
from semel.spark.tables.sink import EVERYTHING, Choice, Sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# How to begin again if the query has lost its state: records in the log stay.
AFRESH: Final = "choose a new topic and a new sinkId, or a new sinkId alone if readers take the last record of each key"


def log_sink(
    bootstrap: str,
    topic: str | None = None,
    *,
    sink_id: str,
    lanes: int | None = None,
    by: str | Column | Sequence[str | Column] | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    accept_after: str | None = None,
    options: Mapping[str, str] | None = None,
) -> LogSink:
    """A sink into a topic, or into the topics that the column `topic` names.

    `where` chooses which rows are written, and `columns` what of them, as expressions of Spark's SQL: `key`, `value`
    and the other columns of a record. `lanes` and `by` are then passed to `semel.spark.lanes`; without them the rows
    have to be in lanes already. `accept_after` lets one batch follow that was refused: the refusal says which value.
    `options` are those of `format("semel")`.
    """
    texts = {**(options or {}), "kafka.bootstrap.servers": bootstrap, "sinkId": sink_id}
    if topic is not None:
        texts["topic"] = topic
    if accept_after is not None:
        texts["acceptAfter"] = accept_after
    return LogSink(sink_id, read_options(texts), texts, lanes, by, Choice(tuple(columns), where))


@dataclass(frozen=True)
class LogSink(Sink):
    """Writes the rows of a micro-batch into the log once."""

    name: str
    settings: SinkOptions = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    lanes: int | None = None
    by: str | Column | Sequence[str | Column] | None = None
    choice: Choice = EVERYTHING

    def check(self, rows: DataFrame) -> None:
        super().check(rows)
        if not is_remote():
            # With Spark Connect another machine writes the rows, and this one need not reach the brokers.
            with LogClient(self.settings.client, address_is_new=True) as client:
                client.topics([self.settings.progress_topic])

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        check_output(self.name, "log", batch)
        was_there = _is_written(self.settings, batch)
        claimed = {**self.options, "queryId": batch.query_id, "batchId": str(batch.batch_id)}
        rows = self.chosen(rows)
        laned = rows if self.lanes is None else assignment.lanes(rows, self.lanes, self.by)
        laned.write.format("semel").mode("append").options(**claimed).save()
        return Outcome.DUPLICATE if was_there else Outcome.ACCEPTED


def _is_written(options: SinkOptions, batch: Batch) -> bool:
    """Whether every lane has this batch. Only the outcome depends on it: each lane checks again after its fence."""
    with LogClient(options.client) as client:
        topic = client.topics([options.progress_topic]).get(options.progress_topic)
        if topic is None:
            return False
        for lane in range(topic.partitions):
            claim = LaneClaim(options.sink_id, lane, topic.partitions, batch.query_id, batch.batch_id)
            progress.await_commit(client, topic, lane, fence_of(claim))
            marker = progress.peek_marker(client, topic, lane, options.sink_id)
            if marker is not None and marker.newest.query_id != batch.query_id and batch.state:
                raise BatchRefused(
                    f"{RESTORE}: sink {options.sink_id!r} refused batch {batch.batch_id} of query {batch.query_id}: "
                    f"its last batch, {marker.newest.batch_id}, is of another query, {marker.newest.query_id} "
                    f"({OTHER_QUERY}). Nothing was written. {state_lost(batch.state, AFRESH)}"
                )
            written = marker.written if marker is not None else ()
            if not any((one.query_id, one.batch_id) == (batch.query_id, batch.batch_id) for one in written):
                return False
    return True
