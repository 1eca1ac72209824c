"""Which output modes of a query go with which way of writing its rows.

In append mode Spark gives each row once. In update mode, an aggregation gives a result again whenever it has changed,
and each is the whole result, not the difference; in complete mode it gives all results in every batch. Rows
that are added, or combined with those of the table, would then be counted several times. Pure: a sink asks before it
writes anything.
"""

from __future__ import annotations

from typing import Final, Literal

from semel.spark.claims import Batch
from semel.spark.tables.statements import Write

# A part of the name of each operator that keeps the results of an aggregation, in small letters.
AGGREGATION: Final = "statestoresave"

Kind = Literal["append", "upsert", "merge", "statement", "log"]
"""How a sink writes; `statement` is an SQL statement that the user wrote, who knows what it does. Readers of a log take
the last record of each key, and so may get a result again when it has changed."""


class WrongOutputMode(ValueError):
    """The query gives rows in a way in which this sink would count some of them several times."""


def kind_of(write: Write) -> Kind:
    return "statement" if isinstance(write.merge, str) else write.mode


def check_output(sink: str, kind: Kind, batch: Batch) -> None:
    """Refuses a query whose rows are whole results that are given again, if the sink adds them to those it has."""
    is_right = batch.output_mode != "complete" if kind == "log" else kind in ("upsert", "statement")
    if is_right or not gives_results_again(batch):
        return
    each = "all results in every batch" if batch.output_mode == "complete" else "each result again when it has changed"
    does = "combines them with the results of before" if kind == "merge" else "adds every row"
    raise WrongOutputMode(
        f"sink {sink!r}: in output mode {batch.output_mode} the query gives {each}, and this sink {does}, so the same "
        "would be counted several times. Nothing was written. Replace the result of each key (sql_sink, "
        'mode="upsert"), or use outputMode("append")'
    )


def gives_results_again(batch: Batch) -> bool:
    """In update mode only an aggregation gives its results again. Other operators give each row once; what an operator
    with a function of the user gives, only the user knows."""
    is_aggregated = any(AGGREGATION in operator.lower() for operator in batch.state)
    return batch.output_mode == "complete" or (batch.output_mode == "update" and is_aggregated)
