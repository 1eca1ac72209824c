"""What a sink is: it writes the rows of a micro-batch once, and says whether it had them already.

A sink has to claim (sink, batch) in the commit that makes the rows visible. It must never return an outcome before it
knows that this commit happened: when in doubt it raises, Spark replays the batch, and the claim shows what happened. A
batch that the sink has must still be evaluated: Spark makes the query's state by evaluating it, and commits the state
with the batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from semel.spark.claims import Batch, Outcome
from semel.spark.counts import log_counts
from semel.spark.tables.micro_batch import batch_of, collect_leftovers, counts_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Choice:
    """What a sink takes of the rows, in expressions of SQL: those for which `where` is true, and of these `columns`;
    without either, all."""

    columns: tuple[str, ...] = ()
    where: str | None = None

    def of(self, rows: DataFrame) -> DataFrame:
        taken = rows if self.where is None else rows.where(self.where)
        return taken.selectExpr(*self.columns) if self.columns else taken


EVERYTHING: Final = Choice()


@runtime_checkable
class Sink(Protocol):
    """A sink can be given to `df.writeStream.foreachBatch(sink)`."""

    name: str
    """The sink's name in messages; it differs from the names of the query's other sinks."""

    choice: Choice = EVERYTHING
    """What it takes of the rows that it is given."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        """Writes the rows, or finds that it has them; raises if it can be sure of neither. A sink that has the rows
        need not evaluate them: `take` does that."""

    def check(self, rows: DataFrame) -> None:
        """Raises if this sink cannot take such rows; looks at no row. For a stream that has not begun."""
        self.chosen(rows)

    def chosen(self, rows: DataFrame) -> DataFrame:
        """What it takes of the rows; raises if its expressions do not fit them."""
        from pyspark.errors import AnalysisException

        taken = rows
        with named(self.name):
            try:
                taken = self.choice.of(rows)
                # Only now Spark Connect looks at the expressions.
                _ = taken.columns
            except AnalysisException as error:
                said = str(error).strip().partition("\n")[0].partition(" SQLSTATE")[0]
                raise ValueError(f"columns=... or where=... does not fit the rows: {said}") from None
        return taken

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        take(self, rows, batch_of(rows, batch_id))


@contextmanager
def named(sink: str) -> Iterator[None]:
    """Names the sink that refuses something: a query may have several."""
    try:
        yield
    except ValueError as error:
        if type(error) is ValueError:
            error.args = (f"sink {sink!r}: {error}",)
        raise


def take(sink: Sink, rows: DataFrame, batch: Batch) -> None:
    """Writes a micro-batch that Spark runs into a sink, and does what each batch needs whatever its outcome is.

    When Spark evaluates the rows, each partition writes its state, and Spark ends a query whose state did not commit
    with the batch. So a batch that the sink has is evaluated only for its state.
    """
    if sink.write(rows, batch) is Outcome.DUPLICATE:
        # This evaluates every partition, and no row leaves Java.
        rows.write.format("noop").mode("overwrite").save()
    log_counts(batch.query_id, batch.batch_id, counts_in(rows))
    collect_leftovers(batch.batch_id)
