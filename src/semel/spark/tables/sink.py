"""What a sink is: it writes the rows of a micro-batch once, and says whether it had them already.

A sink has to claim (sink, batch) in the commit that makes the rows visible. It must never return an outcome before it
knows that this commit happened: when in doubt it raises, Spark replays the batch, and the claim shows what happened. A
batch that the sink has must still be evaluated: Spark makes the query's state by evaluating it, and commits the state
with the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from semel.spark.claims import Batch, Outcome
from semel.spark.tables.micro_batch import batch_of, collect_leftovers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def chosen(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The columns that a sink writes: all, or these expressions of SQL."""
    return rows.selectExpr(*columns) if columns else rows


@runtime_checkable
class Sink(Protocol):
    """A sink can be given to `df.writeStream.foreachBatch(sink)`."""

    name: str
    """The sink's name in messages; it differs from the names of the query's other sinks."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        """Writes the rows, or finds that it has them; raises if it can be sure of neither. A sink that has the rows
        need not evaluate them: `take` does that."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        take(self, rows, batch_of(rows, batch_id))


def take(sink: Sink, rows: DataFrame, batch: Batch) -> None:
    """Writes a micro-batch that Spark runs into a sink, and does what each batch needs whatever its outcome is.

    When Spark evaluates the rows, each partition writes its state, and Spark ends a query whose state did not commit
    with the batch. So a batch that the sink has is evaluated only for its state.
    """
    if sink.write(rows, batch) is Outcome.DUPLICATE:
        # This evaluates every partition, and no row leaves Java.
        rows.write.format("noop").mode("overwrite").save()
    collect_leftovers(batch.batch_id)
