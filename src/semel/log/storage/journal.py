"""The journal: a change is durable when its entry in the journal is durable.

Every change of a partition or a coordinator is one entry, and the entries follow one another, so that one `fdatasync`
makes all changes since the last one durable. The journal is a chain of files of equal size. When a checkpoint has made
old files superfluous, the journal uses them again under new names: overwriting cached pages takes at most a tenth of
the time that fresh pages take, needs no blocks from a disk that may be full, and does not change the size of a file,
which `fdatasync` would have to write.

A position in the journal is the number of bytes since its very first entry; the name of a file is the position at which
it begins. An entry is a head of 32 bytes and a payload:

     0   4  magic
     4   4  size of head and payload
     8   4  CRC-32C of what follows
    12   1  kind
    13   3  the life of the log in which it was written
    16   8  the entry's own position
    24   8  the position up to which the journal was known to be durable when this entry was written
    32      payload

The entry's own position distinguishes it from entries that an earlier use of a recycled file left behind. The life
distinguishes it from entries of an earlier life of the log. Every start begins a new life, which appends where recovery
stopped reading. After that place there may still be unacknowledged entries of the life before, at positions that the
new life uses again.

Recovery reads up to the first place without a valid entry. If the machine stopped there in the middle of a write,
nothing after that place was ever acknowledged. But the disk has lost bytes that it had synced if a valid entry further
on says that the journal was durable beyond that place (its other position), or if the note beside the journal says so
(`storage.end_notes`). If the machine has run without a break since, not even a byte that was only written can be gone:
then it is proof as well if there is any valid entry further on, if the next file is missing, or if a file is shorter
than it was made. Going on would lose acknowledged records silently, so recovery raises `Lost`, with the file and the
offset.

The journal does not sync by itself. `begin_sync` returns a `SyncJob`, whose `run` may be called in any thread, and then
`finish_sync` notes the result. A failed sync is final: the kernel may have dropped the pages that it could not write,
so a second sync would succeed without having written anything.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from semel.log.core.values import value
from semel.log.storage import end_notes
from semel.log.storage.end_notes import NOTHING_KNOWN, EndNotes, Note
from semel.log.storage.files import Buffer, File, Files
from semel.wire.checksum import crc32c

DIRECTORY: Final = "journal"
FILE_BYTES: Final = 16 * 1024 * 1024
# Superfluous files that are kept for use under a new name. If there are more, they are removed.
SPARE_FILES_MAX: Final = 8

_HEAD: Final = struct.Struct("<4sIIIQQ")
# The same in two pieces: the checksum covers the second one and everything after it.
_UNCHECKED: Final = struct.Struct("<4sII")
_CHECKED: Final = struct.Struct("<IQQ")
_MAGIC: Final = b"sml1"
HEAD_BYTES: Final = _HEAD.size
_CHECKED_FROM: Final = 12
_KIND_ROLL: Final = 255
# Kind and life share four bytes.
_KIND_BITS: Final = 8
_LIVES: Final = 1 << 24
_SPARE: Final = "spare-"


class Damaged(Exception):
    """The data on disk is damaged; the one-line message says where."""


class Corrupt(Damaged):
    """Records that are known to be damaged: a reader is told so each time, and nobody looks again."""


class StillInJournal(Damaged):
    """The disk has lost what the journal has: the next start writes it again."""

    def __init__(self, lost: Damaged, where: str) -> None:
        super().__init__(f"{lost}, but the journal in {where} has them: start again")


class Lost(Damaged):
    """Files lack data that was acknowledged. A person may decide to go on without it; `paths` are the files to keep a
    copy of before that.
    """

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


@value
class SyncJob:
    """The files to sync so that everything before `target` is durable, and where to note that it is."""

    target: int
    unsynced: tuple[File, ...]
    names_changed: bool
    files: Files
    notes: EndNotes | None

    def run(self) -> None:
        for file in self.unsynced:
            file.sync()
        has_new_file = self.names_changed
        if has_new_file:
            self.files.sync_directory(DIRECTORY)
        if self.notes is not None:
            # Before any answer is sent, so that no answer can go further than the note.
            self.notes.note(self.target, is_synced=has_new_file)


class Bookmark(NamedTuple):
    """A place in the journal, for a checkpoint. The entries after it were written in this life."""

    life: int
    # The position at which the file begins. It must be stored, because a crash during a roll leaves stray files.
    file: int
    position: int


@value
class JournalEntry:
    """An entry that was read. `end` is the position after it."""

    position: int
    end: int
    kind: int
    payload: memoryview


class Misfit(Damaged):
    """An entry with intact bytes that cannot be applied; the message says where it is, and why it cannot."""

    def __init__(self, files: Files, entry: JournalEntry, name: str, why: object) -> None:
        start = max(start for start in starts_of(files) if start <= entry.position)
        place = f"{files.describe(path_of(start))}:{entry.position - start}"
        super().__init__(f"{place}: entry at position {entry.position}, {name}: {why}")
        self.entry = entry
        self.name = name


class Sight(NamedTuple):
    """An entry that was found in a file. Whether it is still part of the journal is not known."""

    entry: JournalEntry
    life: int
    # The position up to which the journal was known to be durable when the entry was written.
    durable: int
    is_roll: bool
    # How many bytes without a valid entry precede it.
    skipped: int


class Entries(Protocol):
    """A journal as the log sees it: the one in this module, or one in a store of objects."""

    @property
    def end(self) -> int:
        """The position after the last entry."""

    @property
    def synced(self) -> int:
        """The position before which everything is durable."""

    def append(self, kind: int, parts: list[Buffer]) -> int:
        """Add an entry; return the position after it. After an OSError nothing was appended."""

    def mark(self) -> object:
        """The place after the last entry, for a checkpoint."""

    def recycle(self, below: int) -> None:
        """Free the files whose entries all lie before position `below`: they will not be read again."""

    def close(self) -> None:
        """Close the open files."""


class Journal:
    """The journal of a running broker. It begins a new file at `position`; `read` reads the entries before."""

    def __init__(
        self, files: Files, life: int, position: int, file_bytes: int = FILE_BYTES, notes: EndNotes | None = None
    ) -> None:
        self._files = files
        self._notes = notes
        self._life = life
        self._life_bits = life % _LIVES << _KIND_BITS
        self._file_bytes = file_bytes
        files.make_directory(DIRECTORY)
        self._spares = [name for name in files.names(DIRECTORY) if name.startswith(_SPARE)]
        starts = starts_of(files)
        # The positions at which files begin, oldest first; the last one is being written.
        self._starts = [start for start in starts if start < position]
        for start in starts:
            if start > position:
                # A file that was begun shortly before a crash. None of its entries is part of the journal.
                self._discard(start)
        self._capacity = file_bytes
        self._start = position
        self.end = position
        self.synced = position
        self._unsynced: list[File] = []
        self._names_changed = True
        self._file = self._open_next(position, file_bytes)
        self._starts.append(position)

    def mark(self) -> Bookmark:
        """The place after the last entry."""
        return Bookmark(self._life, self._start, self.end)

    def append(self, kind: int, parts: list[Buffer]) -> int:
        """Write an entry; return the position after it. After an OSError nothing was appended."""
        size = HEAD_BYTES + sum(map(len, parts))
        if self.end - self._start + size + HEAD_BYTES > self._capacity:
            self._roll(size)
        self._write(kind, parts, size)
        self.end += size
        return self.end

    def begin_sync(self) -> SyncJob:
        """The job that makes everything appended so far durable."""
        job = SyncJob(self.end, (*self._unsynced, self._file), self._names_changed, self._files, self._notes)
        self._names_changed = False
        return job

    def finish_sync(self, job: SyncJob) -> None:
        """The job ran without an error."""
        self.synced = max(self.synced, job.target)
        for file in job.unsynced:
            if file in self._unsynced and file is not job.unsynced[-1]:
                self._unsynced.remove(file)
                file.close()

    def recycle(self, below: int) -> None:
        """Free the files whose entries all lie before position `below`: a durable checkpoint has made them
        superfluous.
        """
        while len(self._starts) > 1 and self._starts[1] <= below:
            self._discard(self._starts[0])
            del self._starts[0]

    def _discard(self, start: int) -> None:
        """Keep the file that begins at `start` as a spare, or remove it if there are enough spares. If somebody else
        has removed it, that is all right, too.
        """
        name = _name(start)
        with contextlib.suppress(FileNotFoundError):
            if len(self._spares) < SPARE_FILES_MAX:
                spare = f"{_SPARE}{name}"
                self._files.rename(f"{DIRECTORY}/{name}", f"{DIRECTORY}/{spare}")
                self._spares.append(spare)
            else:
                self._files.remove(f"{DIRECTORY}/{name}")

    def close(self) -> None:
        for file in (*self._unsynced, self._file):
            file.close()

    def _write(self, kind: int, parts: list[Buffer], size: int) -> None:
        checked_part = _CHECKED.pack(kind | self._life_bits, self.end, self.synced)
        checksum = crc32c(checked_part)
        for part in parts:
            checksum = crc32c(part, checksum)
        self._file.write_at([_UNCHECKED.pack(_MAGIC, size, checksum) + checked_part, *parts], self.end - self._start)

    def _roll(self, size: int) -> None:
        """Go on in another file. It is created before any entry refers to it, so that nothing changes if the disk is
        full.
        """
        start = self.end + HEAD_BYTES
        capacity = max(self._file_bytes, size + HEAD_BYTES)
        following = self._open_next(start, capacity)
        try:
            self._write(_KIND_ROLL, [], HEAD_BYTES)
        except OSError:
            following.close()
            # If that fails too, the file stays unused until the next start.
            with contextlib.suppress(OSError):
                self._discard(start)
            raise
        self._starts.append(start)
        self._unsynced.append(self._file)
        self._names_changed = True
        self._file = following
        self._capacity = capacity
        self._start = self.end = start

    def _open_next(self, start: int, capacity: int) -> File:
        name = _name(start)
        path = f"{DIRECTORY}/{name}"
        # An earlier start that failed early may have left the file, and the checkpoint may name a position in it.
        is_new = name not in self._files.names(DIRECTORY)
        spare = self._spare_at(path) if is_new and capacity == self._file_bytes else None
        file = spare or self._files.open(path, create=True)
        try:
            file.allocate(capacity)
        except OSError:
            file.close()
            if is_new:
                self._files.remove(path)
            raise
        return file

    def _spare_at(self, path: str) -> File | None:
        """A spare file under this path, if there is one. Somebody who needs space may have removed spare files, or put
        something else there; and after a crash a file may begin where one began that is a spare already, and take its
        name.
        """
        while self._spares:
            spare = f"{DIRECTORY}/{self._spares[-1]}"
            try:
                file = self._files.open(spare)
            except (FileNotFoundError, IsADirectoryError):
                self._spares.pop()
                continue
            try:
                self._files.rename(spare, path)
            except OSError:
                file.close()
                raise
            self._spares.pop()
            return file
        return None


def is_untouched(files: Files) -> bool:
    """Whether nothing was ever written to the journal."""
    starts = starts_of(files)
    if starts != [0]:
        return not starts
    return _entry_at(memoryview(_content(files, f"{DIRECTORY}/{_name(0)}")), 0, 0, None) is None


def read(files: Files, bookmark: Bookmark, note: Note = NOTHING_KNOWN) -> Iterator[JournalEntry]:
    """The valid entries from the bookmark on; `Lost` in the end if the note or later entries prove that there were
    more.
    """
    life, start, position = bookmark
    starts = starts_of(files)
    if start not in starts:
        if position == 0 and not starts and not note.has_log:
            # After a crash the very first checkpoint was durable, and the directory of the journal was not.
            return
        raise Lost(f"{files.describe(path_of(start))}: missing, the checkpoint names it{missing_after(note, position)}")
    while True:
        path = f"{DIRECTORY}/{_name(start)}"
        content = _content(files, path)
        view = memoryview(content)
        while (entry := _entry_at(view, position - start, position, life)) is not None:
            position = entry.end
            if entry.kind == _KIND_ROLL:
                break
            yield entry
        if entry is None or position not in starts:
            _refuse_loss(files, path, content, Bookmark(life, start, position), note)
            return
        start = position


def starts_of(files: Files) -> list[int]:
    """The positions at which the files of the journal begin, in order."""
    return [start for start in map(_start_of, files.names(DIRECTORY)) if start is not None]


def look_into(files: Files, start: int) -> Iterator[Sight]:
    """The valid entries in the file that begins at `start`, without damaged parts, and only those of the same life as
    the first.
    """
    content = _content(files, path_of(start))
    view = memoryview(content)
    life: int | None = None
    at = last_end = 0
    read_again_at = -1
    while at >= 0:
        entry = _entry_at(view, at, start + at, life)
        if entry is None and at == last_end != read_again_at:
            # A broker may be writing to this file, and may have appended an entry meanwhile.
            read_again_at = at
            content = _content(files, path_of(start))
            view = memoryview(content)
            continue
        if entry is None:
            at = content.find(_MAGIC, at + 1)
            continue
        _, _, _, kind_and_life, _, durable = _HEAD.unpack_from(content, at)
        life = kind_and_life >> _KIND_BITS
        is_roll = entry.kind == _KIND_ROLL
        yield Sight(entry, life, durable, is_roll, at - last_end)
        if is_roll:
            return
        at = last_end = entry.end - start


def path_of(start: int) -> str:
    """The file of the journal that begins at this position."""
    return f"{DIRECTORY}/{_name(start)}"


def missing_after(note: Note, position: int) -> str:
    """How many bytes are missing at least if the journal ends at this position, as the end of a sentence."""
    missing = note.durable - position
    return f"; at least {missing} bytes of acknowledged changes after position {position} are lost" * (missing > 0)


def _refuse_loss(files: Files, path: str, content: bytes, end: Bookmark, note: Note) -> None:
    """Raise `Lost` if the journal went on after `end`, which lies in the file at `path` or after it."""
    offset = end.position - end.file
    where, lost = files.describe(path), missing_after(note, end.position)
    starts = starts_of(files)
    kept = tuple(map(path_of, starts))
    is_same_run = end_notes.is_same_run(note, files)
    goes_on = _entry_at(memoryview(content), offset - HEAD_BYTES, end.position - HEAD_BYTES, end.life)
    if goes_on is not None and goes_on.kind == _KIND_ROLL and (is_same_run or lost):
        # After a loss of power its name may be gone, if it was not durable yet; then nothing in it was acknowledged.
        raise Lost(f"{files.describe(path_of(end.position))}: missing, {_name(end.file)} goes on there{lost}", kept)
    if is_same_run and len(content) < note.file_bytes:
        raise Lost(f"{where}: cut to {len(content)} bytes, was made with {note.file_bytes}{lost}", kept)
    if _proof_beyond(content, end.file, end, is_same_run):
        raise Lost(f"{where}: no valid entry at offset {offset}, though the journal was durable beyond it{lost}", kept)
    for later in (start for start in starts if start > end.position):
        if _proof_beyond(_content(files, path_of(later)), later, end, is_same_run):
            raise Lost(
                f"{where}: the entries end at offset {offset}, "
                f"though {_name(later)} shows that the journal was durable beyond it{lost}",
                kept,
            )
    if lost:
        raise Lost(f"{where}: the entries end at offset {offset}, though the journal was durable beyond it{lost}", kept)


def _proof_beyond(content: bytes, start: int, end: Bookmark, is_same_run: bool) -> bool:
    """Whether an entry after `end`, in the file that begins at `start`, proves that there were entries at `end`: it
    says that more than `end` was durable, or the machine cannot have lost what was written before it.
    """
    view = memoryview(content)
    at = content.find(_MAGIC, max(end.position - start + 1, 0))
    while at >= 0:
        entry = _entry_at(view, at, start + at, end.life)
        if entry is not None and (is_same_run or _HEAD.unpack_from(content, at)[5] > end.position):
            return True
        at = content.find(_MAGIC, at + 1)
    return False


def strays(files: Files, position: int) -> list[str]:
    """The files with entries that begin after `position`, where the journal ends: a loss of power took what was before
    them.
    """
    later = [start for start in starts_of(files) if start > position]
    return [
        path_of(start)
        for start in later
        if _entry_at(memoryview(_content(files, path_of(start))), 0, start, None) is not None
    ]


def _entry_at(content: memoryview, offset: int, position: int, life: int | None) -> JournalEntry | None:
    """The valid entry at `offset` of a file; None if there is none with this position and of this life."""
    if offset < 0 or offset + HEAD_BYTES > len(content):
        return None
    magic, size, checksum, kind_and_life, own_position, _ = _HEAD.unpack_from(content, offset)
    if magic != _MAGIC or own_position != position or size < HEAD_BYTES or offset + size > len(content):
        return None
    if life is not None and kind_and_life >> _KIND_BITS != life % _LIVES:
        return None
    if crc32c(content[offset + _CHECKED_FROM : offset + size]) != checksum:
        return None
    kind = kind_and_life % (1 << _KIND_BITS)
    return JournalEntry(position, position + size, kind, content[offset + HEAD_BYTES : offset + size])


def _content(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(file.size(), 0)
    finally:
        file.close()


def _name(start: int) -> str:
    return f"{start:016x}"


def _start_of(name: str) -> int | None:
    """The position at which the file of this name begins; None for spares and other files."""
    try:
        return int(name, 16) if len(name) == 16 else None
    except ValueError:
        return None
