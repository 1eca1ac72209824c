"""How far the journal goes, noted outside the journal, so that a start misses what is gone.

A journal that lost its newest entries looks like one that never had them. So each sync of the journal also notes, in a
file of its own, the position before which everything is durable, and does so before any answer is sent. The next start
has to reach that position; if it does not, acknowledged changes are missing, and it stops (`Lost`).

The file has two notes in two places, which are written in turn: a write that a crash tears leaves the other note, which
is one sync older. A note is only ever too low, never too high, so an older one proves less and is still true. It is not
synced with every note, because that would double the time of each answer: a loss of power may take the notes of the
last seconds. It is synced with each new file of the journal and with each checkpoint.

A note also names the run of the machine (`Files.run_id`). While that is the same, the page cache has everything that
was ever written, synced or not, and the start may ask for more. And it names the cluster, so that a checkpoint of
another broker is recognised.
"""

import contextlib
import struct
import threading
from hashlib import blake2b
from typing import Final, NamedTuple

from semel.log.storage.files import OUT_OF_SPACE, File, Files
from semel.wire.checksum import crc32c

NAME: Final = "journal-end"
# The two notes lie in different pages, so that one damaged page leaves the other.
_PLACE_BYTES: Final = 4096
_PLACES: Final = 2
_MAGIC: Final = b"semel-je"
_CHECKED_FROM: Final = 12
_NOTE: Final = struct.Struct("<8sIIQQQ16s16s")
_CLUSTER_BYTES: Final = 16


class Note(NamedTuple):
    """What was known of the directory when the note was written."""

    # Counts the notes: the newest one has the highest number.
    number: int = 0
    # Everything before this position was durable, in the journal or in a checkpoint.
    durable: int = 0
    # Whether a checkpoint was durable, so that the directory holds a log.
    has_log: bool = False
    # The size of each file of the journal that was begun since the last start.
    file_bytes: int = 0
    # The run of the machine; empty if it cannot be told from another one.
    run: bytes = b""
    cluster: bytes = b""

    def to_bytes(self) -> bytes:
        fields = (int(self.has_log), self.number, self.durable, self.file_bytes, self.run, self.cluster)
        checked = _NOTE.pack(_MAGIC, 0, *fields)[_CHECKED_FROM:]
        return _NOTE.pack(_MAGIC, crc32c(checked), *fields)


# For a reader that knows nothing: it takes the journal for whole where the journal itself does not show the contrary.
NOTHING_KNOWN: Final = Note()


class EndNotes:
    """The notes of a running broker. Threads may add notes at the same time."""

    def __init__(self, files: Files, last: Note) -> None:
        self._files = files
        self._last = last
        self._mutex = threading.Lock()
        self._file: File = files.open(NAME, create=True)
        try:
            self._file.allocate(_PLACES * _PLACE_BYTES)
        except OSError:
            self._file.close()
            raise

    def start(self, durable: int) -> None:
        """The first checkpoint of this start, which is at this position, is durable."""
        self._last = self._last._replace(has_log=True, run=self._files.run_id())
        self._write(durable, is_synced=True)

    def note(self, durable: int, *, is_synced: bool = False) -> None:
        """Everything before this position is durable. `is_synced`: the note has to survive a loss of power."""
        with self._mutex:
            self._write(max(durable, self._last.durable), is_synced=is_synced)

    def _write(self, durable: int, *, is_synced: bool) -> None:
        note = self._last._replace(number=self._last.number + 1, durable=durable)
        try:
            self._file.write_at([note.to_bytes()], note.number % _PLACES * _PLACE_BYTES)
        except OSError as error:
            # A file system that writes each change to a new place may have none. Then the older note stands.
            if error.errno not in OUT_OF_SPACE:
                raise
        self._last = note
        if is_synced:
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def begin_notes(files: Files, last: Note, cluster_id: str, file_bytes: int) -> EndNotes:
    """The notes of a start that goes on after `last`. The file must be there before the first checkpoint is."""
    notes = EndNotes(files, last._replace(file_bytes=file_bytes, cluster=digest_of(cluster_id)))
    if not last.has_log:
        try:
            notes.note(0, is_synced=True)
            files.sync_directory("")
        except BaseException:
            notes.close()
            raise
    return notes


def read(files: Files) -> Note | None:
    """The newest note; None if there is none that is whole."""
    try:
        file = files.open(NAME)
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        content = file.read_at(_PLACES * _PLACE_BYTES, 0)
    notes = (_note_in(content[at : at + _NOTE.size]) for at in range(0, len(content), _PLACE_BYTES))
    return max((note for note in notes if note is not None), default=None)


def _note_in(data: bytes) -> Note | None:
    if len(data) < _NOTE.size:
        return None
    magic, checksum, has_log, number, durable, file_bytes, run, cluster = _NOTE.unpack(data)
    if magic != _MAGIC or crc32c(data[_CHECKED_FROM:]) != checksum:
        return None
    return Note(number, durable, bool(has_log), file_bytes, run if any(run) else b"", cluster)


def is_same_run(note: Note, files: Files) -> bool:
    """Whether the machine has run without a break since the note, so that no written byte can be lost."""
    return note.run != b"" and note.run == files.run_id()


def digest_of(cluster_id: str) -> bytes:
    """The id of a cluster in a note."""
    return blake2b(cluster_id.encode(), digest_size=_CLUSTER_BYTES).digest()
