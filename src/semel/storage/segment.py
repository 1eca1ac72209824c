"""One file of a partition's records: batches, one behind the other, exactly as they go to consumers.

A segment holds nothing that the journal or a checkpoint does not hold too, until a checkpoint has synced it. It is
written along with the journal, through the page cache, and read from there by fetches, most often seconds later.

A sparse index leads from an offset to a place in the file: one entry for the first batch in every 64 KiB or so. While
the segment grows the index is in memory; when it is sealed the index is written behind the last batch, with a checksum,
and read back on demand. An index that is not there or not right is made again from the batches.
"""

import contextlib
import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from semel.core.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from semel.core.topics import Topic
from semel.storage.files import Buffer, File, Files
from semel.storage.journal import Damaged

TOPICS: Final = "topics"

INDEX_INTERVAL_BYTES: Final = 64 * 1024
# Files of segments held open, and sealed segments' indexes held in memory, at once.
OPEN_SEGMENTS_MAX: Final = 256
_SCAN_BYTES: Final = 1024 * 1024

_FOOTER: Final = struct.Struct("<4sII")
FOOTER_MAGIC: Final = b"smlx"


class Mark(NamedTuple):
    """An offset and where it is: the end of `position` bytes of the segment that begins at `segment_base`."""

    offset: int
    segment_base: int
    position: int


class Stretch(NamedTuple):
    """A part of a file."""

    path: str
    position: int
    size: int


class FilePart(NamedTuple):
    """The first bytes of a file: this many, or all of it where nothing is written to it any more."""

    path: str
    size: int | None


class Index:
    """For every 64 KiB of a segment: offset and place of the first batch, and the latest timestamp in there."""

    __slots__ = ("max_timestamps", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.max_timestamps = array("q")

    def note(self, offset: int, position: int, max_timestamp: int) -> None:
        """A batch was written at `position`."""
        if not self.positions or position - self.positions[-1] >= INDEX_INTERVAL_BYTES:
            self.offsets.append(offset)
            self.positions.append(position)
            self.max_timestamps.append(max_timestamp)
        elif max_timestamp > self.max_timestamps[-1]:
            self.max_timestamps[-1] = max_timestamp

    def before_offset(self, offset: int) -> int:
        """The place of an indexed batch that begins at or before `offset`."""
        slot = bisect_right(self.offsets, offset) - 1
        return self.positions[slot] if slot >= 0 else 0

    def before_position(self, position: int) -> tuple[int, int]:
        """Place and offset of the last indexed batch that begins at or before `position`."""
        slot = max(bisect_right(self.positions, position) - 1, 0)
        return self.positions[slot], self.offsets[slot]

    @property
    def size_bytes(self) -> int:
        """What it takes in a checkpoint."""
        return 3 * self.offsets.itemsize * len(self.offsets)

    def copy(self) -> "Index":
        return Index.from_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        return self.offsets.tobytes() + self.positions.tobytes() + self.max_timestamps.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "Index":
        index = cls()
        third = len(data) // 3
        index.offsets.frombytes(data[:third])
        index.positions.frombytes(data[third : 2 * third])
        index.max_timestamps.frombytes(data[2 * third :])
        return index


class Segment:
    """What is known of one segment without opening it."""

    __slots__ = (
        "base_offset",
        "begun_at_ms",
        "generation",
        "horizon_ms",
        "index",
        "max_timestamp",
        "next_offset",
        "path",
        "size",
    )

    def __init__(self, directory: str, base_offset: int, begun_at_ms: int, generation: int = 0) -> None:
        self.path = _segment_path(directory, base_offset, generation)
        self.base_offset = base_offset
        self.begun_at_ms = begun_at_ms
        # How often compaction has rewritten the segment.
        self.generation = generation
        # When compaction may take the next of the marks of deletion that it left in here; -1 where it left none.
        self.horizon_ms = -1
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = -1
        # The index of a segment that still grows; a sealed one has its index on disk.
        self.index: Index | None = Index()

    def to_record(self) -> list[int]:
        """What a checkpoint remembers of a segment, besides the index of one that still grows."""
        return [
            self.base_offset,
            self.next_offset,
            self.size,
            self.max_timestamp,
            self.begun_at_ms,
            self.generation,
            self.horizon_ms,
        ]

    @classmethod
    def from_record(cls, directory: str, record: list[int]) -> "Segment":
        base_offset, next_offset, size, max_timestamp, begun_at_ms, generation, horizon_ms = record
        segment = cls(directory, base_offset, begun_at_ms, generation)
        segment.horizon_ms = horizon_ms
        segment.next_offset = next_offset
        segment.size = size
        segment.max_timestamp = max_timestamp
        segment.index = None
        return segment

    def note(self, header: BatchHeader) -> None:
        """A batch has been written at the end."""
        if self.index is None:
            raise AssertionError(f"{self.path} is sealed")
        self.index.note(header.base_offset, self.size, header.max_timestamp)
        self.size += header.length + LENGTH_PREFIX_BYTES
        self.next_offset = header.next_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)


def directory_of(topic: Topic) -> str:
    """Where a topic's files are, those of each partition in a directory of its own that has its index for a name."""
    # The name is for people; a file system has no room for the longest ones behind a number.
    return f"{TOPICS}/{topic.number}-{topic.name[:200]}"


def _segment_path(directory: str, base_offset: int, generation: int = 0) -> str:
    """The generation keeps a segment that was rewritten apart from the one whose place it takes."""
    return f"{directory}/{base_offset:020d}{f'-{generation}' if generation else ''}.log"


class SegmentFiles:
    """The segments' files, a bounded number of them open, least recently used ones closed first.

    `dirty` names the files that were written to, and `grown` the directories that got a new name, since a checkpoint
    last took those sets away to sync what is in them. `unnamed` names the files that nothing needs any more once the
    next checkpoint is durable.
    """

    def __init__(self, files: Files, open_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.files = files
        self.dirty: set[str] = set()
        self.grown: set[str] = set()
        self.unnamed: list[str] = []
        self._open_max = open_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    def check(self, segment: Segment) -> None:
        """`Damaged` if the file of a segment that a checkpoint names is not there, or is shorter than it was."""
        if segment.size:
            self.check_size(segment.path, segment.size)

    def check_size(self, path: str, known_bytes: int) -> None:
        """`Damaged` if the file is not there, or is shorter than a checkpoint knew it."""
        try:
            file = self.files.open(path)
        except FileNotFoundError:
            raise Damaged(f"{self.files.describe(path)}: missing, the checkpoint names it") from None
        size = file.size()
        file.close()
        if size < known_bytes:
            raise Damaged(
                f"{self.files.describe(path)}: ends at offset {size}, the checkpoint knows {known_bytes} bytes"
            )

    def write(self, segment: Segment, parts: list[Buffer], position: int) -> None:
        self.file_of(segment).write_at(parts, position)
        self.dirty.add(segment.path)

    def write_beside(self, path: str, parts: list[Buffer], position: int) -> None:
        """Write to a file that stands beside the segments; without one it is made."""
        file = self._open.get(path)
        if file is None:
            file = self._created(path)
        file.write_at(parts, position)
        self.dirty.add(path)

    def _create_directory(self, path: str) -> None:
        """Make a directory and those above it, and remember to sync the names."""
        self.files.make_directory(path)
        while path:
            self.grown.add(path)
            path = path.rpartition("/")[0]
        self.grown.add("")

    def file_of(self, segment: Segment) -> File:
        if segment.size == 0 and segment.path not in self._open:
            return self._created(segment.path)
        return self.opened(segment.path)

    def opened(self, path: str) -> File:
        """An existing file."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep_open(path, self.files.open(path))

    def _created(self, path: str) -> File:
        # The directory may have been removed since the segment was begun: it was empty.
        self._create_directory(path.rpartition("/")[0])
        return self._keep_open(path, self.files.open(path, create=True))

    def _keep_open(self, path: str, file: File) -> File:
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].close()
        return file

    def index_of(self, segment: Segment) -> Index:
        if segment.index is not None:
            return segment.index
        index = self._indexes.get(segment.path)
        if index is None:
            file = self.file_of(segment)
            index = _read_footer(file, segment.size) or scan_index(file, segment)
            self._indexes[segment.path] = index
            if len(self._indexes) > self._open_max:
                self._indexes.popitem(last=False)
        return index

    def seal(self, segment: Segment) -> None:
        """The segment will not grow any more: put its index on disk, behind the last batch."""
        if segment.index is None:
            return
        self.write(segment, footer(segment.index), segment.size)
        segment.index = None

    def forget(self, path: str) -> None:
        """The file is about to be removed."""
        self.dirty.discard(path)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self._indexes.pop(path, None)

    def remove_empty(self, directory: str) -> None:
        """Remove a partition's directory, and the topic's above it, if nothing is left in them."""
        while directory.count("/") >= 1 and not self.files.names(directory):
            self.grown.discard(directory)
            with contextlib.suppress(FileNotFoundError):
                self.files.remove_directory(directory)
            directory = directory.rpartition("/")[0]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def footer(index: Index) -> list[Buffer]:
    """What stands behind the last batch of a sealed segment."""
    data = index.to_bytes()
    return [_FOOTER.pack(FOOTER_MAGIC, len(data), crc32c(data)), data]


def _read_footer(file: File, position: int) -> Index | None:
    head = file.read_at(_FOOTER.size, position)
    if len(head) < _FOOTER.size:
        return None
    magic, size, checksum = _FOOTER.unpack(head)
    is_footer = magic == FOOTER_MAGIC and size <= file.size() - position
    data = file.read_at(size, position + _FOOTER.size) if is_footer else b""
    return Index.from_bytes(data) if data and crc32c(data) == checksum else None


def scan_index(file: File, segment: Segment) -> Index:
    """The index, made from the headers of the batches."""
    index = Index()
    position = 0
    while position < segment.size:
        chunk = file.read_at(min(_SCAN_BYTES, segment.size - position), position)
        end = 0
        for at, header in headers(chunk, segment, position):
            index.note(header.base_offset, position + at, header.max_timestamp)
            end = at + header.batch_bytes
        position += end
    return index


def headers(chunk: Buffer, segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of the batches that begin in `chunk`, read at `position` of a segment, each with its place there."""
    at = 0
    while at + HEADER_BYTES <= len(chunk):
        header = read_header(chunk, at)
        if header.batch_bytes < HEADER_BYTES:
            raise Damaged(f"{segment.path}: no batch at offset {position + at}")
        yield at, header
        at += header.batch_bytes
    if at == 0:
        raise Damaged(f"{segment.path}: ends at offset {position + len(chunk)}, in the middle of a batch")


def warm(files: Files, stretches: list[Stretch]) -> None:
    """Have the disk bring these parts of segments into memory."""
    for path, position, size in stretches:
        # The read that follows will find whatever is wrong with it.
        with contextlib.suppress(OSError):
            file = files.open(path)
            try:
                file.read_at(size, position)
            finally:
                file.close()
