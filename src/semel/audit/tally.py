"""The sums of an audit: for each window and bucket how many rows there are, and the sum of their hashes.

The sum is taken modulo 2**128. It does not depend on the order of the rows, nor on how they were divided among the
workers. A row that a place has twice counts twice; with an exclusive or, the two would cancel each other. A bucket is a
function of the id, a window a function of the event's own time: nothing here may ever depend on when or where a row was
found.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semel.audit.errors import AuditFailed
from semel.audit.hashes import Digests, buckets_of, hash_words, siphash_words
from semel.audit.long_ids import shortened
from semel.audit.rows import Rows, filtered
from semel.audit.verdict import EXACT, LISTED_DEFAULT, Finding, Unreadable
from semel.audit.words import Words, in_words

# At most this many buckets, of all windows together: 128 MiB of sums in each process that counts.
CELLS_MAX: Final = 4_194_304
# The window of all rows if there are no windows.
ALL_TIME: Final = 0
# The window of the rows without a time: before every other one.
NO_TIME: Final = -(2**63)

_HALF_MASK: Final = np.uint64(0xFFFF_FFFF)
_HALF_BITS: Final = np.uint64(32)

# A set of buckets: true where a bucket is in it.
Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Grid:
    """How rows are divided: by time into windows, and by hash into buckets, under one key."""

    key: bytes
    buckets: int
    window_ms: int | None = None

    def windows_of(self, rows: Rows) -> npt.NDArray[np.int64]:
        """The window of each row, by the time at which it begins."""
        if self.window_ms is None or rows.times_ms is None:
            return np.full(len(rows.ids), ALL_TIME, np.int64)
        times = rows.times_ms.fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        return np.where(times == NO_TIME, NO_TIME, times // self.window_ms * self.window_ms)

    def digests_of(self, rows: Rows) -> tuple[npt.NDArray[np.int64], Digests]:
        """The bucket of each row, by its id alone, and the hash that is summed, which is of its id and amount."""
        count = len(rows.ids)
        buckets = np.empty(count, np.int64)
        digests = Digests(np.empty(count, np.uint64), np.empty(count, np.uint64))
        for places, words in in_words(shortened(rows.ids, self.key)):
            buckets[places] = buckets_of(words, self.key, self.buckets)
            digests.low[places], digests.high[places] = hash_words(words, self.key)
        if rows.amounts is not None:
            digests = siphash_words([*digests, *_amount_words(rows.amounts)], self.key)
        return buckets, digests

    def buckets_of(self, rows: Rows) -> npt.NDArray[np.int64]:
        """The bucket of each row, without the hash that is summed."""
        buckets = np.empty(len(rows.ids), np.int64)
        for places, words in in_words(shortened(rows.ids, self.key)):
            buckets[places] = buckets_of(words, self.key, self.buckets)
        return buckets


class Cells:
    """The buckets of one window: how many rows each has, and the two halves of the sum of their hashes."""

    __slots__ = ("counts", "high", "low")

    def __init__(self, buckets: int) -> None:
        self.counts: Words = np.zeros(buckets, np.uint64)
        self.low: Words = np.zeros(buckets, np.uint64)
        self.high: Words = np.zeros(buckets, np.uint64)

    def add(self, counts: Words, low: Words, high: Words) -> None:
        self.counts += counts
        self.low += low
        # A sum that is less than the number that was added has overflowed.
        self.high += high + (self.low < low)

    def differ(self, other: "Cells") -> Chosen:
        differing: Chosen = (self.counts != other.counts) | (self.low != other.low) | (self.high != other.high)
        return differing


@dataclass(slots=True)
class Tally:
    """The counts and sums of one place, or of a piece of it."""

    grid: Grid
    listed_max: int = LISTED_DEFAULT
    rows: int = 0
    without_id: int = 0
    unreadable: Unreadable = field(default_factory=Unreadable)
    id_bytes: int = 0
    amount: Decimal = Decimal(0)
    windows: dict[int, Cells] = field(default_factory=dict)

    def add(self, rows: Rows) -> None:
        """Count rows."""
        self.rows += len(rows.ids)
        if rows.unreadable is not None:
            ids = Counter(rows.ids.filter(rows.unreadable).to_pylist())
            listed = tuple(Finding(id, count) for id, count in ids.items())
            self.unreadable = self.unreadable.plus(Unreadable(ids.total(), listed), self.listed_max)
        self.id_bytes += rows.id_bytes
        self.amount = EXACT.add(self.amount, rows.amount)
        if len(rows.ids):
            self._add_digests(self.grid.windows_of(rows), *self.grid.digests_of(rows))

    def add_chosen(self, rows: Rows, chosen: dict[int, Chosen]) -> Rows:
        """Add only the rows that lie in these buckets, and return them."""
        if not len(rows.ids):
            return rows
        mask = _are_in(chosen, self.grid.windows_of(rows), self.grid.buckets_of(rows))
        kept = filtered(rows, pa.array(mask))
        self.add(kept)
        return kept

    def _add_digests(self, windows: npt.NDArray[np.int64], buckets: npt.NDArray[np.int64], digests: Digests) -> None:
        if windows.min() == windows.max():
            present, slots = windows[:1], buckets
        else:
            present, positions = np.unique(windows, return_inverse=True)
            slots = positions * self.grid.buckets + buckets
        cells = len(present) * self.grid.buckets
        self._refuse_too_many(len(present))
        counts = np.bincount(slots, minlength=cells).astype(np.uint64)
        # The low half is summed in two quarters, so that nothing above 64 bits is lost.
        first = _sums(cells, slots, digests.low & _HALF_MASK)
        second = _sums(cells, slots, digests.low >> _HALF_BITS)
        low = first + (second << _HALF_BITS)
        high = _sums(cells, slots, digests.high) + (second >> _HALF_BITS) + (low < first)
        for number, window in enumerate(present.tolist()):
            part = slice(number * self.grid.buckets, (number + 1) * self.grid.buckets)
            self._cells(window).add(counts[part], low[part], high[part])

    def merge(self, other: "Tally") -> None:
        self.rows += other.rows
        self.without_id += other.without_id
        self.unreadable = self.unreadable.plus(other.unreadable, self.listed_max)
        self.id_bytes += other.id_bytes
        self.amount = EXACT.add(self.amount, other.amount)
        for window, cells in other.windows.items():
            self._cells(window).add(cells.counts, cells.low, cells.high)

    def _cells(self, window: int) -> Cells:
        cells = self.windows.get(window)
        if cells is None:
            self._refuse_too_many(len(self.windows) + 1)
            cells = self.windows[window] = Cells(self.grid.buckets)
        return cells

    def _refuse_too_many(self, windows: int) -> None:
        if windows * self.grid.buckets > CELLS_MAX:
            raise AuditFailed(
                f"more than {CELLS_MAX // self.grid.buckets} windows of {self.grid.buckets} buckets: "
                "take longer windows or fewer buckets"
            )


def differing(source: Tally, sink: Tally) -> dict[int, Chosen]:
    """The buckets in which two tallies differ, by window; empty if there are none."""
    nothing = Cells(source.grid.buckets)
    chosen = {}
    for window in sorted({*source.windows, *sink.windows}):
        buckets = source.windows.get(window, nothing).differ(sink.windows.get(window, nothing))
        if buckets.any():
            chosen[window] = buckets
    return chosen


def everything(*tallies: Tally) -> dict[int, Chosen]:
    """All buckets in which any tally has rows, as if none of them agreed."""
    chosen: dict[int, Chosen] = {}
    for window, cells in _windows(tallies):
        there = cells.counts > 0
        chosen[window] = chosen[window] | there if window in chosen else there
    return chosen


def rows_in(tally: Tally, chosen: dict[int, Chosen]) -> int:
    """How many of the rows lie in these buckets."""
    return sum(int(tally.windows[window].counts[of].sum()) for window, of in chosen.items() if window in tally.windows)


def agree_in(first: Tally, second: Tally, chosen: dict[int, Chosen]) -> bool:
    """Whether these buckets hold the same rows in both."""
    apart = differing(first, second)
    return not any((apart[window] & chosen[window]).any() for window in apart.keys() & chosen.keys())


def _sums(cells: int, slots: npt.NDArray[np.int64], values: Words) -> Words:
    sums = np.zeros(cells, np.uint64)
    np.add.at(sums, slots, values)
    return sums


def _windows(tallies: tuple[Tally, ...]) -> Iterator[tuple[int, Cells]]:
    for tally in tallies:
        yield from tally.windows.items()


def _are_in(
    chosen: dict[int, Chosen], windows: npt.NDArray[np.int64], buckets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    if windows.min() == windows.max():
        of_window = chosen.get(int(windows[0]))
        return np.zeros(len(windows), np.bool_) if of_window is None else of_window[buckets]
    mask = np.zeros(len(windows), np.bool_)
    for window in np.unique(windows).tolist():
        if window in chosen:
            mask |= (windows == window) & chosen[window][buckets]
    return mask


def _amount_words(amounts: Any) -> list[Words]:
    """The two halves of each amount, a decimal of 128 bits; for a row without an amount they are the lowest number, not
    0.
    """
    halves = np.frombuffer(amounts.buffers()[1], np.uint64)[2 * amounts.offset : 2 * (amounts.offset + len(amounts))]
    low, high = halves[0::2].copy(), halves[1::2].copy()
    if amounts.null_count:
        missing = amounts.is_null().to_numpy(zero_copy_only=False)
        low[missing], high[missing] = np.uint64(0), np.uint64(1 << 63)
    return [low, high]
