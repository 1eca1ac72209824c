"""Rows that no Delta table on a file system can have: the value of a partition is a part of a directory's name.

Spark would end the query for ever, and name neither the row nor the column. Nothing here writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StringType

from semel.spark.claims import Outcome
from semel.spark.tables.claims import TableClaim

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The file systems that people use allow no longer name.
NAME_BYTES_MAX: Final = 255
# Spark writes each of these as three characters.
ESCAPED: Final = r"[\x01-\x1f\x22\x23\x25\x27\x2a\x2f\x3a\x3d\x3f\x5b\x5c\x5d\x5e\x7b\x7f]"
ESCAPE: Final = "%XX"


def reasons(rows: DataFrame, partition_by: Sequence[str]) -> Column | None:
    """Why the table cannot have a row: a column, which is null if it can. None if it can have every row."""
    from pyspark.sql import functions as f

    texts = {field.name for field in rows.schema.fields if isinstance(field.dataType, StringType)}
    each = [_reason(rows, name) for name in partition_by if name in texts]
    return f.coalesce(*each) if each else None


def _reason(rows: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as f

    column = rows[f"`{name.replace('`', '``')}`"]
    rest = len(f"{re.sub(ESCAPED, ESCAPE, name)}=".encode())
    length = f.octet_length(f.regexp_replace(column, ESCAPED, ESCAPE)) + rest
    too_long = f"column {name!r} is too long for a partition: the name of its directory would have more than "
    return f.when(f.contains(column, f.lit("\0")), f"column {name!r} has the character NUL, and is a partition").when(
        length > NAME_BYTES_MAX, f"{too_long}{NAME_BYTES_MAX} bytes"
    )


def as_row(rows: DataFrame) -> Column:
    """The row as JSON."""
    from pyspark.sql import functions as f

    return f.to_json(f.struct(*(f"`{name.replace('`', '``')}`" for name in rows.columns)))


def quarantined(rows: DataFrame, reason: Column, sink: str, query_id: str, batch_id: int) -> DataFrame:
    """The rows that have a reason, as the quarantine keeps them."""
    from pyspark.sql import functions as f

    return rows.where(reason.isNotNull()).select(
        f.lit(sink).alias("sink_id"),
        f.lit(query_id).alias("query_id"),
        f.lit(batch_id).cast("long").alias("batch_id"),
        reason.alias("reason"),
        as_row(rows).alias("row"),
        f.current_timestamp().alias("written_at"),
    )


def judge_quarantined(held: TableClaim | None, claim: TableClaim) -> Outcome:
    """The quarantine is asked before the table, which refuses what does not follow, and has a claim only of the batches
    that had bad rows."""
    is_known = held is not None and held.query_id == claim.query_id and held.batch_id > claim.batch_id
    return Outcome.DUPLICATE if held == claim or is_known else Outcome.ACCEPTED
