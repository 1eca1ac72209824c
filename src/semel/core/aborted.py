"""Which transactions of a partition were aborted, and where their records lie.

A consumer that wants committed records only gets all of them, and beside them this list for the stretch it was given:
it leaves out what an aborted producer wrote from the first offset on until it meets that producer's marker. So the list
for a stretch has every transaction that reaches into it, those that began before it included, in the order of their
markers, which is the order in which they were aborted.

Markers only ever come behind those that are there, so a search begins at the right one by bisection. It need not go to
the end: each abort bears the stable offset as it was just afterwards, and no transaction that ended later begins below
that. Four numbers for each abort, packed: there may be as many as a partition has batches.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

_COLUMNS: Final = 4
# A search looks at so many at once. Behind a transaction that was open for long there may be a hundred thousand.
_STRIDE: Final = 256


class AbortedTransactions:
    """The aborted transactions of one partition that still reach into its log."""

    __slots__ = ("_first_offsets", "_marker_offsets", "_producer_ids", "_stable_offsets")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._marker_offsets = array("q")
        # The stable offset right after each abort.
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._marker_offsets)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Producer id, first offset and marker's offset of each, in the order of the markers."""
        return zip(self._producer_ids, self._first_offsets, self._marker_offsets, strict=True)

    def note(self, producer_id: int, first_offset: int, marker_offset: int, stable_offset: int) -> None:
        """A transaction was aborted, by a marker behind all those before."""
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first_offset)
        self._marker_offsets.append(marker_offset)
        self._stable_offsets.append(stable_offset)

    def between(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of those that have a record or their marker from `begin` to before `end`."""
        found: list[tuple[int, int]] = []
        for slot in range(bisect_left(self._marker_offsets, begin), len(self), _STRIDE):
            first_offsets = self._first_offsets[slot : slot + _STRIDE]
            if min(first_offsets) < end:
                producer_ids = self._producer_ids[slot : slot + _STRIDE]
                found += [pair for pair in zip(producer_ids, first_offsets, strict=True) if pair[1] < end]
            if self._stable_offsets[slot + len(first_offsets) - 1] >= end:
                break
        return found

    def forget_below(self, offset: int) -> None:
        """The log begins at `offset` now: what ended before it concerns nobody."""
        gone = bisect_left(self._marker_offsets, offset)
        if gone:
            for column in self._columns():
                del column[:gone]

    def to_bytes(self) -> bytes:
        """All of them, packed. There are many partitions, and few of them have any: that costs nothing."""
        return b"".join([column.tobytes() for column in self._columns()]) if self._marker_offsets else b""

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "AbortedTransactions":
        aborted = cls()
        column_bytes = len(data) // _COLUMNS
        for number, column in enumerate(aborted._columns()):
            column.frombytes(data[number * column_bytes : (number + 1) * column_bytes])
        return aborted

    def _columns(self) -> tuple["array[int]", ...]:
        return self._producer_ids, self._first_offsets, self._marker_offsets, self._stable_offsets
