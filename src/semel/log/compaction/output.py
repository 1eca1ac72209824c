"""The segment that replaces others: compaction writes it in pieces, and syncs it before the log uses it.

Its file has the name of the first of those segments with the next generation, so it is in the same directory, but no
checkpoint names it before the log uses it. Nothing here ever writes to a file that the log uses.
"""

from typing import Final

from semel.log.compaction.rewrite import NO_HORIZON
from semel.log.storage.files import File, Files
from semel.log.storage.segment import Index, Segment, footer
from semel.wire.batch import BatchHeader, Buffer

_PIECE_BYTES: Final = 1024 * 1024
# How many bytes are written between two syncs: after more, the journal's own syncs would have to wait.
_SYNC_BYTES: Final = 8 * _PIECE_BYTES


class SegmentOutput:
    """The segment with the remaining records of a group."""

    __slots__ = ("_file", "_files", "_group", "_index", "_parts", "_segment", "_synced", "_written")

    def __init__(self, files: Files, directory: str, group: list[Segment]) -> None:
        first = group[0]
        self._files = files
        self._group = group
        self._segment = Segment(directory, first.base_offset, first.begun_at_ms, first.generation + 1)
        self._index = Index()
        self._segment.index = self._index
        self._file: File | None = None
        self._parts: list[Buffer] = []
        self._written = 0
        self._synced = 0

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Add the next batch."""
        segment = self._segment
        segment.note(header)
        self._parts.append(batch)
        if segment.size - self._written >= _PIECE_BYTES:
            self._write()

    def note_horizon(self, horizon_ms: int) -> None:
        """Remember that a later pass may remove a tombstone in the segment from this time on."""
        segment = self._segment
        if segment.horizon_ms == NO_HORIZON or horizon_ms < segment.horizon_ms:
            segment.horizon_ms = horizon_ms

    def finish(self) -> Segment | None:
        """Write the rest and sync; returns the durable segment, or None if no batch was added."""
        segment = self._segment
        if segment.size == 0:
            return None
        self._write()
        file = self._opened()
        file.write_at(footer(self._index), self._written)
        file.sync()
        file.close()
        self._file = None
        segment.index = None
        segment.next_offset = self._group[-1].next_offset
        return segment

    def discard(self) -> None:
        """Remove the file: this segment will not be used."""
        if self._file is not None:
            self._file.close()
            self._files.remove(self._segment.path)

    def _write(self) -> None:
        self._written += self._opened().write_at(self._parts, self._written)
        self._parts = []
        if self._written - self._synced >= _SYNC_BYTES:
            self._opened().sync()
            self._synced = self._written

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._segment.path, create=True)
            # Removes the content that an earlier attempt may have left.
            self._file.truncate(0)
        return self._file
