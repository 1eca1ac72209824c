"""Puts files aside that nothing in the log claims, and never removes one on the word of a start.

A crash leaves such files: a segment that was to be removed, or one that no durable entry mentions. But so does a
checkpoint that is too old, or a part of a backup, and then the file may be the only copy of its records. So a start
moves it to `set-aside/` under the time of the start, with its path, from where a person can put it back. The running
broker removes it after `KEPT_MS`, and `semel repair` shows the files and can remove them earlier.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from semel.log.storage.files import Files

DIRECTORY: Final = "set-aside"
# As long as records are kept by default: by then every consumer has missed a record that is not there.
KEPT_MS: Final = 7 * 86_400_000
_STAMP: Final = "%Y-%m-%dT%H-%M-%SZ"
_STAMP_CHARACTERS: Final = 20
_COPIED_BYTES: Final = 1024 * 1024


class Kept(NamedTuple):
    """A file that was put aside."""

    path: str
    size: int


class Aside:
    """What one start puts aside."""

    def __init__(self, files: Files, time_of_day: Callable[[], float] = time.time) -> None:
        self._files = files
        self._time_of_day = time_of_day
        self._directory: str | None = None
        # The files that were put aside, by the paths that they had.
        self.paths: list[str] = []

    def move(self, paths: Iterable[str]) -> None:
        """Put these files aside. The directories in which they were may be removed afterwards."""
        changed: dict[str, None] = {}
        for path in paths:
            target = self._place_for(path)
            self._files.rename(path, target)
            changed[_above(target)] = changed[_above(path)] = None
        for directory in changed:
            self._files.sync_directory(directory)

    def copy(self, path: str, position: int = 0) -> None:
        """Put a copy of a file aside, or of what it has from `position` on, which is durable when this returns."""
        target = self._place_for(f"{path}.from-{position}" if position else path)
        source, copy = self._files.open(path), self._files.open(target, create=True)
        with contextlib.closing(source), contextlib.closing(copy):
            written = 0
            while piece := source.read_at(_COPIED_BYTES, position + written):
                written += copy.write_at([piece], written)
            copy.sync()
        self._files.sync_directory(_above(target))

    def _place_for(self, path: str) -> str:
        """Where the file with this path goes; the directories are made, and their names are durable."""
        if self._directory is None:
            self._directory = self._unused_directory()
        target = f"{self._directory}/{path}"
        above = _above(target)
        self._files.make_directory(above)
        while above:
            above = _above(above)
            self._files.sync_directory(above)
        self.paths.append(path)
        return target

    def _unused_directory(self) -> str:
        stamp = time.strftime(_STAMP, time.gmtime(self._time_of_day()))
        name, number = stamp, 1
        while name in self._files.names(DIRECTORY):
            number += 1
            name = f"{stamp}-{number}"
        return f"{DIRECTORY}/{name}"


def kept(files: Files) -> Iterator[Kept]:
    """All files that were put aside."""
    return _below(files, DIRECTORY)


def kept_before(files: Files, now_ms: int) -> Iterator[Kept]:
    """The files that were put aside longer than `KEPT_MS` ago."""
    limit = time.strftime(_STAMP, time.gmtime(max(now_ms - KEPT_MS, 0) / 1000))
    for name in files.names(DIRECTORY):
        if _is_stamp(name) and name[:_STAMP_CHARACTERS] < limit:
            yield from _below(files, f"{DIRECTORY}/{name}")


def remove(files: Files, some: Iterable[Kept]) -> None:
    """Remove files that were put aside, and the directories that are empty then."""
    for path, _ in some:
        files.remove(path)
        above = _above(path)
        while above and not files.names(above):
            files.remove_directory(above)
            above = _above(above)


def _is_stamp(name: str) -> bool:
    try:
        time.strptime(name[:_STAMP_CHARACTERS], _STAMP)
    except ValueError:
        return False
    return True


def _below(files: Files, directory: str) -> Iterator[Kept]:
    for name in files.names(directory):
        path = f"{directory}/{name}"
        if files.names(path):
            yield from _below(files, path)
            continue
        # An empty directory cannot be opened.
        with contextlib.suppress(OSError):
            file = files.open(path)
            with contextlib.closing(file):
                yield Kept(path, file.size())


def _above(path: str) -> str:
    return path.rpartition("/")[0]
