"""Rows that no table of files can have, and the quarantine in which they are kept.

Spark would end the query for ever, and name neither the row nor the column. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from semel.spark.claims import Outcome
from semel.spark.tables.claims import TableClaim

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def column_of(name: str) -> Column:
    """The column of this very name, whatever is in it."""
    from pyspark.sql import functions as f

    return f.col(f"`{name.replace('`', '``')}`")


def first_reason(each: Sequence[Column]) -> Column | None:
    """The first reason why a table cannot have a row, null if it can; None if it can have every row."""
    from pyspark.sql import functions as f

    return f.coalesce(*each) if each else None


def not_utf8(names: Iterable[str]) -> list[Column]:
    """Which of these columns is no text that a reader could read."""
    from pyspark.sql import functions as f

    return [f.when(~f.is_valid_utf8(column_of(name)), f"column {name!r} is not UTF-8") for name in names]


def as_row(rows: DataFrame) -> Column:
    """The row as JSON."""
    from pyspark.sql import functions as f

    return f.to_json(f.struct(*map(column_of, rows.columns)))


def quarantined(rows: DataFrame, reason: Column) -> DataFrame:
    """The rows that have a reason, with it."""
    return rows.where(reason.isNotNull()).select(reason.alias("reason"), as_row(rows).alias("row"))


def kept(bad: DataFrame, sink: str, claim: TableClaim) -> DataFrame:
    """Such rows as the quarantine keeps them."""
    from pyspark.sql import functions as f

    return bad.select(
        f.lit(sink).alias("sink_id"),
        f.lit(claim.query_id).alias("query_id"),
        f.lit(claim.batch_id).cast("long").alias("batch_id"),
        "reason",
        "row",
        f.current_timestamp().alias("written_at"),
    )


def judge_quarantined(held: TableClaim | None, claim: TableClaim) -> Outcome:
    """The quarantine is asked before the table, which refuses what does not follow, and has a claim only of the batches
    that had bad rows."""
    is_known = held is not None and held.query_id == claim.query_id and held.batch_id > claim.batch_id
    return Outcome.DUPLICATE if held == claim or is_known else Outcome.ACCEPTED
