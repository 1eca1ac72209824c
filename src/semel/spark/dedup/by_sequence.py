"""`dedup`: for streams whose producers number their rows, and that get duplicates from outside the log. It turns
columns into claims, which `sequence_judge` judges.
"""

import datetime
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from semel.spark.dedup import parameters
from semel.spark.dedup.keys import keyed, kinds
from semel.spark.dedup.operator import BUCKETS_DEFAULT, judged
from semel.spark.dedup.sequence_judge import OnGap, SequenceJudge
from semel.wire.sequences import SEQUENCE_MASK

HELD_ROWS_MAX: Final = 10_000
"""The most rows of one producer that wait until a gap is filled. They are in the state, and every batch reads them
again."""


def dedup(
    df: DataFrame,
    producer: str = "pid",
    epoch: str | None = "epoch",
    sequence: str = "seq",
    scope: Sequence[str] = ("partition",),
    on_gap: str = "hold",
    *,
    first: int | None = 0,
    hold_for: str | datetime.timedelta = "10 minutes",
    held_rows_max: int = HELD_ROWS_MAX,
    forget_after: str | datetime.timedelta = "7 days",
    idle_batches: bool = False,
    buckets: int = BUCKETS_DEFAULT,
    name: str = "dedup",
) -> DataFrame:
    """The rows with the outcome of each in the column `outcome`: accepted, duplicate, gap, fenced, or unclaimed if a
    number is missing or not valid. The column `expected` has the number that was expected instead of a gap's, or the
    epoch that fenced the row.

    Within its `scope`, a `producer` counts its rows in `sequence`, from `first` on (None: from any number), and again
    with each `epoch`; `epoch=None` is for a stream without epochs. With "hold", rows after a gap wait until it is
    filled, for up to `hold_for` and up to `held_rows_max` rows of a producer. If the gap is not filled, they come out
    as a gap, in the next batch with data, or with `idle_batches` also in one without: then a query with availableNow
    never ends. "quarantine" returns gaps at once, "fail" ends the query. A producer that sends nothing for
    `forget_after` is forgotten; time in which the query did not run does not count. The state is one record for each
    producer; `buckets` is the number of values that hold it, and cannot be changed later. The query's metrics count
    the outcomes of a stream as `semel.<name>`: two deduplications in one query need two names.
    """
    parameters.check_frame(df)
    parameters.check_buckets(buckets)
    if held_rows_max < 1:
        raise ValueError(f"held_rows_max={held_rows_max}: it has to be 1 or more")
    if on_gap not in list(OnGap):
        raise ValueError(f"on_gap={on_gap!r}: it is one of {', '.join(OnGap)}")
    if first is not None and not 0 <= first <= SEQUENCE_MASK:
        raise ValueError(f"first={first}: it has to be 0 to {SEQUENCE_MASK}, or None for any")
    if epoch is not None:
        parameters.integer_column(df, "epoch", epoch)
    parameters.integer_column(df, "sequence", sequence)
    parameters.column(df, "producer", producer)
    named = [*scope, producer]
    claims = keyed(df, "scope", named, needed=[producer])
    judge = SequenceJudge(
        pinned=pinned_of(df, producer, epoch, sequence, scope, first),
        named=named,
        epoch=epoch,
        sequence=sequence,
        first=first,
        on_gap=OnGap(on_gap),
        hold_ms=parameters.duration_ms("hold_for", hold_for),
        held_rows_max=held_rows_max,
        forget_ms=parameters.duration_ms("forget_after", forget_after),
    )
    holds = judge.on_gap is OnGap.HOLD
    return judged(claims, judge, name=name, buckets=buckets, wakes_all=holds, has_idle_batches=holds and idle_batches)


def pinned_of(
    df: DataFrame, producer: str, epoch: str | None, sequence: str, scope: Sequence[str], first: int | None
) -> dict[str, object]:
    """What must stay as it is while there is state."""
    columns = {"producer": producer, "epoch": epoch, "sequence": sequence, "scope": list(scope)}
    return {**columns, "first": first, "types": kinds(df, [*scope, producer])}
