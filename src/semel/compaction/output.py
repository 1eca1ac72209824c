"""The segment that compaction writes in place of others, in pieces, and syncs before the log uses it.

Its file bears the name of the first of those segments and the next generation, so it lies beside them and is a stranger
to every checkpoint until the log has taken it in. Nothing here is ever written to a file that the log knows.
"""

from typing import Final

from semel.compaction.rewrite import NO_HORIZON
from semel.core.batch import BatchHeader, Buffer
from semel.storage.files import File, Files
from semel.storage.segment import Index, Segment, footer

_PIECE_BYTES: Final = 1024 * 1024
# What is written between one sync and the next: more at once would keep the journal's own syncs waiting.
_SYNC_BYTES: Final = 8 * _PIECE_BYTES


class SegmentOutput:
    """What is left of a few segments."""

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
        """Add a batch after those that came before."""
        segment = self._segment
        segment.note(header)
        self._parts.append(batch)
        if segment.size - self._written >= _PIECE_BYTES:
            self._write()

    def note_horizon(self, horizon_ms: int) -> None:
        """A mark of deletion in there may go from this time on."""
        segment = self._segment
        if segment.horizon_ms == NO_HORIZON or horizon_ms < segment.horizon_ms:
            segment.horizon_ms = horizon_ms

    def finish(self) -> Segment | None:
        """All has come, and is durable when this returns; None if it was nothing."""
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
            # What an earlier attempt may have left there.
            self._file.truncate(0)
        return self._file
