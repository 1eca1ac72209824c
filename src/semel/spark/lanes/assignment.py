"""Brings rows into lanes: each row always into the same lane, even if it is computed again on another machine.

The lane of a row must depend only on the row, and the step that brings it there must be the last one that moves rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as sf

from semel.spark.lanes.options import LANES_MAX
from semel.spark.lanes.rows import LANE, LANE_COUNT, RowsRefused
from semel.spark.source.errors import OptionRefused
from semel.spark.versions import partitioned_by_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lanes(rows: "DataFrame", count: int, by: "str | Column | Sequence[str | Column] | None" = None) -> "DataFrame":
    """The rows in `count` partitions, with the partition's number in a column `lane`, ready for the sink into the log.

    `by` says which rows stay together and in order: by default those with the same key or, without a key, with the same
    value. It must not change when a row is computed again. The number of lanes of a sink must never change.
    """
    if not 1 <= count <= LANES_MAX:
        raise OptionRefused(f"a sink has from 1 to {LANES_MAX} lanes, not {count}")
    if LANE in rows.columns:
        raise RowsRefused("the rows have a column 'lane' already: drop it, or rename it")
    if by is None:
        texts = [sf.col(name).cast("binary") for name in ("key", "value") if name in rows.columns]
        if not texts:
            raise RowsRefused("by what? The rows have neither a key nor a value")
        wanted: list[Column] = [sf.coalesce(*texts)]
    else:
        names = [by] if isinstance(by, (str, Column)) else list(by)
        wanted = [sf.col(one) if isinstance(one, str) else one for one in names]
    lane = sf.pmod(sf.xxhash64(*wanted), sf.lit(count)).cast("int")
    # With Spark Connect, `withColumn` would lose the metadata.
    return partitioned_by_number(rows.select("*", lane.alias(LANE, metadata={LANE_COUNT: count})), count, LANE)
