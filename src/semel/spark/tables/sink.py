"""What a sink is: something that takes the rows of a micro-batch once, and says whether it had them already.

A sink has to claim (sink, batch) in the commit that makes the rows visible. It must never return an outcome before that
commit is known to have happened: when in doubt it raises, Spark replays the batch, and the claim tells. A batch that
the sink has must not be passed over either: the state of the query commits with it, and is made by evaluating it.
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
    """What a sink takes of the rows that it shares with others: all, or these expressions of SQL."""
    return rows.selectExpr(*columns) if columns else rows


@runtime_checkable
class Sink(Protocol):
    """A sink is also what `df.writeStream.foreachBatch(sink)` takes."""

    name: str
    """What messages call it, and what tells it from the other sinks of one query."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        """Takes the rows, or finds that it has them; raises where it can be sure of neither. A sink that finds that it
        has them need not evaluate them: `take` sees to that."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        take(self, rows, batch_of(rows, batch_id))


def take(sink: Sink, rows: DataFrame, batch: Batch) -> None:
    """Has a sink take a micro-batch that Spark runs, with everything that has to happen in it whatever the sink says.

    Spark writes the state of a query when the rows are evaluated, each partition its own, and ends a query whose state
    did not commit with the batch. So a batch that the sink has is evaluated for its state alone.
    """
    if sink.write(rows, batch) is Outcome.DUPLICATE:
        # No row leaves Java, and no partition is left out.
        rows.write.format("noop").mode("overwrite").save()
    collect_leftovers(batch.batch_id)
