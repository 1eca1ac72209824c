"""`dedup_by_version`: for streams of changes, whose rows have the version of the aggregate that they change."""

import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from semel.spark.dedup import parameters
from semel.spark.dedup.by_sequence import HELD_ROWS_MAX, dedup
from semel.spark.dedup.judge import KEY_HIGH
from semel.spark.dedup.keys import keyed, kinds
from semel.spark.dedup.operator import BUCKETS_DEFAULT, judged
from semel.spark.dedup.version_judge import VERSION, VersionJudge

ACCEPT: Final = "accept"


def dedup_by_version(
    df: DataFrame,
    aggregate: str = "id",
    version: str = "version",
    on_gap: str = "hold",
    *,
    first: int | None = 1,
    hold_for: str | datetime.timedelta = "10 minutes",
    held_rows_max: int = HELD_ROWS_MAX,
    forget_after: str | datetime.timedelta = "7 days",
    idle_batches: bool = False,
    buckets: int = BUCKETS_DEFAULT,
    name: str = "dedup",
) -> DataFrame:
    """The rows with the outcome of each in the column `outcome`.

    Versions without gaps are treated like the numbers of a producer that has no epochs: see `dedup`. With
    on_gap="accept" versions only have to grow: a version newer than the last is accepted, the last itself is a
    duplicate, and an older one is late, whether it is a copy or only came too late.
    """
    if on_gap != ACCEPT:
        return dedup(
            df,
            producer=aggregate,
            epoch=None,
            sequence=version,
            scope=(),
            on_gap=on_gap,
            first=first,
            hold_for=hold_for,
            held_rows_max=held_rows_max,
            forget_after=forget_after,
            idle_batches=idle_batches,
            buckets=buckets,
            name=name,
        )
    parameters.check_frame(df)
    parameters.check_buckets(buckets)
    parameters.integer_column(df, "version", version)
    rows = keyed(df, "aggregate", [aggregate], needed=[aggregate, version])
    number = parameters.column(rows, "version", version).cast("long")
    claims = rows.select("*", F.when(rows[KEY_HIGH].isNotNull(), number).alias(VERSION))
    judge = VersionJudge(pinned_of(df, aggregate, version), parameters.duration_ms("forget_after", forget_after))
    return judged(claims, judge, name=name, buckets=buckets)


def pinned_of(df: DataFrame, aggregate: str, version: str) -> dict[str, object]:
    """What must stay as it is while there is state of versions that only have to grow."""
    return {"aggregate": aggregate, "version": version, "on_gap": ACCEPT, "types": kinds(df, [aggregate])}
