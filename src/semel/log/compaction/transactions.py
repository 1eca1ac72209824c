"""Which records of transactions may be removed: aborted records at once, a marker some time after the last record of
its transaction.

A pass asks about every transactional batch of a partition, in the order of the log and from its beginning. All of them
are below the last stable offset, so all their transactions have ended. Only a pass that has seen all batches before a
marker knows whether its transaction still has records.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

# Gets a begin and an end offset; returns producer id, first offset and marker's offset of each aborted transaction
# between them, in the order of the markers.
AbortedSpans = Callable[[int, int], Iterable[tuple[int, int, int]]]

# How many offsets a pass looks up aborted transactions for at once: each has at least one offset, so this limits the
# memory.
_STRETCH_OFFSETS: Final = 50_000


class TransactionsPassed:
    """The aborted transactions of the log, and those with remaining records that a pass has seen."""

    __slots__ = ("_aborted", "_begin", "_end", "_spans", "_with_records")

    def __init__(self, spans: AbortedSpans) -> None:
        self._spans = spans
        # The stretch of the log that was looked up last. By producer id, the first offsets and the markers' offsets of
        # the aborted transactions in it. Transactions of one producer do not overlap.
        self._begin = self._end = 0
        self._aborted: dict[int, tuple[array[int], array[int]]] = {}
        # The producers whose present transaction has at least one remaining record so far.
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
        """Note that records of the producer's transaction remain."""
        self._with_records.add(producer_id)

    def end(self, producer_id: int) -> bool:
        """Handle the marker of a producer's transaction; returns whether any record of the transaction remains."""
        if producer_id in self._with_records:
            self._with_records.remove(producer_id)
            return True
        return False
