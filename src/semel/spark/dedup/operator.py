"""The stateful operator: it packs rows into pieces, gives the pieces of each bucket to the judge, and unpacks the
result. It knows Spark, and does not know how a judge decides.

Many keys share a bucket, and a bucket is one value in Spark's state store, because a call of Python costs the same for
one key as for a thousand. A batch DataFrame takes the same path, without state.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructField, StructType

from semel.spark.columns_by_number import map_in_arrow
from semel.spark.counts import counted
from semel.spark.dedup.judge import CLAIM_PREFIX, KEY_HIGH, Judge, Moment, State, check_pin, pin
from semel.spark.dedup.outcomes import EXPECTED, NAMES, OUTCOME
from semel.spark.dedup.pieces import BUCKET, NEWEST, PLACE, ROWS, Packer, Unpacker, joined, sliced, unpacked
from semel.spark.versions import arrow_schema
from semel.spark.worker import settle

if TYPE_CHECKING:
    # Its import takes half a second, and every worker that only reads or writes the log would have to wait for it.
    import pandas

BUCKETS_DEFAULT: Final = 16
"""Enough to keep eight cores busy, and so few that the cost of the calls, some milliseconds each, hardly matters."""

_STATE_SCHEMA: Final = "pinned string, kept binary, held binary"


@dataclass(frozen=True)
class EventTime:
    """The column that says when something happened, and for how long after the newest one a row is not late."""

    column: str
    within_ms: int


def judged(
    claims: DataFrame,
    judge: Judge,
    *,
    name: str,
    buckets: int,
    event_time: EventTime | None = None,
    wakes_all: bool = False,
    has_idle_batches: bool = False,
) -> DataFrame:
    """The rows of `claims` with an outcome each, and without the columns that begin with the claims' prefix.

    `name` is that of the metric in which a stream counts the outcomes. With `wakes_all`, every bucket is judged in
    every batch, even if no rows came for it; with `has_idle_batches`, also at the time for which its judge asked, in a
    batch that Spark makes only for that.
    """
    visible = [field for field in claims.schema.fields if not field.name.startswith(CLAIM_PREFIX)]
    schema = StructType([*visible, StructField(OUTCOME, StringType(), False), StructField(EXPECTED, LongType())])
    packer = Packer(
        KEY_HIGH, buckets, event_time.column if event_time else None, wakes_all=wakes_all and claims.isStreaming
    )
    columns = f"{BUCKET} int, {PLACE} long, {ROWS} binary" + (f", {NEWEST} timestamp" if event_time else "")
    pieces = map_in_arrow(claims, packer, columns)
    if claims.isStreaming:
        if event_time:
            pieces = pieces.withWatermark(NEWEST, f"{event_time.within_ms} milliseconds")
        output = pieces.groupBy(BUCKET).applyInPandasWithState(
            _Stateful(judge, pin(judge, buckets), event_time is not None, has_idle_batches),
            f"{ROWS} binary",
            _STATE_SCHEMA,
            "append",
            GroupStateTimeout.ProcessingTimeTimeout if has_idle_batches else GroupStateTimeout.NoTimeout,
        )
    else:
        output = pieces.groupBy(BUCKET).applyInArrow(_stateless(judge), f"{ROWS} binary")
    timezone = claims.sparkSession.conf.get("spark.sql.session.timeZone")
    rows = output.mapInArrow(Unpacker(arrow_schema(schema, timezone)), schema)
    return counted(rows, name, {one: f"{OUTCOME} = '{one}'" for one in NAMES}) if claims.isStreaming else rows


class _Stateful:
    """Judges one bucket in one micro-batch: for `applyInPandasWithState`."""

    def __init__(self, judge: Judge, pinned: str, is_watermarked: bool, has_idle_batches: bool) -> None:
        self._judge = judge
        self._pinned = pinned
        self._is_watermarked = is_watermarked
        self._has_idle_batches = has_idle_batches

    def __call__(
        self, key: tuple[int], chunks: "Iterable[pandas.DataFrame]", state: GroupState
    ) -> "Iterator[pandas.DataFrame]":
        import pandas

        settle()
        before, rows = self._state_before(state), _rows_of(chunks)
        if before is None and rows is None:
            return
        now_ms = state.getCurrentProcessingTimeMs()
        verdict = self._judge.judge(before, rows, Moment(now_ms, self._watermark_ms(state), False))
        if verdict.state != before:
            state.update((self._pinned, verdict.state.kept, verdict.state.held))
        if self._has_idle_batches and verdict.wake_at_ms is not None:
            state.setTimeoutDuration(max(1, verdict.wake_at_ms - now_ms))
        if verdict.rows is not None:
            for piece in sliced(verdict.rows):
                yield pandas.DataFrame({ROWS: [piece]})

    def _state_before(self, state: GroupState) -> State | None:
        if not state.exists:
            return None
        pinned, kept, held = state.get
        check_pin(pinned, self._pinned)
        return State(bytes(kept), None if held is None else bytes(held))

    def _watermark_ms(self, state: GroupState) -> int | None:
        """None before the first event, for which Spark returns 0."""
        watermark_ms = state.getCurrentWatermarkMs() if self._is_watermarked else 0
        return watermark_ms if watermark_ms > 0 else None


def _stateless(judge: Judge) -> Callable[[pa.Table], pa.Table]:
    """Judges one bucket of a batch DataFrame: for `applyInArrow`, which needs a function."""

    def judge_bucket(pieces: pa.Table) -> pa.Table:
        rows = joined([unpacked(piece.as_buffer()) for piece in pieces.sort_by(PLACE)[ROWS]])
        verdict = judge.judge(None, rows, Moment(0, None, True))
        return pa.table({ROWS: pa.array(list(sliced(verdict.rows)) if verdict.rows else [], pa.binary())})

    return judge_bucket


def _rows_of(chunks: "Iterable[pandas.DataFrame]") -> pa.Table | None:
    """The rows in the order of the input; None if the bucket is only woken."""
    pieces = sorted(
        (place, piece)
        for chunk in chunks
        for place, piece in zip(chunk[PLACE], chunk[ROWS], strict=True)
        if piece is not None
    )
    return joined([unpacked(piece) for _, piece in pieces]) if pieces else None
