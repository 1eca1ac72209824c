"""What a sink is: something that takes the rows of a micro-batch once, and says whether it had them already.

A sink has to claim (sink, batch) in the commit that makes the rows visible. It must never return an outcome before that
commit is known to have happened: when in doubt it raises, Spark replays the batch, and the claim tells.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from semel.spark.tables.leftovers import let_go

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Batch:
    """Which micro-batch it is. `digest` stands for what it is made of: a replay has the same one, and a batch that was
    planned anew has another, even where a restored checkpoint gives it the same number."""

    query_id: str
    batch_id: int
    digest: str = ""


def chosen(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """What a sink takes of the rows that it shares with others: all, or these expressions of SQL."""
    return rows.selectExpr(*columns) if columns else rows


class Outcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


@runtime_checkable
class Sink(Protocol):
    """A sink is also what `df.writeStream.foreachBatch(sink)` takes."""

    name: str
    """What messages call it, and what tells it from the other sinks of one query."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        """Takes the rows, or finds that it has them; raises where it can be sure of neither."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        from semel.spark.tables.micro_batch import batch_of

        self.write(rows, batch_of(rows, batch_id))
        let_go(batch_id)
