"""The interface between semel and the disk: all reads from and writes to a data directory go through this module.

Nothing above this file calls `os` for IO. So a broker can run wholly in memory (`MemoryFiles`, for `semel.broker()`
without a directory), and a faulty double (`semel.testing.faulty`) can crash, tear, lose or refuse every single call.
There are few operations on purpose: reads and writes at positions, no append mode and no cursor, so that the next write
simply overwrites one that failed half-way.

This module must never retry, cache or interpret: an error of the operating system is raised as it is, as `OSError`.
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

from semel.log.storage.holes import punch_hole
from semel.log.storage.tree_lock import TreeLock

Buffer = bytes | bytearray | memoryview

# The disk or this user's quota is full. Unlike other errors this one passes when space is made.
OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
# The process, or the system, may open no more files now. Only opening fails for this reason, never a write or a sync.
OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
# After these errors, which end by themselves or when the operator does something, a broker tries again.
TRIED_AGAIN: Final = OUT_OF_SPACE | OUT_OF_FILES

# A writev takes at most this many buffers (1024 on Linux and macOS); a longer list is joined.
BUFFERS_PER_CALL_MAX = 1024

# macOS has no fdatasync, and its fsync leaves the bytes in the cache of the drive. This command of fcntl flushes it.
_F_FULLFSYNC: Final = 51
# The errors of file systems on macOS without that command: network drives, FUSE, ZFS.
_NO_FULL_SYNC: Final = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY))
_ZEROS: Final = bytes(1024 * 1024)
# Linux: another id for each start of the machine.
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class NotHere(Exception):
    """This part of a file is not on this disk, but in a store. It can be fetched from there, and then be read."""

    def __init__(self, path: str, position: int, size: int) -> None:
        super().__init__(f"{path}: {size} bytes at offset {position} are not on this disk")
        self.path = path
        self.position = position
        self.size = size


class File(Protocol):
    """One open file, read and written at positions."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all of `buffers`, one after the other, at `position`; return how many bytes that was."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends. NotHere if they are in a store."""
        ...

    def is_cached(self, size: int, position: int) -> bool:
        """Whether this can probably be read without waiting for the disk. NotHere if it is in a store."""
        ...

    def holds(self, size: int, position: int) -> bool:
        """Whether the disk has any of these bytes; False if nothing was ever written there, or the space was freed."""
        ...

    def free(self, size: int, position: int) -> None:
        """Give the space of these bytes back to the disk. They read as zeros from then on, and the size of the file
        stays the same. OSError with EOPNOTSUPP if the file system cannot do that.
        """
        ...

    def sync(self) -> None:
        """Return when everything written so far would survive a power failure (fdatasync)."""
        ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserve disk space for the first `size` bytes, so that writing them cannot fail for lack of space."""
        ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Files(Protocol):
    """One directory tree. Paths are relative, with `/` between their parts."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`. Creating does not sync the directory."""
        ...

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty if there is no such directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, if they do not exist."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory (files made, renamed, removed) would survive a power failure."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename `source` to `target`, replacing it."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def lock(self) -> None:
        """Lock the tree for this process, or raise BlockingIOError. `close` or the end of the process releases it."""
        ...

    def run_id(self) -> bytes:
        """16 bytes that name this directory and the run of the machine, or none if they are unknown. While they stay
        the same, no byte that was written can be lost with the page cache.
        """
        ...

    def describe(self, path: str) -> str:
        """The full path, for messages."""
        ...

    def close(self) -> None: ...


class DiskFile:
    """A file on the real disk."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(map(len, buffers))
        if len(buffers) <= BUFFERS_PER_CALL_MAX:
            count = os.pwritev(self._descriptor, buffers, position)
            if count == total:  # the one case that ever happens on a healthy disk
                return total
        self._write_the_rest(b"".join(buffers), position)
        return total

    def _write_the_rest(self, data: bytes, position: int) -> None:
        """Write `data` in as many calls as needed: a short write is legal, and on a full disk it precedes ENOSPC."""
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view, position)
            view = view[count:]
            position += count

    def read_at(self, size: int, position: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        count = len(data)
        while count < size:
            data = os.pread(self._descriptor, size - count, position + count)
            if not data:
                break
            parts.append(data)
            count += len(data)
        return b"".join(parts)

    def is_cached(self, size: int, position: int) -> bool:
        if not hasattr(os, "RWF_NOWAIT"):
            return True
        # The kernel reads ahead in long stretches, so if both ends are cached, the bytes between them are as well.
        probe = bytearray(1)
        try:
            for place in (position, position + size - 1):
                os.preadv(self._descriptor, [probe], place, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # Some file systems cannot tell. Then the bytes are read without knowing.
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def holds(self, size: int, position: int) -> bool:
        if not hasattr(os, "SEEK_DATA"):
            return True
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA) < position + size
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False

    def free(self, size: int, position: int) -> None:
        punch_hole(self._descriptor, size, position)

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            _sync_fully(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
            return
        end = self.size()
        while end < size:
            end += self.write_at([_ZEROS[: size - end]], end)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class DiskFiles:
    """A directory tree on the real disk."""

    def __init__(self, root: Path | str) -> None:
        # A program may change its working directory while its broker runs.
        self._root = str(Path(root).absolute())
        self._lock = TreeLock()
        self._make_root()

    def _make_root(self) -> None:
        """Make the root and the missing directories above it, and sync their names against a power failure."""
        missing = []
        path = self._root
        while not os.path.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        os.makedirs(self._root, exist_ok=True)
        for path in missing:
            _sync_directory(os.path.dirname(path))

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DiskFile(os.open(self.describe(path), flags, 0o644))

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.describe(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        os.makedirs(self.describe(path), exist_ok=True)

    def sync_directory(self, path: str) -> None:
        _sync_directory(self.describe(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(self.describe(source), self.describe(target))

    def remove(self, path: str) -> None:
        os.remove(self.describe(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self.describe(path))

    def lock(self) -> None:
        self._lock.take(self._root)

    def run_id(self) -> bytes:
        try:
            with open(_BOOT_ID, "rb") as boot_id:
                boot = boot_id.read()
        except OSError:
            return b""
        # A copy of the directory may have been taken while pages were not on the disk.
        root = os.stat(self._root)
        return blake2b(b"%d %d " % (root.st_dev, root.st_ino) + boot, digest_size=16).digest()

    def describe(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def close(self) -> None:
        self._lock.release()


class ReadOnlyFiles(DiskFiles):
    """A directory tree on the real disk that this process only reads. Another process may be writing to it."""

    def _make_root(self) -> None:
        pass

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create:
            raise self._refusal(path)
        return DiskFile(os.open(self.describe(path), os.O_RDONLY | os.O_CLOEXEC))

    def make_directory(self, path: str) -> None:
        raise self._refusal(path)

    def sync_directory(self, path: str) -> None:
        raise self._refusal(path)

    def rename(self, source: str, target: str) -> None:
        raise self._refusal(source)

    def remove(self, path: str) -> None:
        raise self._refusal(path)

    def remove_directory(self, path: str) -> None:
        raise self._refusal(path)

    def lock(self) -> None:
        raise self._refusal("lock")

    def _refusal(self, path: str) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), self.describe(path))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_with_metadata(descriptor)
    finally:
        os.close(descriptor)


def sync_with_metadata(descriptor: int) -> None:
    """Return when a file or a directory, with its metadata, would survive a power failure (fsync)."""
    if hasattr(os, "fdatasync"):
        os.fsync(descriptor)
    else:
        _sync_fully(descriptor)


def _sync_fully(descriptor: int) -> None:
    """The sync on macOS. A failed sync is not repeated as a plain fsync; only if the file system lacks the command,
    fsync takes its place.
    """
    try:
        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def sync(files: Files, paths: Iterable[str], directories: Iterable[str]) -> None:
    """Sync these files, and then the names in these directories."""
    try:
        for path in paths:
            file = files.open(path)
            try:
                file.sync()
            finally:
                file.close()
        for path in directories:
            files.sync_directory(path)
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise
        # A failed sync is final even if the disk is only full: the kernel may have dropped the pages, so a second sync
        # would wrongly succeed. So the error becomes EIO, after which the broker stops.
        raise OSError(errno.EIO, f"a sync failed: {error}") from error


def not_promised() -> list[str]:
    """The promises of a broker on Linux that it cannot keep on this system: one sentence for each."""
    sentences = []
    if not hasattr(os, "fdatasync"):
        sentences.append(
            "a loss of power may take acknowledged records where the file system does not support F_FULLFSYNC, as "
            "network drives do not"
        )
    if not hasattr(os, "posix_fallocate"):
        sentences.append(
            "space for the journal cannot be reserved for certain: when the disk is full, the broker may have to be "
            "restarted after space was made"
        )
    if not hasattr(os, "RWF_NOWAIT"):
        sentences.append("a consumer that reads old records may hold up all other clients while the disk is read")
    return sentences


class MemoryFile:
    """A file in memory."""

    __slots__ = ("data",)

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        chunk = b"".join(buffers)
        gap = position - len(self.data)
        if gap > 0:
            self.data.extend(bytes(gap))
        self.data[position : position + len(chunk)] = chunk
        return len(chunk)

    def read_at(self, size: int, position: int) -> bytes:
        return bytes(memoryview(self.data)[position : position + size])

    def is_cached(self, size: int, position: int) -> bool:
        return True

    def holds(self, size: int, position: int) -> bool:
        return any(memoryview(self.data)[position : position + size])

    def free(self, size: int, position: int) -> None:
        end = min(position + size, len(self.data))
        self.data[position:end] = bytes(max(end - position, 0))

    def sync(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def allocate(self, size: int) -> None:
        if size > len(self.data):
            self.truncate(size)

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        pass


class MemoryFiles:
    """A directory tree in memory, for a broker without a data directory."""

    def __init__(self) -> None:
        self._contents: dict[str, bytearray] = {}
        self._directories: set[str] = {""}
        self._locked = False

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self._contents:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(path))
            self._contents[path] = bytearray()
        return MemoryFile(self._contents[path])

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        below = (p[len(prefix) :] for p in [*self._contents, *self._directories] if p.startswith(prefix))
        return sorted({path_below.split("/")[0] for path_below in below if path_below})

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        self._directories.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))

    def sync_directory(self, path: str) -> None:
        pass

    def rename(self, source: str, target: str) -> None:
        self._contents[target] = self._taken_out(source)

    def remove(self, path: str) -> None:
        self._taken_out(path)

    def _taken_out(self, path: str) -> bytearray:
        self.open(path)
        return self._contents.pop(path)

    def remove_directory(self, path: str) -> None:
        self._directories.discard(path)

    def lock(self) -> None:
        if self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "already locked")
        self._locked = True

    def run_id(self) -> bytes:
        return b"memory".ljust(16)

    def describe(self, path: str) -> str:
        return f"memory:{path}"

    def close(self) -> None:
        self._locked = False
