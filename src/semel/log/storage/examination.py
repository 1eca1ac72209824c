"""Reads a data directory without owning or changing it, for `semel dump`.

`examine` computes the same state as recovery, from the last checkpoint and the entries after it, without the lock and
without writing; a broker may be using the directory. `walk_segment` goes through the batches of one file. If something
is damaged, both go as far as they can and say where they stopped. A person uses this to find out what can still be
read, so nothing here may raise because of the data that it reads.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from semel.log.core.entries import PartitionName
from semel.log.core.groups.groups import Groups
from semel.log.core.partition import Partition
from semel.log.core.shares import PRODUCER_STATES_MAX, Shares
from semel.log.core.state import State
from semel.log.core.topics import Catalog, Topic
from semel.log.storage import checkpoint, end_notes, journal
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT, AbortedBlocks, BlockLayout
from semel.log.storage.encoding import decode, name_of
from semel.log.storage.files import File, Files
from semel.log.storage.journal import Bookmark, Damaged, Lost, Misfit
from semel.log.storage.recovery import check_note, entries_after, refuse_lost_checkpoint
from semel.log.storage.segment import FOOTER_MAGIC, Segment, directory_of
from semel.log.storage.segment_files import SegmentFiles
from semel.log.storage.verification import VERIFIED_BYTES_MAX, Verification
from semel.wire.batch import CHECKED_FROM, HEADER_BYTES, MAGIC, BatchHeader, read_header
from semel.wire.checksum import crc32c

# A running broker may recycle a file that is being read. Then reading begins again, with a newer checkpoint.
_ATTEMPTS: Final = 3
# The errors that intact bytes cause if another version of semel wrote them, or if semel has a bug.
IMPOSSIBLE: Final = (LookupError, TypeError, ValueError, AttributeError, AssertionError, struct.error)


class ExaminedPartition:
    """A partition without its records."""

    def __init__(self, name: PartitionName, lenient_blocks: int) -> None:
        self.name = name
        self.state = Partition(lenient_blocks)
        self.apply_append = self.state.apply_append
        self.apply_marker = self.state.apply_marker
        self.apply_log_start = self.state.apply_log_start
        self.forget_silent = self.state.forget_silent

    def drop(self) -> None:
        """An examined partition holds no files."""


def _new_partition(topic: Topic, index: int, lenient_blocks: int) -> ExaminedPartition:
    return ExaminedPartition(PartitionName(topic.number, index), lenient_blocks)


class Examined:
    """The state in a data directory, and how far it could be read."""

    def __init__(self) -> None:
        self.state: State[ExaminedPartition] = State(Catalog(), Groups(), Shares(PRODUCER_STATES_MAX), _new_partition)
        # The JSON part of the checkpoint; None if it cannot be read.
        self.checkpoint: dict[str, Any] | None = None
        self.replayed_entries = 0
        # The entry that is being applied, in a few words.
        self.examining = ""
        # The position after the last valid entry.
        self.position = 0
        # The reason why the examination stopped early, in one line; None if it did not.
        self.stopped: str | None = None
        # Whether `semel repair --set-aside` goes on without that.
        self.can_be_set_aside = False
        # The segments and the blocks of aborted transactions that the checkpoint names.
        self.segments: list[Segment] = []
        self.blocks: list[AbortedBlocks] = []

    def restore(self, snapshot: dict[str, Any], packed: memoryview, files: Files, layout: BlockLayout) -> None:
        """Begin with the content of a checkpoint."""

        def restore_partitions() -> None:
            for record, parts in checkpoint.unpack(snapshot["partitions"], packed, files):
                partition = self.state.partitions.named(record["topic"], record["index"])
                checkpoint.restore_state(partition.state, record, parts)
                directory = f"{directory_of(self.state.catalog.known(record['topic']))}/{record['index']}"
                self.segments += [Segment.from_record(directory, fields) for fields in record["segments"]]
                if partition.state.aborted.block_count:
                    # The blocks in the checkpoint, without the changes that the journal makes later.
                    checkpoint_state = Partition()
                    checkpoint.restore_state(checkpoint_state, record, parts)
                    self.blocks.append(AbortedBlocks(checkpoint_state, directory, SegmentFiles(files), layout))

        self.state.restore(snapshot, restore_partitions)

    def check_files(self, files: Files, verified_bytes_max: int | None) -> None:
        """`Damaged` if a file that the checkpoint names is missing or too short. Segments are verified as a start does
        it, or only their sizes.
        """
        verification = Verification(files, verified_bytes_max)
        for segment in self.segments:
            if (fault := verification.fault_of(segment)) is not None:
                raise Lost(fault.message)
        for blocks in self.blocks:
            verification.check_blocks(blocks)

    def replay(self, stored: journal.JournalEntry) -> None:
        """Apply an entry of the journal."""
        entry = decode(stored.kind, stored.payload)
        self.examining = name_of(entry)
        self.state.check(entry)
        self.state.apply(entry)

    def check_strays(self) -> None:
        """`Lost` if a partition has an open transaction that no transactional id owns."""
        for partition, producer_id in self.state.strays():
            number, index = partition.name
            raise Lost(
                f"partition {index} of topic {number}: a transaction of producer {producer_id} is open, and no "
                "transactional id has it"
            )


def examine(files: Files, layout: BlockLayout = BLOCK_LAYOUT, *, as_a_start: bool = False) -> Examined:
    """The whole state, up to the last entry of the journal or to the first damage. `as_a_start`: no broker may be
    running; then it also finds what a start finds because nobody is writing.
    """
    examination = Examined()
    for _ in range(_ATTEMPTS):
        examination = _examine_once(files, layout, as_a_start)
        if examination.stopped is None:
            break
    return examination


def _examine_once(files: Files, layout: BlockLayout, as_a_start: bool) -> Examined:
    examination = Examined()
    try:
        note = end_notes.read(files)
        last = checkpoint.read(files)
        if last is None:
            refuse_lost_checkpoint(files, note)
            examination.stopped = (
                f"{files.describe(checkpoint.NAME)}: missing; the first start of the broker was interrupted"
            )
            return examination
        state, packed = last
        examination.restore(state, packed, files, layout)
        examination.checkpoint = state
        examination.position = Bookmark(*state["journal"]).position
        note = check_note(files, note, state)
        # While a broker writes, an entry may be seen before the one in front of it.
        for entry in entries_after(files, state, note if as_a_start else note._replace(run=b"")):
            examination.examining = f"kind {entry.kind}"
            _replay(files, examination, entry)
            examination.replayed_entries += 1
            examination.position = entry.end
        examination.check_strays()
        examination.check_files(files, VERIFIED_BYTES_MAX if as_a_start else None)
    except OSError as error:
        examination.stopped = f"{error.filename}: {error.strerror}"
    except Damaged as error:
        examination.stopped = str(error)
        examination.can_be_set_aside = isinstance(error, Lost | Misfit)
    except IMPOSSIBLE as error:
        examination.stopped = f"{files.describe(checkpoint.NAME)}: {error!r}"
    return examination


def _replay(files: Files, examination: Examined, entry: journal.JournalEntry) -> None:
    try:
        examination.replay(entry)
    except IMPOSSIBLE as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise Misfit(files, entry, examination.examining, why) from error


class StoredBatch(NamedTuple):
    """A batch in a segment. `is_intact` says whether its checksum matches."""

    position: int
    header: BatchHeader
    is_intact: bool


class SegmentEnd(NamedTuple):
    """Where the batches of a segment end. `trouble` says why they end early; None if they do not."""

    position: int
    file_bytes: int
    is_sealed: bool
    trouble: str | None


def walk_segment(
    files: Files, path: str, on_batch: Callable[[StoredBatch], None], on_progress: Callable[[int], None]
) -> SegmentEnd:
    """Call `on_batch` for every batch of the file at `path`; return where the batches end."""
    file = files.open(path)
    try:
        position = 0
        size = file.size()
        while True:
            item = _batch_at(file, position, size)
            if isinstance(item, StoredBatch):
                on_batch(item)
                position += item.header.batch_bytes
                on_progress(item.header.batch_bytes)
                continue
            size_now = file.size()
            if size_now == size:
                return item
            # A broker has appended something meanwhile.
            size = size_now
    finally:
        file.close()


def _batch_at(file: File, position: int, size: int) -> StoredBatch | SegmentEnd:
    head = file.read_at(HEADER_BYTES, position)
    if head.startswith(FOOTER_MAGIC) or not head:
        return SegmentEnd(position, size, bool(head), None)
    if len(head) < HEADER_BYTES:
        return SegmentEnd(position, size, False, f"{len(head)} bytes that are not a batch")
    header = read_header(head)
    if header.magic != MAGIC or header.batch_bytes < HEADER_BYTES:
        return SegmentEnd(position, size, False, f"no batch ({head[:16].hex(' ')} ...)")
    if position + header.batch_bytes > size:
        return SegmentEnd(position, size, False, f"a batch of {header.batch_bytes} bytes that is cut short")
    batch = memoryview(file.read_at(header.batch_bytes, position))
    return StoredBatch(position, header, crc32c(batch[CHECKED_FROM:]) == header.checksum)


def segment_paths(files: Files, directory: str) -> Iterator[str]:
    """The segments in a partition's directory, oldest first."""
    return (f"{directory}/{name}" for name in files.names(directory) if name.endswith(".log"))
