"""Which records of transactions may go: aborted ones at once, a marker some time after the last record it speaks of.

A pass over a partition asks about every transactional batch, in the order of the log and from its beginning. All of
them lie below the last stable offset, so every transaction in question has been decided. What a marker is still there
for is only known to a pass that has seen all that came before it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

# From an offset to before another: producer id, first offset and marker's offset of the aborted transactions that reach
# into there, in the order of the markers.
AbortedSpans = Callable[[int, int], Iterable[tuple[int, int, int]]]

# The stretch in which a pass looks up aborted transactions at once: each takes an offset at least, so this bounds the
# memory.
_STRETCH_OFFSETS: Final = 50_000


class TransactionsPassed:
    """What a pass has to know about transactions, and has seen of them."""

    __slots__ = ("_aborted", "_begin", "_end", "_spans", "_with_records")

    def __init__(self, spans: AbortedSpans) -> None:
        self._spans = spans
        # The stretch of the log that is known just now. By producer id, the first offsets and the markers' offsets of
        # what was aborted and reaches into it. Transactions of one producer do not overlap.
        self._begin = self._end = 0
        self._aborted: dict[int, tuple[array[int], array[int]]] = {}
        # Producers of whose transaction, up to here, at least one record stays.
        self._with_records: set[int] = set()

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional batch at this offset belongs to a transaction that was aborted."""
        if not self._begin <= offset < self._end:
            self._look(offset)
        spans = self._aborted.get(producer_id)
        if spans is None:
            return False
        firsts, markers = spans
        slot = bisect_left(markers, offset)
        return slot < len(markers) and firsts[slot] <= offset

    def _look(self, offset: int) -> None:
        self._begin, self._end = offset, offset + _STRETCH_OFFSETS
        self._aborted = {}
        for producer_id, first_offset, marker_offset in self._spans(self._begin, self._end):
            firsts, markers = self._aborted.setdefault(producer_id, (array("q"), array("q")))
            firsts.append(first_offset)
            markers.append(marker_offset)

    def note_kept(self, producer_id: int) -> None:
        """A batch of the producer's transaction stays, or some of it."""
        self._with_records.add(producer_id)

    def end(self, producer_id: int) -> bool:
        """The pass has come to a marker: whether any record of the transaction that it ends stays."""
        if producer_id in self._with_records:
            self._with_records.remove(producer_id)
            return True
        return False
