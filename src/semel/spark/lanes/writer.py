"""The sink into the log as Spark calls it: the driver plans a write, tasks write the lanes, and the driver closes it.

Spark does not pass the query and the batch to the task of a Python sink; both are among the task's local properties,
and without them nothing is written. `abort` must undo nothing: Spark may call it after every task has committed.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from semel.client import LogError
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneOutcome, LaneWriter
from semel.spark.lanes.options import SinkOptions
from semel.spark.lanes.protocol import LaneClaim, Order
from semel.spark.lanes.rows import RowsRefused, check_schema
from semel.spark.source.errors import OptionRefused, told_in_one_line
from semel.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
SPECULATION: Final = "spark.speculation"
# How many lanes without a task the driver closes at once.
CLOSERS_MAX: Final = 8


class SparkNotUnderstood(LogError):
    """This version of Spark does not give its tasks the properties that the sink needs."""


@dataclass(frozen=True)
class LaneMessage(WriterCommitMessage):
    """What a task tells the driver: the batch and the lane that it wrote, and the outcome."""

    claim: LaneClaim
    outcome: LaneOutcome


class LaneSink:
    """The common part of a stream's write and a batch write."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool, order: Order) -> None:
        if overwrite:
            raise RowsRefused("a log is only appended to: output mode complete, or mode overwrite, has no meaning here")
        brought_into = check_schema(schema, options.topic)
        if brought_into is None and options.lanes is None:
            raise OptionRefused(
                "how many lanes? Bring the rows into lanes with semel.spark.lanes(df, N); or, if each partition has "
                "the same rows whenever it is computed again, say with option lanes how many there are at most"
            )
        if brought_into is not None and options.lanes not in (None, brought_into):
            raise OptionRefused(f"option lanes={options.lanes}, and semel.spark.lanes was given {brought_into}")
        self._options = options
        self._lane_count = brought_into
        self._lanes = brought_into or options.lanes or 0
        may_grow = brought_into is None and order is not Order.CONSECUTIVE
        # In a query this may be any of its batches, and a broker that is away for a moment is waited for.
        is_alone = order is not Order.CONSECUTIVE
        topic = progress.prepare(
            options.client, options.progress_topic, self._lanes, may_grow=may_grow, address_is_new=is_alone
        )
        self._writer = LaneWriter(options.client, topic, options.topic, options.transaction_timeout_ms)

    def _write(self, query_id: str, batch_id: int, order: Order, batches: Iterator[Any]) -> LaneMessage:
        context = task()
        if (context.getLocalProperty(SPECULATION) or "").lower() == "true":
            raise OptionRefused(
                "spark.speculation=true: two copies of a task would fence each other over and over. Set it to false"
            )
        lane = context.partitionId()
        if lane >= self._lanes:
            raise OptionRefused(
                f"the rows came in more partitions than the sink has lanes, {self._lanes}: bring them into lanes with "
                "semel.spark.lanes; or coalesce them, for the number of lanes stays what it was in the first batch"
            )
        accept_after = self._options.accept_after
        claim = LaneClaim(self._options.sink_id, lane, self._lane_count, query_id, batch_id, order, accept_after)
        outcome = self._writer.write(claim, batches)
        settle()
        return LaneMessage(claim, outcome)

    def _close(self, messages: list[WriterCommitMessage | None]) -> None:
        """A lane without a task had no rows. The driver writes its marker, so that every lane has every batch."""
        lane_messages = [message for message in messages if isinstance(message, LaneMessage)]
        missing = sorted(set(range(self._lanes)) - {message.claim.lane for message in lane_messages})
        outcomes = [message.outcome for message in lane_messages]
        if missing and lane_messages:
            claims = [replace(lane_messages[0].claim, lane=lane) for lane in missing]
            with ThreadPoolExecutor(CLOSERS_MAX) as closers:
                outcomes += closers.map(lambda claim: self._writer.write(claim, ()), claims)
        logger.info(
            "sink %s: %d rows in %d lanes, of which %d were there",
            self._options.sink_id,
            sum(outcome.digest.rows for outcome in outcomes),
            len(outcomes),
            sum(outcome.was_duplicate for outcome in outcomes),
        )


class LaneBatchWriter(LaneSink, DataSourceArrowWriter):
    """`df.write.format("semel")`."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, options.order)
        # All attempts at this job share the id; another job has another one.
        self._query_id = options.query_id or ("" if options.order is Order.RISING else uuid4().hex)

    def write(self, iterator: Iterator[Any]) -> LaneMessage:
        with told_in_one_line():
            if self._options.order is Order.SINGLE and task().getLocalProperty(QUERY_ID):
                raise OptionRefused(
                    "a write inside of foreachBatch needs the options queryId and batchId, or it would be a new one "
                    "when the batch is run again: use semel.spark.log_sink, which gives them"
                )
            return self._write(self._query_id, self._options.batch_id or 0, self._options.order, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with told_in_one_line():
            self._close(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undoes nothing: a write that is repeated with its batchId finds what lanes have committed."""


def task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkNotUnderstood("the sink was called outside a Spark task")
    return context
