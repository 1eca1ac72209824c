"""A segment: one file of a partition's batches, one after the other, exactly as consumers get them.

The journal holds every batch of a segment until a checkpoint has synced the segment. A batch is written to the segment
just before its entry in the journal, through the page cache, and fetches usually read it from there seconds later.

A sparse index maps offsets to places in the file: one entry for the first batch in every 64 KiB or so. The index of the
active segment is in memory. When the segment is sealed, its index is written after the last batch, with a checksum,
and read on demand. If the index is missing or damaged, it is rebuilt from the batches.
"""

import contextlib
import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from semel.log.core.topics import Topic
from semel.log.storage.files import Buffer, File, Files, NotHere
from semel.log.storage.journal import Damaged
from semel.wire.batch import CONTROL_BIT, HEADER_BYTES, LENGTH, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from semel.wire.checksum import crc32c
from semel.wire.steps import APPEND_PIECES, Steps

TOPICS: Final = "topics"

INDEX_INTERVAL_BYTES: Final = 64 * 1024
# The open files of segments, and the indexes of sealed segments in memory, at any time.
OPEN_SEGMENTS_MAX: Final = 256
# To find a batch between two entries of an index, this much is read at a time.
SCAN_BYTES: Final = INDEX_INTERVAL_BYTES
_REBUILT_BYTES: Final = 1024 * 1024
# The numbers of a segment in a checkpoint.
_RECORD: Final = struct.Struct("<8q")
# The kernel takes 14 ms to remove a file of 256 MiB that is in the page cache, so such a file gets a turn to itself.
_BYTES_REMOVED_PER_PIECE: Final = 512 * 1024

_FOOTER: Final = struct.Struct("<4sII")
FOOTER_MAGIC: Final = b"smlx"


class Mark(NamedTuple):
    """An offset and its place: `position` in the segment that begins at offset `segment_base`."""

    offset: int
    segment_base: int
    position: int


class Stretch(NamedTuple):
    """A part of a file."""

    path: str
    position: int
    size: int


class FilePart(NamedTuple):
    """The first `size` bytes of a file; None for the whole file, if nothing is written to it any more."""

    path: str
    size: int | None


class Index:
    """For every 64 KiB of a segment: offset and place of the first batch, and the latest timestamp."""

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
        """The size of the index in a checkpoint."""
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
    """The data about one segment that is kept in memory."""

    __slots__ = (
        "base_offset",
        "begun_at_ms",
        "digest",
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
        # When compaction may remove the next tombstone that it left in the segment; -1 if it left none.
        self.horizon_ms = -1
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = -1
        # Identifies the batches, so that other bytes in the file are recognised.
        self.digest = 0
        # The index of an active segment; None for a sealed one, whose index is on disk.
        self.index: Index | None = Index()

    def to_record(self) -> tuple[int, ...]:
        """The segment's record in a checkpoint, without the index."""
        return (
            self.base_offset,
            self.next_offset,
            self.size,
            self.max_timestamp,
            self.begun_at_ms,
            self.generation,
            self.horizon_ms,
            self.digest,
        )

    @classmethod
    def from_record(cls, directory: str, record: Iterable[int]) -> "Segment":
        base_offset, next_offset, size, max_timestamp, begun_at_ms, generation, horizon_ms, digest = record
        segment = cls(directory, base_offset, begun_at_ms, generation)
        segment.horizon_ms = horizon_ms
        segment.digest = digest
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
        self.digest = digest_after(self.digest, header)


class SegmentsThen:
    """The segments of a partition at one time. There may be a hundred thousand, so only the list of the sealed ones is
    copied: they do not change any more.
    """

    __slots__ = ("_last", "_last_part", "_sealed")

    def __init__(self, segments: list[Segment]) -> None:
        self._sealed = segments[:-1]
        self._last = [_RECORD.pack(*segment.to_record()) for segment in segments[-1:]]
        self._last_part = [FilePart(each.path, each.size) for each in segments[-1:] if each.size]

    def packed(self) -> bytes:
        """Their records in a checkpoint. For a thread: it may take long."""
        return b"".join([_RECORD.pack(*segment.to_record()) for segment in self._sealed] + self._last)

    def parts(self) -> Iterator[FilePart]:
        """The parts of their files that hold batches. For a thread, likewise."""
        yield from (FilePart(segment.path, None) for segment in self._sealed if segment.size)
        yield from self._last_part


def unpack_records(packed: memoryview) -> list[tuple[int, ...]]:
    """The records of segments."""
    return list(_RECORD.iter_unpack(packed))


def digest_after(digest: int, header: BatchHeader) -> int:
    """The digest of a segment's batches with one more: of its checksum, and of the two fields that it does not cover. A
    marker counts without its checksum, which its caller does not know.
    """
    checksum = 0 if header.attributes & CONTROL_BIT else header.checksum
    return (digest * 31 + checksum + header.base_offset * 7 + header.leader_epoch) & 0xFFFFFFFF


def latest_ms_of(segment: Segment, following: Segment | None, now_ms: int) -> int:
    """The time of the latest record in a segment. Records without timestamps were appended before `following` began."""
    if segment.max_timestamp >= 0:
        return segment.max_timestamp
    return now_ms if following is None else following.begun_at_ms


def directory_of(topic: Topic) -> str:
    """The directory of a topic. Each partition has a directory in it, whose name is the partition's index."""
    # The name is for people only. The longest names are cut, because a file name has 255 bytes at most.
    return f"{TOPICS}/{topic.number}-{topic.name[:200]}"


def place_of(path: str) -> tuple[int, int]:
    """The number of the topic and the index of the partition that this file of a segment is for."""
    _, topic, index, _ = path.split("/")
    return int(topic.partition("-")[0]), int(index)


def _segment_path(directory: str, base_offset: int, generation: int = 0) -> str:
    """The file of a segment. The generation distinguishes a rewritten segment from the one that it replaces."""
    return f"{directory}/{base_offset:020d}{f'-{generation}' if generation else ''}.log"


class SegmentFiles:
    """The files of segments. A bounded number is open, and the least recently used is closed first.

    `dirty` has the files that were written to, and `grown` the directories with new names; a checkpoint takes both sets
    and syncs them. `unnamed` has the files that can be removed when the next checkpoint is durable.
    """

    def __init__(self, files: Files, open_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.files = files
        self.dirty: set[str] = set()
        self.grown: set[str] = set()
        self.unnamed: list[str] = []
        self._open_max = open_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        # Of segments that are damaged, by path: how many bytes are right, and the offset after these.
        self.damaged: dict[str, tuple[int, int]] = {}

    def check_size(self, path: str, known_bytes: int) -> None:
        """`Damaged` if the file is missing, or is shorter than it was at the checkpoint."""
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
        """Write to another file in the directory of the segments, which is created if it does not exist."""
        file = self._open.get(path)
        if file is None:
            file = self._created(path)
        file.write_at(parts, position)
        self.dirty.add(path)

    def _create_directory(self, path: str) -> None:
        """Make a directory and those above it; the next checkpoint syncs their names."""
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
        """An existing file, opened if it is not open."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._keep_open(path, self.files.open(path))

    def _created(self, path: str) -> File:
        # The directory may have been empty, and removed, since the segment was begun.
        self._create_directory(path.rpartition("/")[0])
        return self._keep_open(path, self.files.open(path, create=True))

    def _keep_open(self, path: str, file: File) -> File:
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].close()
        return file

    def read(self, segment: Segment, position: int, size: int) -> bytes | memoryview:
        """`size` bytes of a segment; `Damaged` if the file is too short."""
        data = self.file_of(segment).read_at(size, position)
        if len(data) < size:
            raise Damaged(f"{segment.path}: ends at offset {position + len(data)}, in the middle of a batch")
        return data

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

    def cold_index(self, segment: Segment) -> Stretch | None:
        """Where the index of the segment lies, if `index_of` would get it from the disk; None if it is cached."""
        if segment.index is not None or segment.path in self._indexes:
            return None
        file = self.file_of(segment)
        size = file.size() - segment.size
        return None if size <= 0 or file.is_cached(size, segment.size) else Stretch(segment.path, segment.size, size)

    def right_until(self, segment: Segment) -> tuple[int, int]:
        """How many bytes of the segment are right, as far as is known, and the offset after these."""
        return self.damaged.get(segment.path, (segment.size, segment.next_offset))

    def seal(self, segment: Segment) -> None:
        """Seal the segment: write its index after the last batch."""
        if segment.index is None:
            return
        self.write(segment, footer(segment.index), segment.size)
        segment.index = None

    def forget(self, path: str) -> None:
        """Close a file that is about to be removed."""
        self.dirty.discard(path)
        self.damaged.pop(path, None)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self._indexes.pop(path, None)

    def remove(self, paths: list[str]) -> Steps[None]:
        """Remove these files, and the directories that are empty then."""
        for path in paths:
            self.forget(path)
            pieces = APPEND_PIECES
            with contextlib.suppress(FileNotFoundError):
                pieces += self._size_of(path) // _BYTES_REMOVED_PER_PIECE
                self.files.remove(path)
            yield pieces
        for directory in dict.fromkeys(path.rpartition("/")[0] for path in paths):
            self.remove_empty(directory)
            yield APPEND_PIECES

    def _size_of(self, path: str) -> int:
        file = self.files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def remove_empty(self, directory: str) -> None:
        """Remove a partition's directory, and the topic's above it, if nothing is left in them."""
        while directory.count("/") >= 1 and not self.files.names(directory):
            self.grown.discard(directory)
            # It stays if it is a link to a directory on another disk.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self.files.remove_directory(directory)
            directory = directory.rpartition("/")[0]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def footer(index: Index) -> list[Buffer]:
    """The bytes of the index after the last batch of a sealed segment."""
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
    """The index of a segment, rebuilt from the headers of its batches."""
    index = Index()
    position = 0
    while position < segment.size:
        chunk = file.read_at(min(_REBUILT_BYTES, segment.size - position), position)
        end = 0
        for at, header in headers(chunk, segment, position):
            index.note(header.base_offset, position + at, header.max_timestamp)
            end = at + header.batch_bytes
        position += end
    return index


def headers(chunk: Buffer, segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The header and the place of each batch in `chunk`, which was read at `position` of a segment."""
    at = 0
    while at + HEADER_BYTES <= len(chunk):
        header = read_header(chunk, at)
        if header.batch_bytes < HEADER_BYTES:
            raise Damaged(f"{segment.path}: no batch at offset {position + at}")
        yield at, header
        at += header.batch_bytes
    if at == 0:
        raise Damaged(f"{segment.path}: ends at offset {position + len(chunk)}, in the middle of a batch")


def place_after(file: File, segment: Segment, position: int, offset: int) -> int:
    """Where the batch with `offset` begins, which is not before `position`; the end of the segment if it has none."""
    while position < segment.size:
        chunk = file.read_at(min(SCAN_BYTES, segment.size - position), position)
        end = 0
        for at, header in headers(chunk, segment, position):
            if header.next_offset > offset:
                return position + at
            end = at + header.batch_bytes
        position += end
    return segment.size


def whole_batches(segment: Segment, position: int, data: Buffer) -> tuple[int, int]:
    """How many of these bytes, read at `position`, are whole batches, and the offset after the last of them."""
    at = 0
    next_offset = -1
    size = len(data)
    while at + HEADER_BYTES <= size:
        length = LENGTH.unpack_from(data, at)[0] + LENGTH_PREFIX_BYTES
        if length < HEADER_BYTES:
            raise Damaged(f"{segment.path}: no batch at offset {position + at}")
        if at + length > size:
            break
        next_offset = read_header(data, at).next_offset
        at += length
    return at, next_offset


def warm(files: Files, stretches: list[Stretch]) -> None:
    """Read these parts of segments into the page cache."""
    for path, position, size in stretches:
        # The later read will report the error, or that the bytes were freed meanwhile.
        with contextlib.suppress(OSError, NotHere):
            file = files.open(path)
            try:
                file.read_at(size, position)
            finally:
                file.close()
