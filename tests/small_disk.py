"""A disk in memory that is full when its files have so many bytes together."""

import errno
import os
from collections.abc import Sequence

from semel.log.storage.files import Buffer, File, MemoryFile, MemoryFiles


class SmallDisk(MemoryFiles):
    """A disk that takes no more than `bytes_max` in all its files."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes_max = bytes_max

    def open(self, path: str, *, create: bool = False) -> File:
        return SmallDiskFile(super().open(path, create=create), self)

    @property
    def bytes_taken(self) -> int:
        return sum(map(len, self._contents.values()))

    def take(self, more_bytes: int) -> None:
        if more_bytes > 0 and self.bytes_taken + more_bytes > self.bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SmallDiskFile(MemoryFile):
    __slots__ = ("_disk",)

    def __init__(self, file: MemoryFile, disk: SmallDisk) -> None:
        super().__init__(file.data)
        self._disk = disk

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        self._disk.take(position + sum(map(len, buffers)) - self.size())
        return super().write_at(buffers, position)

    def allocate(self, size: int) -> None:
        self._disk.take(size - self.size())
        super().allocate(size)
