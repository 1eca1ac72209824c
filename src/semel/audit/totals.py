"""An aggregate compared with the rows below it: for each key, or each key and window, how many rows, and their sum.

The rows are read once, and the totals once more if a column of them counts rows. All are added up in memory by key and
window, so memory grows with the number of totals, and not with the rows. A total that is stored twice counts twice.
Nothing here may guess: sums are of decimals, exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semel.audit.errors import AuditFailed
from semel.audit.places import Place
from semel.audit.rows import Rows, Selector, Wanted

# How many groups of single batches are held before they are added up.
_GROUPS_MAX: Final = 1_000_000
_SUM_TYPE: Final = pa.decimal256(76, 9)
_BY: Final = ("key", "window")


class Total(NamedTuple):
    """How many rows, and the sum of their amounts; None if it was not compared."""

    rows: int | None
    amount: Decimal | None


@dataclass(frozen=True)
class WrongTotal:
    """A total that is not that of its rows; None stands for one that is not there."""

    key: str
    begin_ms: int | None
    expected: Total | None
    stored: Total | None

    @property
    def window(self) -> str | None:
        """When the window begins."""
        return None if self.begin_ms is None else datetime.fromtimestamp(self.begin_ms / 1000, UTC).isoformat()


@dataclass
class TotalsVerdict:
    """What an audit of totals has found; `wrong` has the first of `wrong_count`."""

    source: str
    sink: str
    rows: int = 0
    totals: int = 0
    wrong: list[WrongTotal] = field(default_factory=list)
    wrong_count: int = 0
    skipped: int = 0
    """Rows of either side without a key or a time, or with an amount that cannot be read."""

    @property
    def is_clean(self) -> bool:
        return not self.wrong_count and not self.skipped

    def as_json(self) -> dict[str, Any]:
        """Amounts are text, because no number of JSON is exact everywhere."""

        def total(one: Total | None) -> object:
            return one and {"count": one.rows, "amount": None if one.amount is None else f"{one.amount.normalize():f}"}

        wrong = [
            {"key": one.key, "window": one.window, "expected": total(one.expected), "stored": total(one.stored)}
            for one in self.wrong
        ]
        return {**vars(self), "wrong": wrong, "is_clean": self.is_clean}


class _Sums:
    """The rows of one place, added up by key and window."""

    def __init__(self, place: Place, wanted: Wanted, window_ms: int | None) -> None:
        self.rows = self.skipped = 0
        self._window_ms = window_ms
        parts: list[Any] = []
        for piece in place.pieces():
            for rows in piece.read(wanted):
                parts.append(self._added(rows))
                if sum(part.num_rows for part in parts) > _GROUPS_MAX:
                    parts = [_together(parts)]
        self.groups = _together(parts) if parts else pa.table({})

    def _added(self, rows: Rows) -> Any:
        has_all = pc.is_valid(rows.ids)
        for values in (rows.times_ms, rows.amounts):
            if values is not None:
                has_all = pc.and_(has_all, pc.is_valid(values))
        self.rows += len(rows.ids)
        self.skipped += len(rows.ids) - (pc.sum(has_all).as_py() or 0)
        windows = np.zeros(len(rows.ids), np.int64)
        if self._window_ms is not None and rows.times_ms is not None:
            windows = rows.times_ms.fill_null(0).to_numpy(zero_copy_only=False) // self._window_ms * self._window_ms
        amounts = pa.nulls(len(rows.ids), _SUM_TYPE) if rows.amounts is None else rows.amounts.cast(_SUM_TYPE)
        ones = pa.array(np.ones(len(rows.ids), np.int64))
        table = pa.table({"key": rows.ids, "window": windows, "count": ones, "amount": amounts})
        return _together([table.filter(has_all)])


def _together(parts: list[Any]) -> Any:
    grouped = pa.concat_tables(parts).group_by(_BY).aggregate([("count", "sum"), ("amount", "sum")])
    return grouped.select([*_BY, "count_sum", "amount_sum"]).rename_columns([*_BY, "count", "amount"])


def compare_totals(
    source: Place, sink: Place, *, count: str | None, window_ms: int | None, limit: int
) -> TotalsVerdict:
    """Compare the totals in `sink` with the rows of `source`. `count` is the column of the sink that counts rows."""
    for place in (source, sink):
        if window_ms is not None and place.wanted.time is None:
            raise AuditFailed(f"{place.name}: a window needs to know where its time is: add time=COLUMN")
    if (source.wanted.amount is None) != (sink.wanted.amount is None):
        raise AuditFailed(f"amounts are compared on both sides or on none: {source.name} and {sink.name} differ")
    if count is None and sink.wanted.amount is None:
        raise AuditFailed("nothing to compare: name the column that counts (--count), or the sums (amount=COLUMN)")
    rows = _Sums(source, _timed(source.wanted, window_ms), window_ms)
    sums = _Sums(sink, _timed(sink.wanted, window_ms), window_ms)
    verdict = TotalsVerdict(source.name, sink.name, rows.rows, sums.rows, skipped=rows.skipped + sums.skipped)
    counts = None
    if count is not None:
        counts = _Sums(sink, _timed(replace(sink.wanted, amount=Selector.parse(count)), window_ms), window_ms)
        verdict.skipped += max(counts.skipped - sums.skipped, 0)
    has_amount = sink.wanted.amount is not None
    expected = {where: Total(number, amount) for where, number, amount in _each(rows.groups)}
    stored = {where: Total(None, amount) for where, _, amount in _each(sums.groups)}
    if counts is None:
        expected = {where: total._replace(rows=None) for where, total in expected.items()}
    else:
        for where, _, number in _each(counts.groups):
            held = stored.get(where)
            stored[where] = Total(int(number or 0), held.amount if held is not None and has_amount else None)
    for where in sorted(expected.keys() | stored.keys()):
        if expected.get(where) == stored.get(where):
            continue
        verdict.wrong_count += 1
        if len(verdict.wrong) < limit:
            key, window = where
            begin_ms = None if window_ms is None else window
            wrong = WrongTotal(key.decode(errors="replace"), begin_ms, expected.get(where), stored.get(where))
            verdict.wrong.append(wrong)
    return verdict


def _timed(wanted: Wanted, window_ms: int | None) -> Wanted:
    return wanted if window_ms is not None else replace(wanted, time=None)


def _each(groups: Any) -> Iterator[tuple[tuple[bytes, int], int, Decimal | None]]:
    for batch in groups.to_batches():
        keys, windows, counts, amounts = (column.to_pylist() for column in batch.columns)
        for key, window, number, amount in zip(keys, windows, counts, amounts, strict=True):
            yield (key, window), number, amount
