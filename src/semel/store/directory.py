"""The engine for a directory: a disk that all brokers of one machine share, or a file system that several mount.

An object is written to a file in `.new`, synced, and gets its name by link(2), which fails if the name is taken: so no
half-written object is ever visible, and of many creators one succeeds. Then the folder is synced. To replace an object,
this takes a lock on the file `.lock`, compares, and renames. It promises what the file system promises: on a single
disk, objects survive a power failure, but not the loss of the disk. This must never remove a file that another process
may be about to link.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from semel.storage.files import sync_with_metadata
from semel.store.contract import Buffer, Changed, Exists, Found, Listed, Missing, StoreRefused, Unsure

_NEW: Final = ".new"
_LOCK: Final = ".lock"
# A file that a crash has left in `.new` is removed after this time; writing an object never takes as long.
ABANDONED_SECONDS: Final = 24 * 3600
PAGE_OBJECTS: Final = 1000
# These errors end when there is space again, or when the server of the file system is back.
_PASSING: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
)
_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
_ABSENT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DirectoryStore:
    """A `BlockingStore`."""

    def __init__(
        self,
        root: Path,
        *,
        now: Callable[[], float] = time.time,
        sync: Callable[[int], None] = sync_with_metadata,
    ) -> None:
        """Create the directory if it does not exist. `sync` gets the descriptor of a file or a directory."""
        self._root = root.absolute()
        self._sync = sync
        self._sync_failed = False
        with self._errors("open"):
            self._make_folder(self._root / _NEW)
            self._clean(now() - ABANDONED_SECONDS)

    def create(self, key: str, body: Buffer) -> str:
        path = self._path(key)
        with self._errors(key), self._written(body) as new:
            try:
                self._link(new, path)
            except FileExistsError:
                # The object that the caller reads there next must be as durable as a created one.
                self._sync_folder(path.parent)
                raise Exists(f"{key} exists in {self.describe()}") from None
            self._sync_folder(path.parent)
        return _version(body)

    def replace(self, key: str, body: Buffer, version: str) -> str:
        path = self._path(key)
        with self._errors(key), self._written(body) as new, self._alone():
            if _version(self._read(key)) != version:
                raise Changed(f"{key} in {self.describe()} was replaced by somebody else")
            os.replace(new, path)
            self._sync_folder(path.parent)
        return _version(body)

    def get(self, key: str) -> Found:
        with self._errors(key):
            body = self._read(key)
        return Found(body, _version(body))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        with self._errors(key), self._opened(key) as descriptor:
            return _read(descriptor, start, size)

    def list(self, folder: str) -> Iterator[list[Listed]]:
        page: list[Listed] = []
        with self._errors(folder or "/"):
            for listed in self._walk(self._root / folder if folder else self._root):
                page.append(listed)
                if len(page) == PAGE_OBJECTS:
                    yield page
                    page = []
        yield page

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors(key), self._alone():
            try:
                path.unlink()
            except _ABSENT:
                return
            self._sync_folder(path.parent)

    def close(self) -> None:
        pass

    def describe(self) -> str:
        return f"file://{self._root}"

    def _path(self, key: str) -> Path:
        return self._root / key

    @contextlib.contextmanager
    def _written(self, body: Buffer) -> Iterator[Path]:
        """A synced file in `.new`, which is removed afterwards."""
        new = self._root / _NEW / f"{os.getpid()}-{threading.get_ident()}-{secrets.token_hex(8)}"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                rest = memoryview(body).cast("B")
                while rest.nbytes:
                    rest = rest[os.write(descriptor, rest) :]
                self._sync(descriptor)
            finally:
                os.close(descriptor)
            try:
                yield new
            except FileNotFoundError:
                if new.exists() or not new.parent.is_dir():
                    raise
                # A process with another clock took it for one that a crash has left. The next try has another file.
                raise Unsure(f"{self.describe()}: {new.name} was removed: compare the clocks of all machines") from None
        finally:
            with contextlib.suppress(OSError):
                new.unlink()

    def _link(self, new: Path, path: Path) -> None:
        try:
            try:
                os.link(new, path)
            except FileNotFoundError:
                self._make_folder(path.parent)
                os.link(new, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StoreRefused(f"{self.describe()}: a file system without hard links: use another one") from error

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and those above it, each durably."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        self._sync_folder(folder.parent)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._sync(descriptor)
        except OSError:
            # A second sync may succeed although the kernel has dropped the pages that the first one could not write.
            self._sync_failed = True
            raise
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A context in which no other thread or process replaces or deletes."""
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY)
        except _ABSENT:
            raise Missing(f"{key} is not in {self.describe()}") from None
        try:
            yield descriptor
        except IsADirectoryError:
            raise Missing(f"{key} is not in {self.describe()}") from None
        finally:
            os.close(descriptor)

    def _read(self, key: str) -> bytes:
        with self._opened(key) as descriptor:
            return _read(descriptor, 0, os.fstat(descriptor).st_size)

    def _walk(self, folder: Path) -> Iterator[Listed]:
        try:
            entries = list(os.scandir(folder))
        except _ABSENT:
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path))
                continue
            with contextlib.suppress(FileNotFoundError):
                key = Path(entry.path).relative_to(self._root).as_posix()
                yield Listed(key, entry.stat(follow_symlinks=False).st_size)

    def _clean(self, before: float) -> None:
        for entry in list(os.scandir(self._root / _NEW)):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.path)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """A context in which errors of the operating system become errors of the contract."""
        if self._sync_failed:
            raise StoreRefused(f"{self.describe()}: a sync of its directory has failed: check the disk, then restart")
        try:
            yield
        except OSError as error:
            reason = f"{self.describe()}: {what}: {error.strerror or error}"
            if error.errno in _PASSING:
                raise Unsure(reason) from error
            raise StoreRefused(f"{reason}: make it a directory that this user may write to") from error


def _read(descriptor: int, start: int, size: int) -> bytes:
    parts = []
    while size and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _version(body: Buffer) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
