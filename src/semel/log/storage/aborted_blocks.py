"""The blocks of a partition's aborted transactions on disk: where they are, and how they are written and read.

A block is written once, when it is full, and never changed. Until a durable checkpoint names the block, recovery takes
its content from the journal. So after a crash the bytes after the last block that the checkpoint names are
overwritten. A file holds many blocks, and is removed together with the last of them.

`core.aborted` defines the content of a block, and which blocks a search must read; nothing here may decide that a block
is not needed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

from semel.log.core.aborted import ABORTED_BYTES, AbortedTransactions
from semel.log.core.partition import Partition
from semel.log.storage.files import Buffer, File, NotHere
from semel.log.storage.journal import Corrupt
from semel.log.storage.segment import FilePart, Stretch
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.checksum import crc32c

# A checksum precedes each block. It also covers the block's number, which is not stored.
_CHECKSUM: Final = Struct("<I")
_NUMBER: Final = Struct("<q")


class BlockLayout(NamedTuple):
    """The transactions in a block, and the blocks in a file. They must never change for a data directory."""

    aborted_per_block: int = 128
    blocks_per_file: int = 1024

    @property
    def block_bytes(self) -> int:
        return _CHECKSUM.size + self.aborted_per_block * ABORTED_BYTES


BLOCK_LAYOUT: Final = BlockLayout()


class NoBlock(Corrupt):
    """A file has something else where a block should be."""

    def __init__(self, where: str, path: str, position: int) -> None:
        super().__init__(f"{where}: {_no_block(position)}")
        self.path = path
        self.position = position


class BlockFile(NamedTuple):
    """A file of blocks."""

    path: str
    # How much of it holds blocks, and where in it the current ones begin.
    size: int
    begin: int
    # The number of its first block.
    number: int
    block_bytes: int


class AbortedBlocks:
    """The blocks of one partition, and the search through all its aborted transactions."""

    __slots__ = ("_directory", "_layout", "_segment_files", "_state")

    def __init__(self, state: Partition, directory: str, segment_files: SegmentFiles, layout: BlockLayout) -> None:
        self._state = state
        self._directory = directory
        self._segment_files = segment_files
        self._layout = layout

    # -- searching ----------------------------------------------------------------------------------------------

    def between(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that reach into a stretch of the log, by marker."""
        return self._state.aborted.between(begin, end, self._read_for_reader)

    def cold(self, begin: int, end: int) -> list[Stretch]:
        """The parts of files that `between`, with these arguments, would have to read from the disk."""
        numbers = self._state.aborted.blocks_between(begin, end)
        return [
            stretch
            for stretch, _ in self._stretches(numbers)
            if not self._segment_files.opened(stretch.path).is_cached(stretch.size, stretch.position)
        ]

    def for_thread(self) -> Callable[[int, int], list[tuple[int, int, int]]]:
        """A function for another thread that searches the transactions aborted so far. For the stretch from one offset
        to before another, it returns producer id, first offset and marker's offset of each that reaches into it.
        """
        aborted = AbortedTransactions.from_bytes(*self._state.aborted.to_bytes())
        return lambda begin, end: aborted.spans(begin, end, self._read_alone)

    def _read_for_reader(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Read these blocks; NotHere if one is damaged that the store may have."""
        damage = self._segment_files.damage
        try:
            yield from self._read(numbers, self._segment_files.opened)
        except NoBlock as lost:
            if not damage.doubt(lost.path, lost.position):
                raise
            damage.tell(lost.path, f"{lost} on the disk; it is fetched from the store again")
            raise NotHere(lost.path, lost.position, 1) from None

    def _read(self, numbers: Iterable[int], file_of: Callable[[str], File]) -> Iterator[bytes]:
        """Read these blocks, from the files that `file_of` returns; `NoBlock` if a checksum does not match."""
        block_bytes = self._layout.block_bytes
        for (path, position, size), run in self._stretches(numbers):
            data = file_of(path).read_at(size, position)
            for at, number in enumerate(run):
                block = data[at * block_bytes : (at + 1) * block_bytes]
                if len(block) < block_bytes or not _is_block(number, block):
                    raise NoBlock(self._segment_files.files.describe(path), path, position + at * block_bytes)
                yield block[_CHECKSUM.size :]

    def _read_alone(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """The same for another thread: it opens files of its own."""
        with ExitStack() as files:

            def file_of(path: str) -> File:
                file = self._segment_files.files.open(path)
                files.callback(file.close)
                return file

            yield from self._read(numbers, file_of)

    # -- keeping ------------------------------------------------------------------------------------------------

    def put_away(self) -> None:
        """Write a block if enough transactions are in memory. If the write fails, nothing has changed, and the next
        call tries again.
        """
        aborted, count = self._state.aborted, self._layout.aborted_per_block
        if aborted.young_count >= count:
            number = aborted.next_block
            content = aborted.oldest(count)
            ((stretch, _),) = self._stretches([number])
            parts: list[Buffer] = [_CHECKSUM.pack(_checksum(number, content)), content]
            self._segment_files.write_beside(stretch.path, parts, stretch.position)
            aborted.put_away(count)

    def check(self) -> None:
        """`Damaged` if a file with blocks is missing, or is shorter than its blocks."""
        for path, size in self.contents():
            self._segment_files.check_size(path, size or 0)

    def contents(self) -> list[FilePart]:
        """The parts of files that hold the current blocks."""
        return [FilePart(path, size) for path, size, *_ in self.files()]

    def files(self) -> list["BlockFile"]:
        """The files of the current blocks. The file that is not full is among them even if none of its
        blocks is current: a checkpoint in a store names the bytes of a file from its beginning, and if an earlier one
        had left them out, nobody would have them when the next block is added.
        """
        aborted, (_, per_file) = self._state.aborted, self._layout
        first = aborted.first_block // per_file
        end = -(-aborted.next_block // per_file)
        block_bytes = self._layout.block_bytes
        return [
            BlockFile(
                self._path(number),
                min(aborted.next_block - number * per_file, per_file) * block_bytes,
                max(aborted.first_block - number * per_file, 0) * block_bytes,
                number * per_file,
                block_bytes,
            )
            for number in range(first, end)
        ]

    def read_all(self) -> None:
        """Read all blocks; `NoBlock` if a checksum does not match."""
        aborted = self._state.aborted
        for _ in self._read_alone(range(aborted.first_block, aborted.next_block)):
            pass

    def replace_all(self, found: Iterable[tuple[int, int, int, int]], begin: int) -> bool:
        """Go on without the files, with what was found in the log from `begin` on; False if that cannot be the same.
        The next block begins a file of its own.
        """
        aborted, per_file = self._state.aborted, self._layout.blocks_per_file
        again = aborted.found_again(found, begin, -(-aborted.next_block // per_file) * per_file)
        if again is not None:
            self._state.aborted = again
        return again is not None

    def paths(self) -> list[str]:
        """The files that may exist, including the one for the next block."""
        aborted, per_file = self._state.aborted, self._layout.blocks_per_file
        return self._paths(aborted.first_block // per_file, -(-aborted.next_block // per_file))

    def freed(self, first_block_before: int) -> list[str]:
        """The files that no longer hold any block, now that the first block is later than `first_block_before`."""
        per_file = self._layout.blocks_per_file
        return self._paths(first_block_before // per_file, self._state.aborted.first_block // per_file)

    def _stretches(self, numbers: Iterable[int]) -> Iterator[tuple[Stretch, list[int]]]:
        """The stretches of files with these blocks, as few as possible, and the blocks in each. `numbers` rise."""
        per_file, block_bytes = self._layout.blocks_per_file, self._layout.block_bytes
        for (file_number, _), some in groupby(enumerate(numbers), lambda i: (i[1] // per_file, i[1] - i[0])):
            run = [number for _, number in some]
            position = run[0] % per_file * block_bytes
            yield Stretch(self._path(file_number), position, len(run) * block_bytes), run

    def _paths(self, first: int, end: int) -> list[str]:
        return [self._path(file_number) for file_number in range(first, end)]

    def _path(self, file_number: int) -> str:
        return f"{self._directory}/{file_number:020d}.aborted"


class BlockWalk:
    """Goes through the current blocks of a file from what is proven on, as its bytes are read, piece after piece."""

    def __init__(self, file: BlockFile, proven_bytes: int) -> None:
        self.path = file.path
        self.begin, self.size = max(file.begin, proven_bytes), file.size
        self._file = file
        self._position = self.begin
        # The beginning of a block that goes on in the next piece.
        self._rest: Buffer = b""

    def take(self, content: Buffer, position: int) -> str:
        """What is wrong with these bytes, which are at `position`, if anything is. For a thread."""
        size = self._file.block_bytes
        if position > self._position + len(self._rest):
            # The bytes before are not read: they are proven.
            self._position, self._rest = -(-position // size) * size, b""
        begin = self._position + len(self._rest) - position
        data = memoryview(b"".join((self._rest, memoryview(content)[max(begin, 0) :])))
        end = len(data) - len(data) % size
        for at in range(0, end, size):
            place = self._position + at
            if not _is_block(self._file.number + place // size, data[at : at + size]):
                return _no_block(place)
        self._position, self._rest = self._position + end, data[end:]
        return ""

    def end(self) -> str:
        """Nothing is wrong with all bytes together: each block is proven by itself."""
        return ""


def _is_block(number: int, block: Buffer) -> bool:
    (checksum,) = _CHECKSUM.unpack_from(block)
    return bool(checksum == _checksum(number, memoryview(block)[_CHECKSUM.size :]))


def _no_block(place: int) -> str:
    return f"no block of aborted transactions at offset {place}"


def _checksum(number: int, content: Buffer) -> int:
    return crc32c(content, crc32c(_NUMBER.pack(number)))
