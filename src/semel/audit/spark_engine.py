"""The same audit on Spark, for data that is too big for one machine or is in Spark already: it compares two data
frames.

Each side is summed by window and bucket: the number of rows, and two sums of keyed 64-bit hashes, as decimals of 38
digits, which cannot overflow. Only rows of buckets that differ are then counted by id. The driver gets only sums and
findings, never the data, and only DataFrames are used, so that it works with Spark Connect as well.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from semel.audit.errors import AuditFailed
from semel.audit.run import Plan
from semel.audit.verdict import (
    ALTERED,
    DOUBLED,
    FOREIGN,
    KINDS,
    LISTED_DEFAULT,
    LOST,
    REPEATS,
    Counted,
    Finding,
    Findings,
    SinkVerdict,
    Unreadable,
    Verdict,
    WindowCount,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# An expression of Spark SQL for both sides, or one for the source and one for the sink.
Expression = str | tuple[str, str]

_ID_TYPES: Final = ("string", "binary", "tinyint", "smallint", "int", "bigint")
_TIME_TYPES: Final = ("timestamp", "timestamp_ntz", "date")
_AMOUNT_TYPE: Final = "decimal(38,9)"
# Twice the digits after the point, to notice an amount with more digits than are compared.
_FINER_TYPE: Final = "decimal(38,18)"
_SUMMED_TYPE: Final = "decimal(38,0)"
# The bucket of rows without an id.
_NO_BUCKET: Final = -1
# The column that says whether a row has something that is no amount.
_BAD: Final = "unreadable"
_CELL: Final = ["window", "bucket"]
_ROW: Final = ["id", "window", "amount"]
_SIDES: Final = ("source", "sink")
# The sums that have to be the same when the differing buckets are read again.
_CHECKED: Final = ("source_count", "source_hash1", "sink_count", "sink_hash1")


def on_spark(
    source: "DataFrame",
    sink: "DataFrame",
    *,
    id: Expression,
    time: Expression | None = None,
    amount: Expression | None = None,
    window_ms: int | None = None,
    once: bool = False,
    limit: int = LISTED_DEFAULT,
    buckets: int | None = None,
    key: str | None = None,
    count_without_id: bool = False,
) -> Verdict:
    """Compare one batch DataFrame with another. Amounts are compared with nine digits after the point."""
    if window_ms is not None and time is None:
        raise AuditFailed("windows need to know where the time of an event stands: time=...")
    # The plan checks its values.
    grid = Plan(window_ms=window_ms, buckets=buckets, key=key).grid()
    hashing = _Hashing(grid.key, grid.buckets)
    wanted = _Expressions(id, time if window_ms is not None else None, amount)
    rows = [_rows(frame, wanted, window_ms, number, hashing) for number, frame in enumerate((source, sink))]
    with _kept(_cells(*rows)) as cells:
        totals = _totals(cells)
        chosen = cells.where(_bucket_differs(once))
        compared = _only(chosen.agg(_count_of_rows(), *_sums_of(_CHECKED)))
        findings = (
            _compare(rows, chosen, compared, once, limit) if compared["rows"] else dict.fromkeys(KINDS, Findings())
        )
        windows = _windows(cells, limit) if window_ms is not None else ()
    amounts = [totals[f"{side}_amount"] if amount is not None else None for side in _SIDES]
    counted = [
        _counted(side, totals, one, _unreadable(frame, totals[f"{side}_unreadable"] or 0, limit))
        for side, one, frame in zip(_SIDES, amounts, rows, strict=True)
    ]
    verdict = SinkVerdict(
        counted[1],
        **findings,
        buckets_compared=compared["rows"],
        rows_compared=(compared["source_count"] or 0) + (compared["sink_count"] or 0),
        windows=windows,
        without_id_expected=counted[0].without_id if count_without_id else 0,
    )
    return Verdict(counted[0], (verdict,), grid.key.hex(), count_without_id)


@dataclass(frozen=True, slots=True)
class _Hashing:
    """Keyed hashes."""

    key: bytes
    buckets: int

    def row(self, half: int) -> "Column":
        """A half of the hash of an id and its amount. Anybody can make two ids of 16 bytes that have the same xxhash64
        whatever is hashed before them, so it gets a keyed digest, which nobody can foresee.
        """
        from pyspark.sql import functions as f

        amount = f.coalesce(f.col("amount").cast("string"), f.lit("")).cast("binary")
        id_bytes = f.coalesce(f.col("id"), f.lit(bytearray()))
        # The text of an amount has no colon, so no other row has the same bytes.
        digest = f.sha2(f.concat(f.lit(bytearray(self.key)), amount, f.lit(bytearray(b":")), id_bytes), 256)
        return f.xxhash64(f.lit(half), digest)

    def bucket(self) -> "Column":
        from pyspark.sql import functions as f

        salts = [f.lit(int.from_bytes(self.key[at : at + 8], "little", signed=True)) for at in (0, 8)]
        of_id = f.pmod(f.xxhash64(*salts, "id"), f.lit(self.buckets)).cast("int")
        return f.when(f.col("id").isNull(), _NO_BUCKET).otherwise(of_id)


@dataclass(frozen=True, slots=True)
class _Expressions:
    id: Expression
    time: Expression | None
    amount: Expression | None


def _of_side(expression: Expression, number: int) -> str:
    return expression if isinstance(expression, str) else expression[number]


def _rows(
    frame: "DataFrame", wanted: _Expressions, window_ms: int | None, number: int, hashing: _Hashing
) -> "DataFrame":
    """The id as bytes, the window, the amount and the bucket of each row."""
    from pyspark.sql import functions as f

    shown = [
        f.expr(text).alias(name) if text is not None else f.lit(None).alias(name)
        for name, text in (
            ("id", _of_side(wanted.id, number)),
            ("time", None if wanted.time is None else _of_side(wanted.time, number)),
            ("amount", None if wanted.amount is None else _of_side(wanted.amount, number)),
        )
    ]
    picked = frame.select(shown)
    types = dict(picked.dtypes)
    window = f.lit(0).cast("bigint") if window_ms is None else _window(types["time"], window_ms)
    ids = f.col("id").cast("string").cast("binary") if types["id"] != "binary" else f.col("id")
    _refuse_types(types, window_ms is not None)
    amount = _amount(types["amount"])
    unreadable = f.col("amount").isNotNull() & amount.isNull()
    columns = [ids.alias("id"), window.alias("window"), amount.alias("amount"), unreadable.cast("int").alias(_BAD)]
    return (
        picked.select(columns)
        .withColumn("bucket", hashing.bucket())
        .withColumns({f"hash{half}": hashing.row(half).cast(_SUMMED_TYPE) for half in (1, 2)})
    )


def _amount(kind: str) -> "Column":
    """The amount; null, whatever the session's settings, if it is none or has more digits than are compared."""
    from pyspark.sql import functions as f

    amount = f.col("amount").try_cast(_AMOUNT_TYPE)
    if kind == "string" or kind.startswith("decimal"):
        finer = f.col("amount").try_cast(_FINER_TYPE)
        return f.when(finer.isNull() | (finer == amount.try_cast(_FINER_TYPE)), amount)
    return amount


def _refuse_types(types: dict[str, str], has_windows: bool) -> None:
    whole_decimal = types["id"].startswith("decimal(") and types["id"].endswith(",0)")
    if types["id"] not in _ID_TYPES and not whole_decimal:
        raise AuditFailed(f"the id is of type {types['id']}: an id is text, bytes or a whole number")
    if has_windows and types["time"] not in (*_TIME_TYPES, "bigint", "int"):
        raise AuditFailed(f"the time is of type {types['time']}: it is a timestamp, or milliseconds since 1970")


def _window(kind: str, window_ms: int) -> "Column":
    """The beginning of the window in milliseconds; null for a row without a time."""
    from pyspark.sql import functions as f

    ms = f.unix_millis(f.col("time").cast("timestamp")) if kind in _TIME_TYPES else f.col("time").cast("bigint")
    return ms - f.pmod(ms, f.lit(window_ms))


# -- sums -------------------------------------------------------------------------------------------------------------


def _cells(source: "DataFrame", sink: "DataFrame") -> "DataFrame":
    """A row for each window and bucket, with the count and sums of both sides; zeros for a side without rows."""
    from pyspark.sql import functions as f

    measures = ("count", "hash1", "hash2", "amount", _BAD)
    summed = []
    for side, rows in zip(_SIDES, (source, sink), strict=True):
        sums = {"count": f.count("*"), **{name: f.sum(name) for name in measures[1:]}}
        own = rows.groupBy(*_CELL).agg(*(column.alias(f"{side}_{name}") for name, column in sums.items()))
        summed.append(
            own.withColumns({f"{other}_{name}": f.lit(None) for other in _SIDES if other != side for name in measures})
        )
    both = summed[0].unionByName(summed[1]).groupBy(*_CELL)
    return both.agg(
        *(f.coalesce(f.sum(f"{side}_{name}"), f.lit(0)).alias(f"{side}_{name}") for side in _SIDES for name in measures)
    )


def _bucket_differs(once: bool) -> "Column":
    from pyspark.sql import functions as f

    has_id = f.col("bucket") != _NO_BUCKET
    return has_id if once else has_id & _differs()


def _differs() -> "Column":
    from pyspark.sql import functions as f

    return reduce(
        lambda one, other: one | other,
        (f.col(f"source_{name}") != f.col(f"sink_{name}") for name in ("count", "hash1", "hash2")),
    )


def _totals(cells: "DataFrame") -> Any:
    from pyspark.sql import functions as f

    has_id = f.col("bucket") != _NO_BUCKET
    sums = []
    for side in _SIDES:
        sums += [
            f.sum(f.when(has_id, f.col(f"{side}_count"))).alias(f"{side}_rows"),
            f.sum(f.when(~has_id, f.col(f"{side}_count"))).alias(f"{side}_without_id"),
            f.sum(f.when(has_id, f.col(f"{side}_amount"))).alias(f"{side}_amount"),
            f.sum(f.when(has_id, f.col(f"{side}_{_BAD}"))).alias(f"{side}_{_BAD}"),
        ]
    return _only(cells.agg(*sums))


def _counted(side: str, totals: Any, amount: Decimal | None, unreadable: Unreadable) -> Counted:
    return Counted(side, totals[f"{side}_rows"] or 0, totals[f"{side}_without_id"] or 0, amount, unreadable)


def _unreadable(rows: "DataFrame", count: int, limit: int) -> Unreadable:
    from pyspark.sql import functions as f

    if not count or not limit:
        return Unreadable(count)
    of_ids = rows.where((f.col(_BAD) == 1) & f.col("id").isNotNull()).groupBy("id").count()
    listed = of_ids.orderBy("id").limit(limit).collect()
    return Unreadable(count, tuple(Finding(bytes(row["id"]), row["count"]) for row in listed))


def _windows(cells: "DataFrame", limit: int) -> tuple[WindowCount, ...]:
    from pyspark.sql import functions as f

    with_ids = cells.where(f.col("bucket") != _NO_BUCKET)
    windows = with_ids.groupBy("window").agg(
        f.max(_differs()).alias("differs"), *(f.sum(f"{side}_count").alias(side) for side in _SIDES)
    )
    first = windows.where("differs").orderBy("window").limit(limit).collect()
    return tuple(WindowCount(row["window"], row["source"], row["sink"]) for row in first)


# -- ids --------------------------------------------------------------------------------------------------------------


def _compare(
    rows: "list[DataFrame]", chosen: "DataFrame", expected: Any, once: bool, limit: int
) -> dict[str, Findings]:
    """Count the rows of the chosen buckets by id, on both sides."""
    from pyspark.sql import functions as f

    cells = f.broadcast(chosen.select(*_CELL))
    counted = []
    for side, frame in zip(_SIDES, rows, strict=True):
        on = [frame["bucket"] == cells["bucket"], frame["window"].eqNullSafe(cells["window"])]
        again = frame.join(cells, on, "left_semi").groupBy(*_ROW)
        own = again.agg(f.count("*").alias(f"{side}_count"), f.sum("hash1").alias(f"{side}_hash1"))
        counted.append(own.withColumns({name: f.lit(0) for name in _CHECKED if not name.startswith(side)}))
    both = counted[0].unionByName(counted[1]).groupBy(*_ROW).agg(*_sums_of(_CHECKED))
    with _kept(both) as kept:
        sums = _only(kept.agg(*_sums_of(_CHECKED)))
        if any(sums[name] != expected[name] for name in _CHECKED):
            raise AuditFailed("a data frame gave other rows when it was read again: write it down, and audit that")
        with _kept(_by_id(_by_window(kept, once))) as by_id:
            return _findings(by_id, limit)


def _by_window(rows: "DataFrame", once: bool) -> "DataFrame":
    """For each id in each window: a missing row and an extra row together are one row with another amount."""
    from pyspark.sql import functions as f

    sent, arrived = f.col("source_count"), f.col("sink_count")
    if once:
        sent = f.least(sent, f.lit(1))
    zero = f.lit(0)
    summed = rows.groupBy("id", "window").agg(
        f.sum(sent).alias("sent"),
        f.sum(arrived).alias("found"),
        f.sum(f.greatest(sent - arrived, zero)).alias("missing"),
        f.sum(f.greatest(arrived - sent, zero)).alias("extra"),
    )
    altered = f.least("missing", "extra")
    was_sent = f.col("sent") > 0
    lost = f.col("missing") - altered
    return summed.select(
        "id",
        lost.alias(LOST),
        f.when(f.col("found") > 0, lost).otherwise(0).alias(REPEATS),
        f.when(was_sent, f.col("extra") - altered).otherwise(0).alias(DOUBLED),
        f.when(was_sent, 0).otherwise(f.col("extra") - altered).alias(FOREIGN),
        altered.alias(ALTERED),
    )


def _by_id(windows: "DataFrame") -> "DataFrame":
    """For each id with a finding: a row lost in one window and a foreign one in another are one row with another
    time.
    """
    from pyspark.sql import functions as f

    wrong = reduce(lambda one, other: one | other, (f.col(kind) > 0 for kind in KINDS))
    summed = windows.where(wrong).groupBy("id").agg(*_sums_of((*KINDS, REPEATS)))
    moved = f.least(LOST, FOREIGN)
    still_lost = f.col(LOST) - moved
    return summed.select(
        "id",
        still_lost.alias(LOST),
        f.least(still_lost, f.col(REPEATS)).alias(REPEATS),
        f.col(DOUBLED),
        (f.col(FOREIGN) - moved).alias(FOREIGN),
        (f.col(ALTERED) + moved).alias(ALTERED),
    )


def _findings(by_id: "DataFrame", limit: int) -> dict[str, Findings]:
    from pyspark.sql import functions as f

    ids_of = (f.count_if(f.col(kind) > 0).alias(f"{kind}_ids") for kind in KINDS)
    counts = _only(by_id.agg(*_sums_of((*KINDS, REPEATS)), *ids_of))
    findings = {}
    for kind in KINDS:
        ids = counts[f"{kind}_ids"]
        first = by_id.where(f.col(kind) > 0).orderBy("id").limit(limit).select("id", kind) if ids and limit else None
        listed = [] if first is None else [Finding(bytes(row["id"]), row[kind]) for row in first.collect()]
        repeats = counts[REPEATS] or 0 if kind == LOST else 0
        findings[kind] = Findings(counts[kind] or 0, ids, tuple(listed), repeats)
    return findings


def _only(frame: "DataFrame") -> Any:
    """The one row of an aggregate."""
    return frame.first()


def _sums_of(names: Iterable[str]) -> "list[Column]":
    from pyspark.sql import functions as f

    return [f.sum(name).alias(name) for name in names]


def _count_of_rows() -> "Column":
    from pyspark.sql import functions as f

    return f.count("*").alias("rows")


@contextmanager
def _kept(frame: "DataFrame") -> "Iterator[DataFrame]":
    """The frame, cached while it is used, so that it is computed once."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
