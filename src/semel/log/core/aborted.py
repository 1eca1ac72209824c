"""The aborted transactions of a partition, and where their records lie.

A fetch with read_committed returns all records of a stretch of the log, and with them a list of aborted transactions.
For each of these the consumer drops the producer's records, from the transaction's first offset up to the producer's
marker. So the list for a stretch has every aborted transaction that reaches into it, even one that began earlier, in
the order of their markers.

A new marker always has a higher offset than all markers before it, so a search finds its first transaction by
bisection. It need not go on to the end of the list: with each abort the last stable offset right after it is kept, and
no transaction that ended later begins below that offset. An abort takes four numbers, which are packed.

A partition may have as many aborted transactions as batches, so memory holds only the youngest, and the storage writes
the others to disk in blocks. For each block this class keeps three numbers, which say whether a search has to read it;
the caller of a search passes the function that reads blocks. A search must never name a transaction whose marker
compaction has removed: a consumer would drop everything that the producer wrote later.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

# Reads the blocks with these numbers, each as `oldest` packed it.
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
        # Producer id, first offset, marker's offset, and the last stable offset right after the abort.
        self._youngest = _NONE_YET
        # Three numbers for each block that was put away, block after block: the offset of its last marker, its lowest
        # first offset, and the last stable offset after its last abort.
        self._blocks = _NO_BLOCKS
        # The number of the first block. Numbers rise, and none is used twice.
        self.first_block = 0
        # The number of the next block to be put away.
        self.next_block = 0
        # No reader needs a transaction that ended below this offset, although a block may still contain some of them.
        self._floor = 0

    @property
    def young_count(self) -> int:
        """How many aborted transactions are still in memory."""
        return len(self._youngest[0])

    @property
    def block_count(self) -> int:
        return self.next_block - self.first_block

    def note(self, producer_id: int, first_offset: int, marker_offset: int, stable_offset: int) -> None:
        """Add an aborted transaction. Its marker lies after the markers of all others."""
        if self._youngest is _NONE_YET:
            self._youngest = _columns(b"")
        values = producer_id, first_offset, marker_offset, stable_offset
        for column, value in zip(self._youngest, values, strict=True):
            column.append(value)

    # -- searching ----------------------------------------------------------------------------------------------

    def between(self, begin: int, end: int, read_blocks: ReadBlocks) -> list[tuple[int, int]]:
        """Producer id and first offset of each transaction with a record or its marker from `begin` to before `end`."""
        transactions: list[tuple[int, int]] = []
        for producer_ids, first_offsets, _ in self._reaching(begin, end, read_blocks):
            pairs = zip(producer_ids, first_offsets, strict=True)
            # There may be tens of thousands, and usually all of them begin before `end`: then the pairs are not checked
            # one by one.
            transactions += pairs if max(first_offsets) < end else [pair for pair in pairs if pair[1] < end]
        return transactions

    def spans(self, begin: int, end: int, read_blocks: ReadBlocks) -> list[tuple[int, int, int]]:
        """The same, with the offset of each marker."""
        return [
            span
            for columns in self._reaching(begin, end, read_blocks)
            for span in zip(*columns, strict=True)
            if span[1] < end
        ]

    def _reaching(self, begin: int, end: int, read_blocks: ReadBlocks) -> Iterator[list["array[int]"]]:
        """Producer ids, first offsets and markers' offsets of all transactions that reach into a stretch, and of some
        that begin after it.
        """
        begin = max(begin, self._floor)
        numbers = self.blocks_between(begin, end)
        for columns in (*map(_columns, read_blocks(numbers) if numbers else ()), self._youngest):
            # The first abort whose stable offset is `end` or more: no transaction that ended later begins below `end`.
            near = slice(bisect_left(columns[2], begin), bisect_left(columns[3], end) + 1)
            if columns[2][near]:
                yield [column[near] for column in columns[:3]]

    def blocks_between(self, begin: int, end: int) -> list[int]:
        """The numbers of the blocks that a search from `begin` to before `end` has to read."""
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

    # -- freeing memory -----------------------------------------------------------------------------------------

    def oldest(self, count: int) -> bytes:
        """The oldest `count` transactions in memory, packed: the next block."""
        return b"".join(column[:count].tobytes() for column in self._youngest)

    def put_away(self, count: int) -> None:
        """Drop the oldest `count` transactions from memory: from now on they are read as block `next_block`."""
        _, first_offsets, marker_offsets, stable_offsets = self._youngest
        self.next_block += 1
        if self._blocks is _NO_BLOCKS:
            self._blocks = array("q")
        self._blocks.extend((marker_offsets[count - 1], min(first_offsets[:count]), stable_offsets[count - 1]))
        for column in self._youngest:
            del column[:count]

    def forget_below(self, offset: int) -> None:
        """The log now begins at `offset`, or compaction has cleaned up to it: no reader needs a transaction that ended
        below it.
        """
        self._floor = max(self._floor, offset)
        count = 0
        while count < len(self._blocks) and self._blocks[count] < offset:
            count += _BLOCK_COLUMNS
        self.first_block += count // _BLOCK_COLUMNS
        del self._blocks[:count]
        count = bisect_left(self._youngest[2], offset)
        if count:
            for column in self._youngest:
                del column[:count]

    @property
    def floor(self) -> int:
        """No reader needs a transaction that ended below this offset."""
        return self._floor

    def found_again(
        self, found: Iterable[tuple[int, int, int, int]], begin: int, next_block: int
    ) -> "AbortedTransactions | None":
        """The same transactions, all in memory, as somebody has found them in the log from `begin` on; `next_block` is
        the number of the next block. None if those that are in memory are not the last ones that were found.
        """
        again = AbortedTransactions()
        young = list(zip(*self._youngest, strict=True))
        later = []
        for values in found:
            if young and values[2] >= young[0][2]:
                later.append(values[:3])
            else:
                again.note(*values)
        for values in young:
            again.note(*values)
        again._floor, again.first_block, again.next_block = self._floor, next_block, next_block
        return again if later == [values[:3] for values in young if values[1] >= begin] else None

    # -- for checkpoints ----------------------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """The transactions in memory, and the list of the blocks, packed. Empty for a partition without aborted
        transactions, and most have none. The number of the next block is in the list even if there is no block, because
        no number comes again.
        """
        young = self.oldest(self.young_count) if self.young_count else b""
        blocks = _BLOCKS_HEAD.pack(self._floor, self.first_block) + self._blocks.tobytes() if self.next_block else b""
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


# Twenty thousand partitions share these as long as nothing was aborted in them. They stay empty.
_NONE_YET: Final = _columns(b"")
_NO_BLOCKS: Final["array[int]"] = array("q")
