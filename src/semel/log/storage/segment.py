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
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from semel.log.core.topics import Topic
from semel.log.storage.damage import Misread
from semel.log.storage.files import Buffer, File, Files, NotHere
from semel.wire.batch import CONTROL_BIT, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, read_header
from semel.wire.checksum import crc32c

TOPICS: Final = "topics"

INDEX_INTERVAL_BYTES: Final = 64 * 1024
# To find a batch between two entries of an index, this much is read at a time.
SCAN_BYTES: Final = INDEX_INTERVAL_BYTES
_REBUILT_BYTES: Final = 1024 * 1024
# The numbers of a segment in a checkpoint.
_RECORD: Final = struct.Struct("<8q")
RECORD_BYTES: Final = _RECORD.size

# The base offset, the length, the format and the distance of the last offset in the header of a batch.
_PLACE: Final = struct.Struct(">qi4xb6xi")
# A disk loses pages. In bytes that are not compared batch by batch, one of these is looked at.
_SAMPLED_BYTES: Final = 2048
_EMPTY_PAGE: Final = bytes(4096 // _SAMPLED_BYTES)
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
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


class Proven(NamedTuple):
    """How many bytes of a segment, from its beginning, are known to be right, and the offset and the digest after
    them.
    """

    size: int
    next_offset: int
    digest: int


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

    def before_offset(self, offset: int) -> tuple[int, int]:
        """Place and offset of the last indexed batch that begins at or before `offset`."""
        slot = bisect_right(self.offsets, offset) - 1
        return (self.positions[slot], self.offsets[slot]) if slot >= 0 else (0, 0)

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

    @property
    def whole(self) -> Proven:
        """All of it."""
        return Proven(self.size, self.next_offset, self.digest)

    @property
    def directory(self) -> str:
        """The directory of its partition."""
        return self.path.rpartition("/")[0]

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

    __slots__ = ("_last", "_sealed")

    def __init__(self, segments: list[Segment]) -> None:
        self._sealed = segments[:-1]
        self._last = [Segment.from_record(each.directory, each.to_record()) for each in segments[-1:]]

    def __iter__(self) -> Iterator[Segment]:
        yield from self._sealed
        yield from self._last

    def packed(self) -> bytes:
        """Their records in a checkpoint. For a thread: it may take long."""
        return b"".join([_RECORD.pack(*segment.to_record()) for segment in self])

    def parts(self) -> Iterator[FilePart]:
        """The parts of their files that hold batches. For a thread, likewise."""
        yield from (FilePart(segment.path, None) for segment in self._sealed if segment.size)
        yield from (FilePart(segment.path, segment.size) for segment in self._last if segment.size)

    @property
    def last(self) -> list[Segment]:
        """The one that grows, if there is one."""
        return self._last


def unpack_records(packed: memoryview) -> list[tuple[int, ...]]:
    """The records of segments."""
    return list(_RECORD.iter_unpack(packed))


def digest_after(digest: int, header: BatchHeader) -> int:
    """The digest of a segment's batches with one more: of its checksum, and of the two fields that it does not cover. A
    marker counts without its checksum, which its caller does not know.
    """
    return digest_with(digest, header.attributes, header.checksum, header.base_offset, header.leader_epoch)


def digest_with(digest: int, attributes: int, checksum: int, base_offset: int, leader_epoch: int) -> int:
    """The same, of the fields alone."""
    checksum = 0 if attributes & CONTROL_BIT else checksum
    return (digest * 31 + checksum + base_offset * 7 + leader_epoch) & 0xFFFFFFFF


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


def footer(index: Index) -> list[Buffer]:
    """The bytes of the index after the last batch of a sealed segment."""
    data = index.to_bytes()
    return [_FOOTER.pack(FOOTER_MAGIC, len(data), crc32c(data)), data]


def read_footer(file: File, position: int) -> Index | None:
    """The index of a sealed segment, whose batches end there; None if it is missing or damaged."""
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
    for position, header in _headers_from(file, segment, 0, segment.base_offset, _REBUILT_BYTES):
        index.note(header.base_offset, position, header.max_timestamp)
    return index


def place_after(file: File, segment: Segment, position: int, first: int, offset: int) -> int:
    """Where the batch with `offset` begins, which is not before that with `first`, at `position`; the end of the
    segment if it has none.
    """
    for at, header in _headers_from(file, segment, position, max(first, segment.base_offset), SCAN_BYTES):
        if header.next_offset > offset:
            return at
    return segment.size


def _headers_from(
    file: File, segment: Segment, position: int, offset: int, chunk_bytes: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The place and the header of each batch from `position` on, whose offsets are not below `offset`."""
    while position < segment.size:
        chunk = file.read_at(min(chunk_bytes, segment.size - position), position)
        end = 0
        for at, header in headers(chunk, segment, position, offset):
            if not offset <= header.base_offset < header.next_offset <= segment.next_offset:
                raise Misread(segment.path, position + at, offset, segment.next_offset)
            yield position + at, header
            end, offset = at + header.batch_bytes, header.next_offset
        position += end


def headers(chunk: Buffer, segment: Segment, position: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The place and the header of each batch in `chunk`, which was read at `position` of a segment, where `offset` is
    next. The last batch may go on after the chunk.
    """
    at = 0
    while at + HEADER_BYTES <= len(chunk):
        header = read_header(chunk, at)
        is_batch = header.magic == MAGIC and HEADER_BYTES <= header.batch_bytes <= segment.size - position - at
        if not is_batch:
            raise Misread(segment.path, position + at, offset, segment.next_offset)
        yield at, header
        at += header.batch_bytes
        offset = header.next_offset
    if at == 0:
        cut = f"ends at offset {position + len(chunk)}, in the middle of a batch"
        raise Misread(segment.path, position, offset, segment.next_offset, cut)


def first_batch_bytes(data: Buffer) -> int:
    """The size of the batch that begins here; of a header if there is none."""
    return max(read_header(data).batch_bytes, HEADER_BYTES) if len(data) >= HEADER_BYTES else HEADER_BYTES


def whole_batches(segment: Segment, data: Buffer, wanted: int, end_offset: int) -> tuple[int, int, bool]:
    """How many of these bytes are whole batches of the segment before `end_offset`, of which the first one has the
    record `wanted`, or the next one if that was removed; the offset after them; and whether what follows is right as
    far as it is there.

    Clients may end over bytes that are no batches. Only the fields that say where a batch is are compared, and no
    checksum.
    """
    at, offset, size = 0, segment.base_offset, len(data)
    unpack = _PLACE.unpack_from
    if size >= HEADER_BYTES and read_header(data).next_offset <= wanted:
        return 0, wanted, False
    while at + HEADER_BYTES <= size:
        base, length, magic, delta = unpack(data, at)
        if length < _LENGTH_MIN or magic != MAGIC:
            return at, offset if at else wanted, False
        if base < offset or delta < 0 or base + delta >= end_offset:
            # The bytes of another place: nobody can say which of these batches are right.
            return 0, wanted, False
        end = at + LENGTH_PREFIX_BYTES + length
        if end > size:
            break
        at = end
        offset = base + delta + 1
    return at, offset if at else wanted, True


def look_right(index: Index, data: Buffer, position: int, wanted: int) -> bool:
    """Whether these bytes, read at `position`, look like batches of which the first one has the record `wanted`, or the
    next one: those of the index begin where it says, and no page is empty. Each reader pays for this, so it does not go
    from batch to batch; that takes as long as to send them.
    """
    offsets, places = index.offsets, index.positions
    unpack = _PLACE.unpack_from
    first, _, magic, last = unpack(data, 0)
    if magic != MAGIC or first + last < wanted:
        return False
    for slot in range(bisect_left(places, position), bisect_left(places, position + len(data) - HEADER_BYTES)):
        base, _, magic, _ = unpack(data, places[slot] - position)
        if magic != MAGIC or base != offsets[slot]:
            return False
    return _EMPTY_PAGE not in bytes(data[::_SAMPLED_BYTES])


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
