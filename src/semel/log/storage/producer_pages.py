"""The pages of producers on disk, for logs with very many producers: a checkpoint then writes only the pages that are
new since the one before it, and names the place of each.

A file has one page behind the other, and is only added to. A page that was replaced leaves its bytes behind; when less
than half of a file is still needed, its pages are written again, and the file goes. So all files together are at most
twice as large as the pages, beside the file that is being written. A crash leaves bytes that no checkpoint names; the
next start begins another file and removes those that are not named.

Only the thread that writes checkpoints calls `put`. Nothing here may change a page.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from semel.log.core.producer_table import Page, Place
from semel.log.storage.files import Buffer, File, Files, sync
from semel.log.storage.journal import Damaged
from semel.wire.checksum import crc32c

DIRECTORY: Final = "producers"
# A checkpoint keeps this much in itself: another file would cost one more sync.
INLINE_BYTES_MAX: Final = 4 * 1024 * 1024
FILE_BYTES: Final = 64 * 1024 * 1024
# Pages in one write.
_PAGES_AT_ONCE: Final = 100

# The head of a page: how many producers, the bytes of their states, and a time before which none was heard.
_PAGE: Final = Struct("<HIq")
_CHECKSUM: Final = Struct("<I")
# The file, the place of the page in it, and its size with the checksum.
_PLACE: Final = Struct("<III")


class ProducerPages:
    """The files of pages of one data directory."""

    def __init__(self, files: Files, inline_bytes_max: int = INLINE_BYTES_MAX, file_bytes: int = FILE_BYTES) -> None:
        self._files = files
        self._inline_bytes_max = inline_bytes_max
        self._file_bytes = file_bytes
        # The number of the last file, and how much of it is written; 0 if the next page begins another one.
        self._file = self._end = 0
        self._is_dirty = False

    def put(self, pages: list[Page]) -> bool:
        """Write the pages that have no place yet, and give them one; False if so few belong into the checkpoint."""
        if sum(page_bytes(page) for page in pages) <= self._inline_bytes_max:
            for page in pages:
                page.place = None
            return False
        self._empty_wasteful_files(pages)
        new = [page for page in pages if page.place is None]
        for first in range(0, len(new), _PAGES_AT_ONCE):
            self._write(new[first : first + _PAGES_AT_ONCE])
        self._sync()
        return True

    def unneeded(self, pages: Iterable[Page]) -> list[str]:
        """The files in which none of these pages is. They may be removed when no checkpoint names them."""
        needed = {page.place.file for page in pages if page.place is not None}
        if self._file not in needed:
            # Nothing may be added to a file that goes.
            self._leave_file()
        return [path_of(number) for number in numbers_in(self._files) if number not in needed]

    def _empty_wasteful_files(self, pages: list[Page]) -> None:
        """Take their places from pages in files of which less than half is needed."""
        needed: Counter[int] = Counter()
        for page in pages:
            if page.place is not None:
                needed[page.place.file] += page.place.size
        if self._end:
            needed[self._file] += 0
        wasteful = {number for number, size in needed.items() if 2 * size < self._size_of(number)}
        for page in pages:
            if page.place is not None and page.place.file in wasteful:
                page.place = None
        if self._file in wasteful:
            self._leave_file()

    def _size_of(self, number: int) -> int:
        file = self._files.open(path_of(number))
        try:
            return file.size()
        finally:
            file.close()

    def _leave_file(self) -> None:
        self._sync()
        self._end = 0

    def _write(self, pages: list[Page]) -> None:
        if self._end >= self._file_bytes:
            self._leave_file()
        number = self._file
        if self._end == 0:
            # The names are read only now, because now nobody else writes to the directory.
            number = max(self._file, *numbers_in(self._files), 0) + 1
            self._files.make_directory(DIRECTORY)
        file = self._files.open(path_of(number), create=True)
        # Only now is it certain that there is this file, which will be synced.
        self._file, self._is_dirty = number, True
        try:
            buffers, places = [], []
            end = self._end
            for page in pages:
                content = buffers_of(page)
                place = Place(self._file, end, _CHECKSUM.size + sum(map(len, content)))
                buffers += [_CHECKSUM.pack(_checksum(place, content)), *content]
                places.append(place)
                end += place.size
            with cut_on_error(file, self._end):
                file.write_at(buffers, self._end)
        finally:
            file.close()
        self._end = end
        for page, place in zip(pages, places, strict=True):
            page.place = place

    def _sync(self) -> None:
        if self._is_dirty:
            sync(self._files, [path_of(self._file)], [DIRECTORY, ""])
            self._is_dirty = False


@contextlib.contextmanager
def cut_on_error(file: File, size: int) -> Iterator[None]:
    """If a write fails, cut the file to this size again: a half of the write may have taken the last space."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise


def path_of(number: int) -> str:
    return f"{DIRECTORY}/{number:020d}.pages"


def numbers_in(files: Files) -> list[int]:
    """The numbers of the files of pages in a directory."""
    if DIRECTORY not in files.names(""):
        return []
    stems = (name.partition(".pages") for name in files.names(DIRECTORY))
    return sorted(int(stem) for stem, dot, rest in stems if dot and not rest and stem.isdecimal())


def page_bytes(page: Page) -> int:
    return _PAGE.size + len(page.ids) + len(page.sizes) + len(page.states)


def buffers_of(page: Page) -> list[bytes]:
    """A page, in four buffers that are not copied."""
    return [_PAGE.pack(len(page), len(page.states), page.oldest_ms), page.ids, page.sizes, page.states]


def pages_from(packed: memoryview) -> Iterator[Page]:
    """The pages in these bytes, one behind the other."""
    at = 0
    while at < len(packed):
        count, state_bytes, oldest_ms = _PAGE.unpack_from(packed, at)
        ids = at + _PAGE.size
        sizes = ids + count * Page.ID_BYTES
        states = sizes + count
        at = states + state_bytes
        yield Page(bytes(packed[ids:sizes]), bytes(packed[sizes:states]), bytes(packed[states:at]), oldest_ms)


def pack_places(pages: Iterable[Page]) -> bytes:
    """The places of these pages, all of which have one."""
    return b"".join(_PLACE.pack(*page.place) for page in pages if page.place is not None)


def pages_at(places: memoryview, files: Files) -> Iterator[Page]:
    """Read the pages at these places; `Damaged` if one is not there."""
    opened: dict[int, File] = {}
    try:
        for fields in _PLACE.iter_unpack(places):
            place = Place(*fields)
            file = opened.get(place.file)
            if file is None:
                file = opened[place.file] = files.open(path_of(place.file))
            data = memoryview(file.read_at(place.size, place.position))
            content = data[_CHECKSUM.size :]
            if len(data) < place.size or _CHECKSUM.unpack_from(data)[0] != _checksum(place, [content]):
                where = files.describe(path_of(place.file))
                raise Damaged(f"{where}: no page of producers at offset {place.position}")
            (page,) = pages_from(content)
            page.place = place
            yield page
    except FileNotFoundError as error:
        raise Damaged(f"{files.describe(DIRECTORY)}: a file of producers is missing: {error}") from error
    finally:
        for file in opened.values():
            file.close()


def _checksum(place: Place, content: Iterable[Buffer]) -> int:
    """It covers the place of a page, too, so that none is taken for another."""
    checksum = crc32c(_PLACE.pack(*place))
    for part in content:
        checksum = crc32c(part, checksum)
    return checksum
