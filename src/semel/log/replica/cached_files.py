"""The files of a broker on a store: the disk may have only a part of each, and the store has the rest.

A file has its whole size on the disk, with holes. Bytes that a checkpoint in the store names may be freed, and are
fetched again when somebody reads them. Bytes that no checkpoint names yet are only on this disk, and are never freed.
Reading bytes that are not on the disk raises `NotHere`, so nobody takes a hole for records. At a start it is unknown
what an earlier process has left on the disk, so those bytes count as missing until their digest was compared. Threads
may read through this; only the event loop fetches and frees. This file must never wait for a store.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Final

from semel.log.replica.contents import Contents, Extent
from semel.log.storage.files import Buffer, File, Files, NotHere
from semel.log.storage.segment import Stretch

# If the cache is full, this share of it is freed at once, because finding the least recently read parts means looking
# at all of them.
_FREED_PART: Final = 10
# File systems free whole blocks.
_BLOCK_BYTES: Final = 4096

# How much of an extent is on the disk: all of it; perhaps some of it, from an earlier process; nothing.
HERE: Final = 2
UNSEEN: Final = 1
GONE: Final = 0


class Part:
    """An extent of a file, and how much of it is on the disk."""

    __slots__ = ("end", "extent", "is_doubted", "is_named", "read_at", "state")

    def __init__(self, extent: Extent, state: int, read_at: int) -> None:
        self.extent = extent
        self.end = extent.position + extent.size
        self.state = state
        # When it was last read, as a number that rises.
        self.read_at = read_at
        # Whether the newest checkpoint names it. If not, its object will be deleted.
        self.is_named = True
        # Whether a reader has met damage in it.
        self.is_doubted = False

    def is_same(self, extent: Extent) -> bool:
        """Whether this is the same part of the file, with the same bytes, wherever they lie in the store."""
        own = self.extent
        return own.position == extent.position and own.size == extent.size and own.digest == extent.digest


class Row:
    """The parts of one file, in their order; they never overlap."""

    __slots__ = ("named", "parts", "positions")

    def __init__(self, parts: Iterable[Part], named: Sequence[Extent] = ()) -> None:
        """`named` is the row in the newest checkpoint."""
        self.named = named
        self.parts = sorted(parts, key=lambda part: part.extent.position)
        self.positions = [part.extent.position for part in self.parts]

    def overlapping(self, size: int, position: int) -> list[Part]:
        """The parts that have some of these bytes."""
        first = max(bisect_right(self.positions, position) - 1, 0)
        if first < len(self.parts) and self.parts[first].end <= position:
            first += 1
        end = first
        while end < len(self.positions) and self.positions[end] < position + size:
            end += 1
        return self.parts[first:end]

    def covers(self, size: int, position: int) -> bool:
        """Whether the parts have all of these bytes."""
        at = position
        for part in self.overlapping(size, position):
            if part.extent.position > at:
                return False
            at = part.end
        return at >= position + size

    def part_like(self, extent: Extent) -> Part | None:
        """The part that is this extent."""
        number = bisect_right(self.positions, extent.position) - 1
        return self.parts[number] if number >= 0 and self.parts[number].is_same(extent) else None

    def to_free_with(self, part: Part, coming: Collection[int]) -> tuple[int, int]:
        """The range to free, so that the space of parts that are smaller than a block is freed as well. Parts that are
        being fetched (`coming`, by position) may have been written already.
        """
        begin, end = part.extent.position, part.end
        number = bisect_right(self.positions, begin) - 1
        for before in reversed(self.parts[:number]):
            is_near = before.end == begin and begin > part.extent.position - _BLOCK_BYTES
            if not is_near or before.state != GONE or before.extent.position in coming:
                break
            begin = before.extent.position
        for after in self.parts[number + 1 :]:
            is_near = after.extent.position == end and end < part.end + _BLOCK_BYTES
            if not is_near or after.state != GONE or after.extent.position in coming:
                break
            end = after.end
        return begin, end


class CachedFile:
    """One open file, as `File`."""

    __slots__ = ("_file", "_files", "_path")

    def __init__(self, files: "CachedFiles", path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        if position < self._files.end_of_parts(self._path):
            raise AssertionError(f"{self._path}: the store has what is at offset {position}, and that never changes")
        return self._file.write_at(buffers, position)

    def read_at(self, size: int, position: int) -> bytes:
        self._files.check(self._path, size, position)
        return self._file.read_at(size, position)

    def is_cached(self, size: int, position: int) -> bool:
        self._files.check(self._path, size, position)
        return self._file.is_cached(size, position)

    def holds(self, size: int, position: int) -> bool:
        return self._file.holds(size, position)

    def free(self, size: int, position: int) -> None:
        self._file.free(size, position)

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class CachedFiles:
    """A directory tree, as `Files`."""

    def __init__(self, disk: Files) -> None:
        # Reads holes as zeros.
        self.disk = disk
        # How many bytes of the store are on the disk.
        self.cached_bytes = 0
        self._rows: dict[str, Row] = {}
        # By path, the positions of the parts that are being fetched.
        self.coming: defaultdict[str, set[int]] = defaultdict(set)
        self._held: Counter[str] = Counter()
        self._clock = count(1)

    # -- what the disk has --------------------------------------------------------------------------------------

    def check(self, path: str, size: int, position: int) -> None:
        """Raise NotHere if these bytes are not on the disk; otherwise note that the caller is about to read them."""
        row = self._rows.get(path)
        if row is None:
            return
        now = next(self._clock)
        for part in row.overlapping(size, position):
            if part.state != HERE:
                raise NotHere(path, position, size)
            part.read_at = now

    def end_of_parts(self, path: str) -> int:
        """The end of the parts of this file that the store has."""
        row = self._rows.get(path)
        return 0 if row is None or not row.parts else row.parts[-1].end

    def lacking(self, stretches: Iterable[Stretch]) -> list[tuple[str, Part]]:
        """The parts that must be fetched before these parts of files can be read."""
        found: dict[int, tuple[str, Part]] = {}
        for path, position, size in stretches:
            row = self._rows.get(path)
            if row is not None:
                found.update((id(part), (path, part)) for part in row.overlapping(size, position) if part.state != HERE)
        return list(found.values())

    def all_lacking(self) -> list[Stretch]:
        """All parts that are not on the disk."""
        return [
            Stretch(path, part.extent.position, part.extent.size)
            for path, row in self._rows.items()
            for part in row.parts
            if part.state != HERE
        ]

    def note_here(self, path: str, extent: Extent) -> None:
        """Note that this extent was fetched; ignored if the file no longer has it."""
        row = self._rows.get(path)
        part = None if row is None else row.part_like(extent)
        if row is None or part is None:
            return
        if part.is_named:
            self.cached_bytes += extent.size * (part.state == GONE)
            part.state, part.read_at = HERE, next(self._clock)
        else:
            # The store does not have these bytes any longer, so they are only on this disk.
            self._put(path, Row((other for other in row.parts if other is not part), row.named))

    def is_here(self, path: str, extent: Extent) -> bool:
        """Whether this extent counts as being on the disk."""
        row = self._rows.get(path)
        part = None if row is None else row.part_like(extent)
        return part is not None and part.state == HERE

    def doubt(self, path: str, position: int) -> bool:
        """What a reader got from this place of a file is damaged: count all parts of the file as unseen, so that they
        are compared, and fetched if they are others. False if only this disk has the place, or if it was in doubt
        before: a disk that loses bytes again is not to be trusted.
        """
        row = self._rows.get(path)
        here = None if row is None else row.overlapping(1, position)
        if row is None or not here or here[0].is_doubted or not here[0].is_named:
            return False
        for part in row.parts:
            if part.is_named and part.state == HERE:
                part.state, part.is_doubted = UNSEEN, True
        return True

    def note_unseen(self, path: str, extent: Extent) -> None:
        """What the disk has of this extent is damaged."""
        row = self._rows.get(path)
        part = None if row is None else row.part_like(extent)
        if part is not None and part.is_named and part.state == HERE:
            part.state = UNSEEN

    # -- what the store has -------------------------------------------------------------------------------------

    def begin(self, contents: Contents) -> None:
        """Take over the contents of the store at the start of a broker; the files have their whole size."""
        self._rows, self.cached_bytes = {}, 0
        for path, extents in contents.files.items():
            file = self.disk.open(path)
            try:
                states = [UNSEEN if file.holds(extent.size, extent.position) else GONE for extent in extents]
            finally:
                file.close()
            parts = (Part(extent, state, 0) for extent, state in zip(extents, states, strict=True))
            self._put(path, Row(parts, extents))

    def name(self, contents: Contents) -> None:
        """Note that the store has exactly these contents now, and that the files on the disk have the same bytes,
        except for missing parts.
        """
        for path in {**self._rows, **contents.files}:
            before, named = self._rows.get(path, Row(())), contents.files.get(path, ())
            if before.named != named:
                row = Row((self._part(before, extent) for extent in named), named)
                # Before its parts change: what is no longer named does not count.
                self._forget(path)
                self._put(path, self._with_holes(path, row, before))

    def _part(self, before: Row, extent: Extent) -> Part:
        """How much of an extent is on the disk, according to the former parts. An unknown extent was written here a
        moment ago.
        """
        parts = before.overlapping(extent.size, extent.position)
        read_at = max((part.read_at for part in parts), default=next(self._clock))
        same = before.part_like(extent)
        if same is not None:
            return Part(extent, same.state, read_at)
        states = {part.state for part in parts}
        if not states - {HERE}:
            return Part(extent, HERE, read_at)
        # What is here of an extent that is not here as a whole still takes space.
        return Part(extent, GONE if states == {GONE} else UNSEEN, read_at)

    def _with_holes(self, path: str, row: Row, before: Row) -> Row:
        """The same row with the missing parts that no checkpoint names any more: a hole stays a hole."""
        holes = [
            part
            for part in before.parts
            if part.state != HERE and not row.covers(part.extent.size, part.extent.position)
        ]
        for part in holes:
            part.is_named = False
            if row.overlapping(part.extent.size, part.extent.position):
                raise AssertionError(f"{path}: what is not here at offset {part.extent.position} was named in part")
        return Row([*row.parts, *holes], row.named) if holes else row

    def unnamed(self, contents: Contents) -> list[Stretch]:
        """The parts that are not in these contents. Their objects will be deleted, so they must be on the disk before,
        and stay there.
        """
        unnamed = []
        for path, row in self._rows.items():
            named = contents.files.get(path, [])
            if row.named == named and len(row.parts) == len(named):
                continue
            covering = Row(Part(extent, GONE, 0) for extent in named)
            unnamed += [
                Stretch(path, part.extent.position, part.extent.size)
                for part in row.parts
                if not covering.covers(part.extent.size, part.extent.position)
            ]
        return unnamed

    def knows(self, path: str, extent: Extent) -> bool:
        """Whether the file is known to have exactly these bytes there, so that they need not be compared."""
        row = self._rows.get(path)
        return row is not None and row.part_like(extent) is not None

    def _put(self, path: str, row: Row) -> None:
        self._forget(path)
        if row.parts:
            self._rows[path] = row
            self.cached_bytes += _cached(row)

    def _forget(self, path: str) -> None:
        row = self._rows.pop(path, None)
        if row is not None:
            self.cached_bytes -= _cached(row)

    # -- freeing ------------------------------------------------------------------------------------------------

    def hold(self, paths: Iterable[str]) -> None:
        """Do not free these files until `release` was called the same number of times."""
        self._held.update(paths)

    def release(self, paths: Iterable[str]) -> None:
        """The opposite of `hold`."""
        self._held.subtract(paths)
        self._held = +self._held

    def choose(self, bytes_max: int) -> list[Stretch]:
        """Choose what to free so that the cache is no larger than this. The chosen parts count as freed from now on.
        None of them is being fetched: it may have been found on the disk, and would soon count as being there.
        """
        if self.cached_bytes <= bytes_max:
            return []
        known = [
            (part.read_at, path, part.extent.position, part)
            for path, row in self._rows.items()
            if path not in self._held
            for part in row.parts
            if part.state != GONE and part.is_named and part.extent.position not in self.coming.get(path, ())
        ]
        chosen = []
        for _, path, _, part in sorted(known):
            if self.cached_bytes <= bytes_max - bytes_max // _FREED_PART:
                break
            part.state = GONE
            self.cached_bytes -= part.extent.size
            begin, end = self._rows[path].to_free_with(part, self.coming.get(path, ()))
            chosen.append(Stretch(path, begin, end - begin))
        return chosen

    # -- as Files -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> CachedFile:
        return CachedFile(self, path, self.disk.open(path, create=create))

    def names(self, path: str) -> list[str]:
        return self.disk.names(path)

    def make_directory(self, path: str) -> None:
        self.disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self.disk.sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.disk.rename(source, target)

    def remove(self, path: str) -> None:
        self._forget(path)
        self.disk.remove(path)

    def remove_directory(self, path: str) -> None:
        self.disk.remove_directory(path)

    def run_id(self) -> bytes:
        return self.disk.run_id()

    def lock(self) -> None:
        self.disk.lock()

    def describe(self, path: str) -> str:
        return self.disk.describe(path)

    def close(self) -> None:
        self.disk.close()


def _cached(row: Row) -> int:
    return sum(part.extent.size for part in row.parts if part.state != GONE and part.is_named)
