"""The files of the segments of a log: which are open, which a checkpoint has to sync, and which it may remove.

Readers get the bytes of a segment from here, after a look at whether they are its batches; clients may end over other
bytes. This must never decide what to do about damage.
"""

import contextlib
from collections import OrderedDict
from typing import Final

from semel.log.storage.damage import Damage, Misread
from semel.log.storage.files import Buffer, File, Files
from semel.log.storage.journal import Damaged
from semel.log.storage.segment import (
    Index,
    Segment,
    Stretch,
    first_batch_bytes,
    footer,
    look_right,
    place_after,
    read_footer,
    scan_index,
    whole_batches,
)
from semel.wire.batch import HEADER_BYTES
from semel.wire.steps import APPEND_PIECES, Steps

# The open files of segments, and the indexes of sealed segments in memory, at any time.
OPEN_SEGMENTS_MAX: Final = 256
# The largest answer that is compared batch by batch; of a larger one, some places are.
WALKED_BYTES_MAX: Final = 16 * 1024
# The kernel takes 14 ms to remove a file of 256 MiB that is in the page cache, so such a file gets a turn to itself.
_BYTES_REMOVED_PER_PIECE: Final = 512 * 1024


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
        self.damage = Damage(files.describe)

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
        self._file_to_write(segment).write_at(parts, position)
        self.dirty.add(segment.path)

    def take_changes(self) -> tuple[frozenset[str], frozenset[str], list[str]]:
        """What a checkpoint has to sync, and what may be removed when it is durable."""
        dirty, grown, unnamed = self.dirty, self.grown, self.unnamed
        self.dirty, self.grown, self.unnamed = set(), set(), []
        return frozenset(dirty), frozenset(grown), unnamed

    def take_back(self, dirty: frozenset[str], grown: frozenset[str], unnamed: list[str]) -> None:
        """There was no checkpoint: the next one has to do this."""
        self.dirty |= dirty
        self.grown |= grown
        self.unnamed = unnamed + self.unnamed

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
        """The file of a segment for readers."""
        if not segment.size:
            return self._file_to_write(segment)
        try:
            return self.opened(segment.path)
        except FileNotFoundError:
            misread = Misread(segment.path, 0, segment.base_offset, segment.next_offset, "missing")
            raise self.damage.met(misread) from None

    def _file_to_write(self, segment: Segment) -> File:
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

    def batches(
        self,
        segment: Segment,
        position: int,
        wanted: int,
        end: int,
        end_offset: int,
        bytes_max: int,
        *,
        whole_first_batch: bool,
    ) -> tuple[bytes | memoryview, int]:
        """The whole batches from `position` on, where that with the record `wanted` begins, at most `bytes_max`, and
        the offset after them; `end`, at `end_offset`, is the end of some batch after them.
        """
        size = max(min(bytes_max, end - position), 0)
        is_cut = size < end - position
        if is_cut:
            indexed_position, indexed_offset = self.index_of(segment).before_position(position + size)
            if indexed_position > position:
                # A batch begins there, so every byte that is read will be sent. The next fetch gets what might have
                # fitted.
                size, end_offset, is_cut = indexed_position - position, indexed_offset, False
        data, next_offset = self._whole(segment, position, size, wanted, end_offset, is_cut=is_cut)
        if not is_cut:
            return data, end_offset
        if not data and whole_first_batch:
            head = self.file_of(segment).read_at(HEADER_BYTES, position)
            size = min(first_batch_bytes(head), end - position)
            return self._whole(segment, position, size, wanted, end_offset, is_cut=False, is_one=True)
        return data, next_offset

    def _whole(
        self,
        segment: Segment,
        position: int,
        size: int,
        wanted: int,
        end_offset: int,
        *,
        is_cut: bool,
        is_one: bool = False,
    ) -> tuple[bytes | memoryview, int]:
        """The whole batches in these bytes, and the offset after them. The segment is damaged if something else is
        there, or if the last batch is not whole, unless the caller has cut it. If they are one batch, they end before
        `end_offset`.
        """
        data = self.file_of(segment).read_at(size, position)
        is_large = not (is_cut or is_one) and WALKED_BYTES_MAX < size == len(data)
        if is_large and look_right(self.index_of(segment), data, position, wanted):
            return data, end_offset
        whole_bytes, next_offset, is_right = whole_batches(segment, data, wanted, end_offset)
        if is_right and len(data) == size and (is_cut or whole_bytes == size):
            return memoryview(data)[:whole_bytes] if is_cut else data, next_offset
        has_lost_end = is_right and len(data) < size
        what = f"ends at offset {position + len(data)}, in the middle of a batch" if has_lost_end else ""
        raise self.damage.met(Misread(segment.path, position + whole_bytes, next_offset, segment.next_offset, what))

    def place_of(self, segment: Segment, offset: int) -> int:
        """Where the batch with `offset` begins; the end of the segment if it has none."""
        position, first = self.index_of(segment).before_offset(offset)
        try:
            return place_after(self.file_of(segment), segment, position, first, offset)
        except Misread as misread:
            raise self.damage.met(misread) from None

    def index_of(self, segment: Segment) -> Index:
        if segment.index is not None:
            return segment.index
        index = self._indexes.get(segment.path)
        if index is None:
            file = self.file_of(segment)
            try:
                index = read_footer(file, segment.size) or scan_index(file, segment)
            except Misread as misread:
                raise self.damage.met(misread) from None
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
        return self.damage.marks.get(segment.path, (segment.size, segment.next_offset))

    def seal(self, segment: Segment) -> None:
        """Seal the segment: write its index after the last batch."""
        if segment.index is None:
            return
        self.write(segment, footer(segment.index), segment.size)
        segment.index = None

    def forget(self, path: str) -> None:
        """Close a file that is about to be removed."""
        self.dirty.discard(path)
        self.damage.marks.pop(path, None)
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
