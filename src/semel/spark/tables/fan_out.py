"""One micro-batch into several sinks, each of which claims it on its own.

There is no transaction over all of them: after a failure some have the batch and some do not. Spark replays it; the
sinks that have it report a duplicate, and the others write it. Readers of two sinks may see one ahead of the other by a
batch. This module must never remember the outcome of a sink: only the sinks know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from semel.spark.claims import Batch, Outcome
from semel.spark.counts import counted
from semel.spark.tables.micro_batch import batch_of
from semel.spark.tables.sink import Sink, take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# What a count of rows is called that no sink took, because `where` was true for none.
NO_SINK: Final = "in no sink"


class FanOut(Sink):
    def __init__(self, sinks: Sequence[Sink], checkpoint: str | None = None) -> None:
        if not sinks:
            raise ValueError("fan_out(df, sinks=[...]) needs a sink")
        for sink in sinks:
            if not isinstance(sink, Sink):
                raise TypeError(f"{sink!r} is no sink of semel's: what does not claim a batch may get it twice")
        names = [sink.name for sink in sinks]
        doubled = [name for name in names if names.count(name) > 1]
        if doubled:
            raise ValueError(f"two sinks have the name {doubled[0]!r}: sink_id=... gives each its own")
        self.name = "+".join(names)
        self.sinks = tuple(sinks)
        self.checkpoint = checkpoint

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        take(self, rows, batch_of(rows, batch_id, self.checkpoint))

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        """Writes into the sinks in order and stops at the first that fails: the replay reaches the others."""
        # So that the source is read once, and all sinks get the same rows of this attempt.
        rows.persist()
        try:
            outcomes = [sink.write(rows, batch) for sink in self.sinks]
        finally:
            rows.unpersist()
        return Outcome.ACCEPTED if Outcome.ACCEPTED in outcomes else Outcome.DUPLICATE


def fan_out(df: DataFrame, sinks: Sequence[Sink], *, checkpoint: str | None = None) -> DataStreamWriter:
    """A writer of the stream `df` into all sinks: set its trigger and other options, and start it.

    Each sink takes the rows for which its `where` is true. If all have one, the query's metrics count the rows that no
    sink took, and a batch that has some says so in the log. `checkpoint` is the query's checkpointLocation. With Spark
    Connect it has to be given here; otherwise the option `checkpointLocation` works too.
    """
    into_all = FanOut(sinks, checkpoint)
    for sink in sinks:
        sink.check(df)
    wheres = [sink.choice.where for sink in sinks]
    if None not in wheres:
        taken = " OR ".join(f"coalesce({where}, false)" for where in wheres)
        df = counted(df, "fan_out", {NO_SINK: f"NOT ({taken})"})
    writer = df.writeStream.foreachBatch(into_all)
    return writer if checkpoint is None else writer.option("checkpointLocation", checkpoint)
