"""Which records of transactions may go: aborted ones at once, a marker some time after the last record it speaks of.

A pass over a partition asks about every transactional batch, in the order of the log and from its beginning. All of
them lie below the last stable offset, so every transaction in question has been decided. What a marker is still there
for is only known to a pass that has seen all that came before it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable


class TransactionsPassed:
    """What a pass has to know about transactions, and has seen of them."""

    __slots__ = ("_aborted", "_with_records")

    def __init__(self, aborted: Iterable[tuple[int, int, int]]) -> None:
        """`aborted` has producer id, first offset and marker's offset of each, in the order of the markers."""
        # By producer id: first offsets and markers' offsets. Transactions of one producer do not overlap.
        self._aborted: dict[int, tuple[array[int], array[int]]] = {}
        for producer_id, first_offset, marker_offset in aborted:
            firsts, markers = self._aborted.setdefault(producer_id, (array("q"), array("q")))
            firsts.append(first_offset)
            markers.append(marker_offset)
        # Producers of whose transaction, up to here, at least one record stays.
        self._with_records: set[int] = set()

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional batch at this offset belongs to a transaction that was aborted."""
        found = self._aborted.get(producer_id)
        if found is None:
            return False
        firsts, markers = found
        slot = bisect_left(markers, offset)
        return slot < len(markers) and firsts[slot] <= offset

    def note_kept(self, producer_id: int) -> None:
        """A batch of the producer's transaction stays, or some of it."""
        self._with_records.add(producer_id)

    def end(self, producer_id: int) -> bool:
        """The pass has come to a marker: whether any record of the transaction that it ends stays."""
        if producer_id in self._with_records:
            self._with_records.remove(producer_id)
            return True
        return False
