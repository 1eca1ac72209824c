"""`dedup_by_id`: for streams whose rows have no numbers, only the id of an event and the time when it happened."""

import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from semel.spark.dedup import parameters
from semel.spark.dedup.id_judge import HAPPENED, IdJudge
from semel.spark.dedup.judge import KEY_HIGH
from semel.spark.dedup.keys import keyed, kinds
from semel.spark.dedup.operator import BUCKETS_DEFAULT, EventTime, judged


def dedup_by_id(
    df: DataFrame,
    id: str = "event_id",
    *,
    watermark: str,
    within: str | datetime.timedelta = "1 hour",
    buckets: int = BUCKETS_DEFAULT,
    name: str = "dedup",
) -> DataFrame:
    """The rows with the outcome of each in the column `outcome`: accepted, duplicate, late, or unclaimed if the id or
    the time is missing. A time that cannot be read is null, so each copy of such a row is unclaimed.

    `watermark` is the column that says when an event happened. A row that is older than the newest by more than
    `within` is late, and never accepted. Copies of an event are found if their times differ by no more than `within`.
    An id takes 20 bytes of state for that time. `buckets` is the number of values that hold the state, each of which a
    batch reads and writes: it cannot be changed later. The query's metrics count the outcomes as `semel.<name>`.
    """
    parameters.check_frame(df)
    parameters.check_buckets(buckets)
    within_ms = parameters.duration_ms("within", within)
    parameters.time_column(df, "watermark", watermark)
    rows = keyed(df, "id", [id], needed=[id, watermark])
    happened = F.unix_millis(parameters.column(rows, "watermark", watermark))
    claims = rows.select("*", F.when(rows[KEY_HIGH].isNotNull(), happened).alias(HAPPENED))
    judge = IdJudge(pinned_of(df, id, watermark, within_ms), within_ms)
    return judged(claims, judge, name=name, buckets=buckets, event_time=EventTime(watermark, within_ms))


def pinned_of(df: DataFrame, id: str, watermark: str, within_ms: int) -> dict[str, object]:
    """What must stay as it is while there is state."""
    return {"id": id, "watermark": watermark, "within_ms": within_ms, "types": kinds(df, [id])}
