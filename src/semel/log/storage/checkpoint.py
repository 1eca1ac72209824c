"""The whole state at one position of the journal, in one file that is replaced as a whole.

Recovery begins with it. A new checkpoint is written to another file, which is synced and renamed over the old one; then
the directory is synced. So there is always one good checkpoint, either the old or the new one.

    magic, size of the JSON part, size of the packed part, CRC-32C of both
    JSON    the parts that stay small: topics, producer ids
    packed  the parts that may have a million items: the segments, the indexes of active ones, the states of producers,
            the first offsets of open transactions, and the youngest aborted transactions; very many producers lie
            beside it, in `storage.producer_pages`

A checkpoint must be possible on a full disk, because old files can be deleted only after a checkpoint. So another file
reserves space for it: as much as the last checkpoint took, and `RESERVE_BYTES` more. On a full disk that file becomes
the new checkpoint, so nobody else gets its space meanwhile.
"""

import contextlib
import json
import struct
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from semel.log.core.aborted import AbortedTransactions
from semel.log.core.cached_part import CachedPart
from semel.log.core.leader_epochs import LeaderEpochs
from semel.log.core.partition import Partition
from semel.log.core.producer_table import Snapshot
from semel.log.storage.aborted_blocks import BlockFile, BlockWalk
from semel.log.storage.end_notes import EndNotes
from semel.log.storage.files import OUT_OF_SPACE, Files, sync
from semel.log.storage.journal import DIRECTORY as JOURNAL_DIRECTORY
from semel.log.storage.journal import Damaged, StillInJournal
from semel.log.storage.producer_pages import ProducerPages, buffers_of, cut_on_error, pack_places, pages_at, pages_from
from semel.log.storage.segment import (
    RECORD_BYTES,
    FilePart,
    Index,
    Mark,
    Proven,
    Segment,
    SegmentsThen,
    unpack_records,
)
from semel.log.storage.verification import Walk, check_on_disk
from semel.wire.checksum import crc32c

A = TypeVar("A")

FORMAT: Final = 6
NAME: Final = "checkpoint"
RESERVE_BYTES: Final = 1024 * 1024
_UNFINISHED: Final = "checkpoint.new"
_RESERVE: Final = "reserve"
_HEAD: Final = struct.Struct("<8sIQI")
_MAGIC: Final = b"semel-ck"
# Encoding this many takes some milliseconds, even if each is the record of a partition.
_PIECE_ITEMS: Final = 500
# Buffers in one write.
_BUFFERS_AT_ONCE: Final = 500
# Made once, because json.dumps would make one for every piece. The bytes of clients are in base64.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=lambda own_bytes: b64encode(own_bytes).decode())
_PRODUCER: Final = struct.Struct("<qH")
_OPEN_TRANSACTION: Final = struct.Struct("<qqqq")


# The content of a checkpoint: the JSON part and the packed part.
Content = tuple[dict[str, Any], memoryview]


class PartitionParts(NamedTuple):
    """The packed parts of one partition."""

    growing_index: Index
    producers: Snapshot
    # By producer id, in the order in which they began.
    open_transactions: dict[int, Mark]
    # The transactions in memory and the list of blocks, as `core.aborted` packs them, which is cheaper than a copy.
    aborted: bytes
    aborted_blocks: bytes


class PartitionFiles(NamedTuple):
    """The files of one partition to which a checkpoint refers."""

    segments: SegmentsThen
    blocks: list[BlockFile]


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """The whole content of a checkpoint, taken at `position`; later changes do not affect it."""

    files: Files
    position: int
    dirty: frozenset[str]
    grown: frozenset[str]
    state: dict[str, Any]
    parts: list[PartitionParts]
    partition_files: list[PartitionFiles]
    # None if the journal is in a store: then the checkpoint has all pages in itself.
    pages: ProducerPages | None = None
    # Where to note that everything before `position` is durable; None in a store, and until a start has succeeded.
    notes: EndNotes | None = None
    unnamed: list[str] = field(default_factory=list)
    # How much the checkpoint before this one has of the files that grow.
    before: Mapping[str, Proven] = field(default_factory=dict)
    # The paths of the segments that are known to be damaged, also of those of which that is found out meanwhile.
    damaged: Collection[str] = ()
    # How much this one has.
    proven: dict[str, Proven] = field(default_factory=dict)

    def contents(self) -> Iterator[FilePart]:
        """The parts of files to which the state refers. For a thread, because there may be many."""
        for segments, blocks in self.partition_files:
            yield from segments.parts()
            yield from (FilePart(path, size) for path, size, *_ in blocks)

    def blocks(self) -> Iterator[BlockFile]:
        """The files of aborted transactions."""
        for _, blocks in self.partition_files:
            yield from blocks

    def segments(self) -> Iterator[Segment]:
        """The segments with batches, for a thread as well."""
        for segments, _ in self.partition_files:
            yield from (segment for segment in segments if segment.size)

    def run(self) -> None:
        """Sync the files that the checkpoint names, then replace the checkpoint. For a thread, because it waits for the
        disk.
        """
        # The checkpoint will name a position in a journal file whose own name may not be durable yet.
        sync(self.files, sorted(self.dirty), [*sorted(self.grown), JOURNAL_DIRECTORY])
        try:
            self._check_written()
        except Damaged as lost:
            raise StillInJournal(lost, self.files.describe(JOURNAL_DIRECTORY)) from None
        pages = [page for parts in self.parts for page in parts.producers.pages]
        on_disk = self.pages
        has_places = on_disk is not None and with_reserve(
            self.files, lambda: on_disk.put(pages), lambda: self.files.remove(_RESERVE)
        )
        write(self.files, self.state, self.packed(has_places=has_places))
        if self.notes is not None:
            self.notes.note(self.position, is_synced=True)
        if self.pages is not None:
            self.unnamed.extend(self.pages.unneeded(pages))
        self.proven.update(proven_in(self.partition_files))

    def _check_written(self) -> None:
        """`Damaged` if the disk has lost what the checkpoint before this one does not have: after this one nobody has
        it. The batches are compared only where damage is known, or the file is too short: somebody may have cut it, or
        put another one in its place.
        """
        for segment in self.segments():
            if segment.path in self.dirty:
                proven = self.before.get(segment.path, Proven(0, segment.base_offset, 0))
                is_known = segment.path in self.damaged
                check_on_disk(self.files, Walk(segment, proven), only_if_short=not is_known)
        for blocks in self.blocks():
            if blocks.path in self.dirty:
                known = self.before.get(blocks.path)
                check_on_disk(self.files, BlockWalk(blocks, 0 if known is None else known.size))

    def packed(self, *, has_places: bool = False) -> list[bytes]:
        """The packed part: with the pages of producers, or only with their places if they have them. The sizes of its
        pieces are added to the JSON part.
        """
        packed: list[bytes] = []
        for record, parts, files in zip(self.state["partitions"], self.parts, self.partition_files, strict=True):
            sizes: list[int] = []
            for buffers in ([files.segments.packed()], *pack(parts, has_places=has_places)):
                sizes.append(sum(map(len, buffers)))
                packed += buffers
            record["packed"] = sizes
        return packed


def proven_in(partition_files: Iterable[PartitionFiles]) -> dict[str, Proven]:
    """How much a checkpoint of these files has of those that grow."""
    proven: dict[str, Proven] = {}
    for segments, blocks in partition_files:
        proven.update((segment.path, segment.whole) for segment in segments.last)
        proven.update((block.path, Proven(block.size, 0, 0)) for block in blocks[-1:])
    return proven


def write(files: Files, state: dict[str, Any], packed: list[bytes]) -> None:
    """Replace the checkpoint. When this returns, the new one is durable; if it raises, the old one still is."""
    content = encode(state, packed)
    with_reserve(files, lambda: _replace(files, content), lambda: files.rename(_RESERVE, _UNFINISHED))
    _keep_reserve(files, sum(map(len, content)))


def with_reserve(files: Files, write: Callable[[], A], give_up_reserve: Callable[[], None]) -> A:
    """What `write` returns. If it finds no space, it is called once more, and has that of the reserve."""
    try:
        return write()
    except OSError as error:
        if error.errno not in OUT_OF_SPACE or _RESERVE not in files.names(""):
            raise
        give_up_reserve()
        return write()


def encode(state: dict[str, Any], packed: list[bytes]) -> list[bytes]:
    """The content of the file."""
    texts = list(_texts({"format": FORMAT, **state}))
    checksum = 0
    for part in (*texts, *packed):
        checksum = crc32c(part, checksum)
    head = _HEAD.pack(_MAGIC, sum(map(len, texts)), sum(map(len, packed)), checksum)
    return [head, *texts, *packed]


def _texts(value: Any) -> Iterator[bytes]:
    """A value as JSON, in a few buffers. The parts that were encoded for an earlier checkpoint are not copied."""
    new: list[str] = []
    for piece in _pieces(value):
        if isinstance(piece, str):
            new.append(piece)
        else:
            yield "".join(new).encode()
            yield piece
            new.clear()
    yield "".join(new).encode()


def _pieces(value: Any) -> Iterator[str | bytes]:
    """A value as JSON, piece by piece. No other thread can run while a piece is encoded, so no piece may be large. It
    assumes that all items of a list are as large as the first one.
    """
    if isinstance(value, CachedPart):
        yield value.encoded(lambda part: b"".join(_texts(part)))
    elif isinstance(value, dict) and _may_be_large(value):
        mark = "{"
        for key, inner in value.items():
            yield f"{mark}{_text(str(key))}:"
            yield from _pieces(inner)
            mark = ","
        yield "}"
    elif isinstance(value, list) and value and _may_be_large(value[0]):
        mark = "["
        for inner in value:
            yield mark
            yield from _pieces(inner)
            mark = ","
        yield "]"
    elif isinstance(value, list) and len(value) > _PIECE_ITEMS:
        mark = "["
        for at in range(0, len(value), _PIECE_ITEMS):
            yield mark + _text(value[at : at + _PIECE_ITEMS])[1:-1]
            mark = ","
        yield "]"
    else:
        yield _text(value)


def _may_be_large(value: Any) -> bool:
    """Whether a value has many items, or items that have items."""
    if isinstance(value, dict):
        return len(value) > _PIECE_ITEMS or any(isinstance(i, dict) or _may_be_large(i) for i in value.values())
    if isinstance(value, CachedPart):
        return True
    return isinstance(value, list) and (len(value) > _PIECE_ITEMS or (bool(value) and _may_be_large(value[0])))


def _text(value: Any) -> str:
    return _ENCODER.encode(value)


def _replace(files: Files, content: list[bytes]) -> None:
    file = files.open(_UNFINISHED, create=True)
    try:
        position = 0
        with cut_on_error(file, 0):
            # The buffers are not joined, because no other thread could run while a hundred megabytes are copied.
            for first in range(0, len(content), _BUFFERS_AT_ONCE):
                position += file.write_at(content[first : first + _BUFFERS_AT_ONCE], position)
        # The file may have been the reserve, or left by a crash.
        file.truncate(position)
        file.sync()
    finally:
        file.close()
    files.rename(_UNFINISHED, NAME)
    files.sync_directory("")


def _keep_reserve(files: Files, checkpoint_bytes: int) -> None:
    """Reserve space for the next checkpoint. A crash may have left a reserve without space, and a copy of the directory
    one with holes, so all of it is allocated each time, which costs nothing if it was before.
    """
    size = checkpoint_bytes + RESERVE_BYTES
    with contextlib.suppress(OSError):
        file = files.open(_RESERVE, create=True)
        try:
            size_before = file.size()
            if size_before > 2 * size:
                file.truncate(size)
            with cut_on_error(file, size_before):
                file.allocate(size)
        finally:
            file.close()


def read(files: Files) -> Content | None:
    """The content of the last checkpoint; None if there is none yet; `Damaged` if it is not whole."""
    if NAME not in files.names(""):
        return None
    file = files.open(NAME)
    try:
        content = file.read_at(file.size(), 0)
    finally:
        file.close()
    return decode(content, files.describe(NAME))


def decode(content: bytes, where: str) -> Content:
    """The content of a checkpoint; `Damaged` if these bytes are not a whole checkpoint."""
    if len(content) < _HEAD.size or content[:8] != _MAGIC:
        raise Damaged(f"{where}: not a checkpoint of semel (offset 0)")
    _, text_bytes, packed_bytes, checksum = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if len(body) != text_bytes + packed_bytes or crc32c(body) != checksum:
        raise Damaged(f"{where}: the checksum does not match the content (offset {_HEAD.size})")
    state = json.loads(bytes(body[:text_bytes]))
    if state["format"] != FORMAT:
        raise Damaged(
            f"{where}: written in format {state['format']} by another version of semel; this one reads {FORMAT}"
        )
    return state, body[text_bytes:]


def pack(parts: PartitionParts, *, has_places: bool = False) -> list[list[bytes]]:
    """The packed parts, each in one or more buffers. What may be large is not copied."""
    pages = parts.producers.pages
    open_transactions = (_OPEN_TRANSACTION.pack(key, *mark) for key, mark in parts.open_transactions.items())
    return [
        [parts.growing_index.to_bytes()],
        [pack_producers(parts.producers.recent.items())],
        [b"".join(open_transactions)],
        [parts.aborted],
        [parts.aborted_blocks],
        [] if has_places else [buffer for page in pages for buffer in buffers_of(page)],
        [pack_places(pages)] if has_places else [],
    ]


def last_segments(content: Content) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The record of the last segment of each partition, with the number of its topic and its index."""
    state, packed = content
    at = 0
    for record in state["partitions"]:
        end = at + record["packed"][0]
        for last in unpack_records(packed[max(end - RECORD_BYTES, at) : end]):
            yield record["topic"], record["index"], last
        at += sum(record["packed"])


def unpack(
    records: list[dict[str, Any]], packed: memoryview, files: Files
) -> Iterator[tuple[dict[str, Any], PartitionParts]]:
    """The record of each partition from the JSON part, with those of its segments, and its packed parts. `Damaged` if a
    page of producers is not where the checkpoint says.
    """
    at = 0
    for record in records:
        parts: list[memoryview] = []
        for size in record["packed"]:
            parts.append(packed[at : at + size])
            at += size
        segments, index, producers, open_transactions, aborted, blocks, inline, places = parts
        record = {**record, "segments": unpack_records(segments)}
        first_marks = {key: Mark(*mark) for key, *mark in _OPEN_TRANSACTION.iter_unpack(open_transactions)}
        yield (
            record,
            PartitionParts(
                Index.from_bytes(index),
                Snapshot(dict(unpack_producers(producers)), [*pages_from(inline), *pages_at(places, files)]),
                first_marks,
                bytes(aborted),
                bytes(blocks),
            ),
        )


def restore_state(state: Partition, record: dict[str, Any], parts: PartitionParts) -> None:
    """Set the state of a partition to its state in a checkpoint."""
    state.log_start = record["log_start"]
    state.next_offset = record["next_offset"]
    state.epochs = LeaderEpochs(record["epochs"])
    state.producers.restore(parts.producers)
    state.open_transactions = {key: mark.offset for key, mark in parts.open_transactions.items()}
    state.aborted = AbortedTransactions.from_bytes(parts.aborted, parts.aborted_blocks)


def pack_producers(states: Iterable[tuple[int, bytes]]) -> bytes:
    """Producer ids and their states, one after the other."""
    parts: list[bytes] = []
    for producer_id, state in states:
        parts.append(_PRODUCER.pack(producer_id, len(state)))
        parts.append(state)
    return b"".join(parts)


def unpack_producers(packed: memoryview) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(packed):
        producer_id, size = _PRODUCER.unpack_from(packed, at)
        at += _PRODUCER.size
        yield producer_id, bytes(packed[at : at + size])
        at += size
