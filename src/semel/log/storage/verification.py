"""Whether the segments hold what the checkpoint says: the files that a start trusts without reading them again.

The checkpoint has a digest of each segment, over the checksums and the offsets of its batches. So a segment whose bytes
changed, or which is that of another partition or an earlier one, is recognised. To read all of a large log would make a
start slow, so a start reads up to `VERIFIED_BYTES_MAX`, the newest segments of each partition first; of the others it
checks the size and the first batch. `semel dump --segments` reads all of them. Nothing here may change a file.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from struct import Struct
from typing import Any, Final, NamedTuple

from semel.log.storage.aborted_blocks import AbortedBlocks, BlockWalk
from semel.log.storage.files import Buffer, File, Files
from semel.log.storage.journal import Damaged, Lost
from semel.log.storage.segment import Proven, Segment, digest_after, digest_with
from semel.wire.batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    commits,
    read_header,
)
from semel.wire.checksum import crc32c
from semel.wire.steps import finish

# Read at up to a gigabyte a second from the page cache, and at that of the disk otherwise.
VERIFIED_BYTES_MAX: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
# The base offset, the length, the leader epoch, the format, the checksum, the attributes and the distance of the last
# offset in the header of a batch. To read all fields takes longer than the rest of a walk.
_WALKED: Final = Struct(">qiibIhi")
# The smallest batches in so many bytes take a millisecond.
_BREATH_BYTES: Final = 64 * 1024


class Fault(NamedTuple):
    """What is wrong with a segment, and how much of it is still right: its first `size` bytes."""

    message: str
    size: int = 0
    next_offset: int = 0
    digest: int = 0


class Verification:
    """Verifies segments until it has read `bytes_max`, and of the rest the size and the first batch; of all of them
    only the size if that is None, as for a cache, whose bytes may be in a store.
    """

    def __init__(self, files: Files, bytes_max: int | None) -> None:
        self._files = files
        self._bytes_left = bytes_max

    def passed(
        self,
        record: dict[str, Any],
        directory: str,
        lose: Callable[[Lost], None],
        keep: Callable[[Segment, Fault], list[Segment]],
    ) -> dict[str, Any]:
        """A partition's record in a checkpoint, without the segments that are gone and without the damaged end of
        others. `keep` returns segments with what is proven right after the damage, and `lose` is called for each, and
        raises if the start has to stop. Readers are told of the offsets that are gone (`given_up`).
        """
        segments = [Segment.from_record(directory, fields) for fields in record["segments"]]
        faults = {segment: fault for segment in reversed(segments) if (fault := self.fault_of(segment)) is not None}
        if not faults:
            return record
        after: dict[Segment, list[Segment]] = {}
        given_up = list(record["given_up"])
        for segment, fault in faults.items():
            after[segment] = keep(segment, fault)
            spans = [(one.base_offset, one.next_offset) for one in after[segment]]
            whole = "".join(f", except {begin} to {end - 1}, which are whole" for begin, end in spans)
            lose(Lost(f"{fault.message}{whole}", (segment.path,)))
            begins, ends = (
                [fault.next_offset, *(end for _, end in spans)],
                [*(begin for begin, _ in spans), segment.next_offset],
            )
            given_up += [span for span in zip(begins, ends, strict=True) if span[0] < span[1]]
            segment.size, segment.next_offset, segment.digest = fault.size, fault.next_offset, fault.digest
        left = []
        for segment in segments:
            left += [segment] if segment.size or segment not in faults else []
            left += after.get(segment, [])
        if segments[-1] in faults:
            # The last segment is the one that grows, and nothing is added after the damage.
            left.append(Segment(directory, record["next_offset"], segments[-1].begun_at_ms))
        return {**record, "segments": [segment.to_record() for segment in left], "given_up": given_up}

    def check_blocks(self, blocks: AbortedBlocks) -> None:
        """`Lost` if blocks of aborted transactions are not intact, as far as they are read."""
        files = blocks.files()
        size = sum(file.size for file in files)
        try:
            blocks.check()
            if self._bytes_left is not None and size <= self._bytes_left:
                self._bytes_left -= size
                blocks.read_all()
        except Damaged as damage:
            raise Lost(str(damage), tuple(file.path for file in files)) from None

    def fault_of(self, segment: Segment) -> Fault | None:
        """What is wrong with the file of a segment that a checkpoint names; None if nothing is."""
        if segment.size == 0:
            return None
        try:
            file = self._files.open(segment.path)
        except FileNotFoundError:
            fault: Fault | None = Fault("missing, the checkpoint names it", next_offset=segment.base_offset)
        else:
            with closing(file):
                fault = self._fault_in(file, segment)
        if fault is None:
            return None
        return told(self._files, segment, fault)

    def _fault_in(self, file: File, segment: Segment) -> Fault | None:
        size = file.size()
        if size < segment.size:
            is_cut = f"ends at offset {size}, the checkpoint knows {segment.size} bytes"
            return (_fault_in(file, segment) or Fault("", next_offset=segment.base_offset))._replace(message=is_cut)
        if self._bytes_left is None:
            return None
        if segment.size > self._bytes_left:
            return _fault_at_beginning(file, segment)
        self._bytes_left -= segment.size
        return _fault_in(file, segment)


def _fault_at_beginning(file: File, segment: Segment) -> Fault | None:
    header = read_header(file.read_at(HEADER_BYTES, 0))
    is_batch = header.magic == MAGIC and HEADER_BYTES <= header.batch_bytes <= segment.size
    if is_batch and segment.base_offset <= header.base_offset < segment.next_offset:
        return None
    return Fault("no batch of this segment at offset 0", next_offset=segment.base_offset)


def told(files: Files, segment: Segment, fault: Fault) -> Fault:
    """The fault with a message that names the file and what is lost."""
    return fault._replace(
        message=f"{files.describe(segment.path)}: {_with_loss(fault.message, segment, fault.next_offset)}"
    )


def _with_loss(what: str, segment: Segment, offset: int) -> str:
    return f"{what}; records from offset {offset} to {segment.next_offset - 1} are lost or damaged"


def _fault_in(file: File, segment: Segment) -> Fault | None:
    """What is wrong with the batches of a segment, which are all read."""
    return finish(_fault_in_steps(file, segment))


def fault_in_steps(files: Files, segment: Segment) -> Generator[int, None, Fault | None]:
    """The same for the file of a sealed segment, a batch at a time: yields the bytes of each that is right."""
    try:
        file = files.open(segment.path)
    except FileNotFoundError:
        return told(files, segment, Fault("missing", next_offset=segment.base_offset))
    with closing(file):
        fault = yield from _fault_in_steps(file, segment)
    return None if fault is None else told(files, segment, fault)


def _fault_in_steps(file: File, segment: Segment) -> Generator[int, None, Fault | None]:
    digest = position = 0
    offset = segment.base_offset
    for batch, header in intact_batches(file, segment.size):
        if header is None:
            return Fault(f"no intact batch at offset {position}", position, offset, digest)
        if not offset <= header.base_offset < header.next_offset <= segment.next_offset:
            return Fault(f"a batch of other offsets at offset {position}", position, offset, digest)
        digest = digest_after(digest, header)
        offset = header.next_offset
        position += len(batch)
        yield len(batch)
    if digest == segment.digest:
        return None
    # Nobody can say which of them are right.
    return Fault("other batches than the checkpoint knows", next_offset=segment.base_offset)


class Walk:
    """Goes through the batches of a segment from what is proven on, as its bytes are read, piece after piece."""

    def __init__(self, segment: Segment, proven: Proven) -> None:
        self.path, self.begin, self.size = segment.path, proven.size, segment.size
        self._segment = segment
        self._begin_offset = proven.next_offset
        self._position, self._offset, self._digest = proven
        # The beginning of a batch that goes on in the next piece.
        self._rest: Buffer = b""

    def take(self, content: Buffer, position: int) -> str:
        """What is wrong with these bytes, which are at `position`, if anything is; they begin no later than where the
        last ones ended. For a thread.
        """
        segment, unpack = self._segment, _WALKED.unpack_from
        begin = self._position + len(self._rest) - position
        content = memoryview(content)[max(begin, 0) : max(segment.size - position, 0)]
        data = memoryview(b"".join((self._rest, content))) if self._rest else content
        size, end_offset = len(data), segment.next_offset
        size_left = segment.size - self._position
        offset, digest = self._offset, self._digest
        what, at, breath = "", 0, 0
        while at + HEADER_BYTES <= size and not what:
            base, length, epoch, magic, checksum, attributes, delta = unpack(data, at)
            end = at + LENGTH_PREFIX_BYTES + length
            if magic != MAGIC or not at + HEADER_BYTES <= end <= size_left:
                what = "no intact batch"
            elif end > size:
                break
            elif crc32c(data[at + CHECKED_FROM : end]) != checksum:
                what = "no intact batch"
            elif not offset <= base <= base + delta < end_offset:
                # Nobody can say which of them are right.
                what, offset = "a batch of other offsets", self._begin_offset
            else:
                digest = digest_with(digest, attributes, checksum, base, epoch)
                at, offset = end, base + delta + 1
                if at - breath > _BREATH_BYTES:
                    # Others get the interpreter.
                    time.sleep(0)
                    breath = at
        self._position, self._offset, self._digest = self._position + at, offset, digest
        self._rest = data[at:]
        return _with_loss(f"{what} at offset {self._position}", segment, offset) if what else ""

    def end(self) -> str:
        """What is wrong with all bytes together, or is missing."""
        segment = self._segment
        if self._position < segment.size:
            cut = f"ends at offset {self._position + len(self._rest)}, in the middle of a batch"
            return _with_loss(cut, segment, self._offset)
        if self._digest != segment.digest:
            # Nobody can say which of them are right.
            return _with_loss("other batches than were written", segment, self._begin_offset)
        return ""


def check_on_disk(files: Files, walk: Walk | BlockWalk, *, only_if_short: bool = False) -> None:
    """Take the walk over what is not proven of its file; `Damaged` if something is wrong there. For a thread."""
    if walk.begin >= walk.size:
        return
    file = files.open(walk.path)
    with closing(file):
        size = file.size()
        if only_if_short and size >= walk.size:
            return
        cut = f"ends at offset {size}, and has lost its end" if size < walk.size else ""
        if size < walk.begin:
            refuse(files, walk, cut)
        for position in range(walk.begin, walk.size, _PIECE_BYTES):
            refuse(files, walk, walk.take(file.read_at(min(_PIECE_BYTES, walk.size - position), position), position))
    refuse(files, walk, walk.end() or cut)


def refuse(files: Files, walk: Walk | BlockWalk, what: str) -> None:
    """`Damaged` if a walk has found that something is wrong."""
    if what:
        raise Damaged(f"{files.describe(walk.path)}: {what}")


def proven_after(file: File, segment: Segment, fault: Fault) -> list[list[tuple[int, BatchHeader]]]:
    """The runs of batches after damage, each batch with its place. Only if the headers of all batches, of the damaged
    ones as well, are those that the checkpoint has a digest of: then a batch that matches its checksum is the one that
    was acknowledged. Otherwise nothing is proven.
    """
    runs: list[list[tuple[int, BatchHeader]]] = [[]]
    if file.size() < segment.size:
        return []
    digest, offset, position = fault.digest, fault.next_offset, fault.size
    while position < segment.size:
        header = read_header(file.read_at(HEADER_BYTES, position))
        is_batch = header.magic == MAGIC and HEADER_BYTES <= header.batch_bytes <= segment.size - position
        if not is_batch or not offset <= header.base_offset < header.next_offset <= segment.next_offset:
            return []
        batch = memoryview(file.read_at(header.batch_bytes, position))
        if crc32c(batch[CHECKED_FROM:]) == header.checksum:
            runs[-1].append((position, header))
        elif runs[-1]:
            runs.append([])
        digest, offset = digest_after(digest, header), header.next_offset
        position += header.batch_bytes
    return [run for run in runs if run] if digest == segment.digest else []


def aborted_in(files: Files, segments: Iterable[Segment], begin: int) -> list[tuple[int, int, int, int]] | None:
    """The aborted transactions with records from `begin` on, as these segments tell: producer id, first offset, that of
    the marker, and the last stable offset after it. None if a segment is damaged.
    """
    opened: dict[int, int] = {}
    found = []
    for segment in segments:
        with closing(files.open(segment.path)) as file:
            digest = 0
            for batch, header in intact_batches(file, segment.size):
                if header is None:
                    return None
                digest = digest_after(digest, header)
                if header.next_offset <= begin or not header.attributes & TRANSACTIONAL_BIT:
                    continue
                if not header.is_control:
                    opened.setdefault(header.producer_id, header.base_offset)
                    continue
                first = opened.pop(header.producer_id, None)
                if first is not None and not commits(batch):
                    stable = next(iter(opened.values()), header.next_offset)
                    found.append((header.producer_id, first, header.base_offset, stable))
        if digest != segment.digest:
            return None
    return found


def intact_batches(file: File, end: int, position: int = 0) -> Iterator[tuple[memoryview, BatchHeader | None]]:
    """The batches of a file from `position` to `end`, each with its header; None for a header, and then no more, where
    there is no whole batch that matches its checksum.
    """
    piece = memoryview(b"")
    at = 0
    while position < end:
        if len(piece) - at < HEADER_BYTES:
            piece, at = memoryview(file.read_at(min(_PIECE_BYTES, end - position), position)), 0
        if len(piece) - at < HEADER_BYTES:
            yield piece[at:], None
            return
        header = read_header(piece, at)
        size = header.batch_bytes
        is_batch = header.magic == MAGIC and HEADER_BYTES <= size <= end - position
        if is_batch and size > len(piece) - at:
            piece, at = memoryview(file.read_at(max(size, min(_PIECE_BYTES, end - position)), position)), 0
        batch = piece[at : at + size]
        if not is_batch or len(batch) < size or crc32c(batch[CHECKED_FROM:]) != header.checksum:
            yield batch, None
            return
        yield batch, header
        position += size
        at += size
