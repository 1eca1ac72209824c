"""Which transactions of a partition were aborted, and where their records lie.

A consumer that wants committed records only gets all of them, and beside them this list for the stretch it was given:
it leaves out what an aborted producer wrote from the first offset on until it meets that producer's marker. So the list
for a stretch has every transaction that reaches into it, those that began before it included, in the order of their
markers, which is the order in which they were aborted.

Markers only ever come behind those that are there, so a search begins at the right one by bisection. It need not go to
the end: each abort bears the stable offset as it was just afterwards, and no transaction that ended later begins below
that. Four numbers for each abort, packed.

A partition may have as many as it has batches, so only the youngest are here. The others were put away in blocks. This
file keeps three numbers of each block, which say whether a search has to look into it; the caller of a search says how
to read the blocks. A search must never name a transaction whose marker compaction has removed: a consumer would leave
out everything that the producer wrote later.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

# Gives the blocks of these numbers, each as `oldest` packed it.
ReadBlocks = Callable[[Sequence[int]], Iterable[bytes]]
_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]

ABORTED_BYTES: Final = 32
_COLUMNS: Final = 4
_BLOCK_COLUMNS: Final = 3
_BLOCKS_HEAD: Final = Struct("<qq")


class AbortedTransactions:
    """The aborted transactions of one partition that still reach into its log."""

    __slots__ = ("_blocks", "_floor", "_youngest", "first_block", "next_block")

    def __init__(self) -> None:
        # Producer id, first offset, marker's offset, and the stable offset right after the abort.
        self._youngest = _NONE_YET
        # One behind the other for each block that was put away: the last marker's offset, the lowest first offset, and
        # the stable offset after the last abort.
        self._blocks = _NO_BLOCKS
        # The number of the first of them. Numbers rise, and none comes a second time.
        self.first_block = 0
        # The number of the next block to be put away.
        self.next_block = 0
        # No reader needs a transaction that ended below this, though it may stand in a block beside others.
        self._floor = 0

    @property
    def young_count(self) -> int:
        """How many have not been put away."""
        return len(self._youngest[0])

    @property
    def block_count(self) -> int:
        return self.next_block - self.first_block

    def note(self, producer_id: int, first_offset: int, marker_offset: int, stable_offset: int) -> None:
        """A transaction was aborted, by a marker behind all those before."""
        if self._youngest is _NONE_YET:
            self._youngest = _columns(b"")
        values = producer_id, first_offset, marker_offset, stable_offset
        for column, value in zip(self._youngest, values, strict=True):
            column.append(value)

    # -- searching ----------------------------------------------------------------------------------------------

    def between(self, begin: int, end: int, read: ReadBlocks) -> list[tuple[int, int]]:
        """Producer id and first offset of those that have a record or their marker from `begin` to before `end`."""
        transactions: list[tuple[int, int]] = []
        for producer_ids, first_offsets, _ in self._reaching(begin, end, read):
            pairs = zip(producer_ids, first_offsets, strict=True)
            # There may be tens of thousands, and most often all of them begin in the stretch or before it.
            transactions += pairs if max(first_offsets) < end else [pair for pair in pairs if pair[1] < end]
        return transactions

    def spans(self, begin: int, end: int, read: ReadBlocks) -> list[tuple[int, int, int]]:
        """The same with the marker's offset of each."""
        return [
            span for columns in self._reaching(begin, end, read) for span in zip(*columns, strict=True) if span[1] < end
        ]

    def _reaching(self, begin: int, end: int, read: ReadBlocks) -> Iterator[list["array[int]"]]:
        """Producer ids, first offsets and markers' offsets of all that reach into a stretch, and of some that begin
        behind it.
        """
        begin = max(begin, self._floor)
        numbers = self.blocks_between(begin, end)
        for columns in (*map(_columns, read(numbers) if numbers else ()), self._youngest):
            # The first abort whose stable offset is `end` or more: no transaction that ended later begins below `end`.
            near = slice(bisect_left(columns[2], begin), bisect_left(columns[3], end) + 1)
            if columns[2][near]:
                yield [column[near] for column in columns[:3]]

    def blocks_between(self, begin: int, end: int) -> list[int]:
        """The numbers of the blocks that a search from `begin` to before `end` has to look into."""
        blocks, first = self._blocks, self.first_block
        begin = max(begin, self._floor)
        numbers: list[int] = []
        slot = bisect_left(range(self.block_count), begin, key=lambda number: blocks[number * _BLOCK_COLUMNS])
        for at in range(slot * _BLOCK_COLUMNS, len(blocks), _BLOCK_COLUMNS):
            if blocks[at + 1] < end:
                numbers.append(first + at // _BLOCK_COLUMNS)
            if blocks[at + 2] >= end:
                break
        return numbers

    # -- keeping little -----------------------------------------------------------------------------------------

    def oldest(self, count: int) -> bytes:
        """The oldest `count` of the young ones, packed: the next block."""
        return b"".join(column[:count].tobytes() for column in self._youngest)

    def put_away(self, count: int) -> None:
        """The oldest `count` of the young ones can be read as block `next_block` from now on."""
        _, first_offsets, marker_offsets, stable_offsets = self._youngest
        self.next_block += 1
        if self._blocks is _NO_BLOCKS:
            self._blocks = array("q")
        self._blocks.extend((marker_offsets[count - 1], min(first_offsets[:count]), stable_offsets[count - 1]))
        for column in self._youngest:
            del column[:count]

    def forget_below(self, offset: int) -> None:
        """The log begins at `offset` now, or compaction came so far: no reader needs what ended before it."""
        self._floor = max(self._floor, offset)
        gone = 0
        while gone < len(self._blocks) and self._blocks[gone] < offset:
            gone += _BLOCK_COLUMNS
        self.first_block += gone // _BLOCK_COLUMNS
        del self._blocks[:gone]
        gone = bisect_left(self._youngest[2], offset)
        if gone:
            for column in self._youngest:
                del column[:gone]

    # -- for checkpoints ----------------------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """The young ones, packed, and what is known of the blocks. There are many partitions, and few of them have any:
        that costs nothing.
        """
        young = self.oldest(self.young_count) if self.young_count else b""
        blocks = _BLOCKS_HEAD.pack(self._floor, self.first_block) + self._blocks.tobytes() if self._blocks else b""
        return young, blocks

    @classmethod
    def from_bytes(cls, young: bytes | memoryview, blocks: bytes | memoryview = b"") -> "AbortedTransactions":
        aborted = cls()
        if young:
            aborted._youngest = _columns(young)
        if blocks:
            aborted._floor, aborted.first_block = _BLOCKS_HEAD.unpack_from(blocks)
            aborted._blocks = array("q", bytes(blocks[_BLOCKS_HEAD.size :]))
            aborted.next_block = aborted.first_block + len(aborted._blocks) // _BLOCK_COLUMNS
        return aborted


def _columns(packed: bytes | memoryview) -> _Columns:
    columns = array("q"), array("q"), array("q"), array("q")
    size = len(packed) // _COLUMNS
    for number, column in enumerate(columns):
        column.frombytes(packed[number * size : (number + 1) * size])
    return columns


# What twenty thousand partitions share for as long as nothing was aborted in them: these stay empty.
_NONE_YET: Final = _columns(b"")
_NO_BLOCKS: Final["array[int]"] = array("q")
