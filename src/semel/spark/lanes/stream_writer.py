"""The sink into the log for `df.writeStream.format("semel")`, which Spark offers from 4.1 on; this module cannot be
imported before.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from semel.spark.lanes.options import SinkOptions
from semel.spark.lanes.protocol import Order
from semel.spark.lanes.writer import QUERY_ID, LaneMessage, LaneSink, SparkNotUnderstood, task
from semel.spark.source.errors import told_in_one_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ID: Final = "streaming.sql.batchId"


class LaneStreamWriter(LaneSink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("semel")`."""

    def __init__(self, options: SinkOptions, schema: "StructType", overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, Order.CONSECUTIVE)

    def write(self, iterator: Iterator[Any]) -> LaneMessage:
        with told_in_one_line():
            query_id, batch_id = batch_of_the_task()
            return self._write(query_id, batch_id, Order.CONSECUTIVE, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with told_in_one_line():
            self._close(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Undoes nothing: what lanes have committed stays, and the replay finds it."""


def batch_of_the_task() -> tuple[str, int]:
    context = task()
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query_id or batch_id is None or not batch_id.isdigit():
        raise SparkNotUnderstood(
            f"this Spark does not tell its tasks the query and the batch ({QUERY_ID}={query_id!r}, "
            f"{BATCH_ID}={batch_id!r}), without which nothing can be written once"
        )
    return query_id, int(batch_id)
