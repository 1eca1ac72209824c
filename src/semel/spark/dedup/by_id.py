"""`dedup_by_id`: streams whose rows have no numbers, only the id of an event and when it happened."""

import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from semel.spark.dedup import asked
from semel.spark.dedup.id_judge import HAPPENED, IdJudge
from semel.spark.dedup.judging import KEY_HIGH, KEY_LOW
from semel.spark.dedup.operator import BUCKETS_DEFAULT, EventTime, judged


def dedup_by_id(
    df: DataFrame,
    id: str = "event_id",
    *,
    watermark: str,
    within: str | datetime.timedelta = "1 hour",
    buckets: int = BUCKETS_DEFAULT,
) -> DataFrame:
    """The rows with what became of each in the column `outcome`: accepted, duplicate, late, or unclaimed where the id
    or the time is missing.

    `watermark` is the column that says when an event happened. A row that is older than the newest by more than
    `within` is late; it is given out as that and never as accepted. Copies of an event whose times differ by no more
    than `within` are found. An id takes 20 bytes of state until then, and `buckets` says in how many values the state
    lies, each of which is read and written by a batch: it cannot be changed later.
    """
    asked.check_frame(df)
    asked.check_buckets(buckets)
    within_ms = asked.duration_ms("within", within)
    event_id, happened = asked.column(df, "id", id), asked.time_column(df, "watermark", watermark)
    is_claim = event_id.isNotNull() & happened.isNotNull()
    # Strangers may choose ids: without the first hash they could choose two that are one to the second.
    high, low = asked.halves(F.sha2(_as_bytes(df, id), 256))
    claims = df.select(
        "*",
        F.when(is_claim, high).alias(KEY_HIGH),
        F.when(is_claim, low).alias(KEY_LOW),
        F.when(is_claim, F.unix_millis(happened)).alias(HAPPENED),
    )
    judge = IdJudge({"id": id, "watermark": watermark, "within_ms": within_ms}, within_ms)
    return judged(claims, judge, buckets=buckets, event_time=EventTime(watermark, within_ms))


def _as_bytes(df: DataFrame, name: str) -> Column:
    named = asked.column(df, "id", name)
    return named if isinstance(df.schema[name].dataType, BinaryType) else named.cast("string").cast("binary")
