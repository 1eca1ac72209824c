"""The engine for a directory: a disk that all brokers of one machine share, or a file system that several mount.

An object is written to a file in `.new`, synced, and gets its name by link(2), which fails if the name is taken: so no
half-written object is ever visible, and of many creators one succeeds. Then the folder is synced. It promises what the
file system promises: on a single disk, objects survive a power failure, but not the loss of the disk.

A caller that replaces or deletes an object first takes a turn: it renames a folder to `.turns/<key>`, which fails while
somebody else's is there. In that folder is another one with a name that is never used again, and in this the new body.
Then it compares, and renames the body to the object. A process may stop between any two of these calls, for ever, so a
turn can be taken away: others wait for a moment, remove the inner folder, and go on. What the stopped process does
later needs that folder, and fails. This must never hold a lock of the operating system, which a stopped process would
keep.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from semel.log.storage.files import OUT_OF_SPACE, sync_with_metadata
from semel.log.store.contract import (
    FORMAT_KEY,
    Buffer,
    Changed,
    Exists,
    Found,
    Full,
    Listed,
    Missing,
    StoreBroken,
    StoreRefused,
    Unsure,
)

_NEW: Final = ".new"
_TURNS: Final = ".turns"
# In the folder of a turn: the new body, or the deleted object.
_BODY: Final = "body"
# What a crash has left in `.new` and `.turns` is removed after this time; writing an object never takes as long.
ABANDONED_SECONDS: Final = 24 * 3600
# After this time a turn is taken away from its holder, which needs it for less than a millisecond if it is not stopped.
TURN_SECONDS_MAX: Final = 0.1
_LOOK_SECONDS: Final = 0.002
# How often a caller tries again after others have taken its turn away. More says that the machine is overloaded.
TURNS_MAX: Final = 10
PAGE_OBJECTS: Final = 1000
# These errors end when there is space again, or when the server of the file system is back.
_PASSING: Final = frozenset((errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.ENFILE))
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
        # The object that says whose store this is, once it was read or created.
        self._format: bytes | None = None
        with self._errors("open"):
            for name in (_NEW, _TURNS):
                self._make_folder(self._root / name)
                self._clean(self._root / name, now() - ABANDONED_SECONDS)

    def create(self, key: str, body: Buffer) -> str:
        path = self._path(key)
        with self._errors(key), self._written(body) as new:
            try:
                self._link(new, path)
            except FileExistsError:
                if path.is_dir() or (path.is_symlink() and not path.exists()):
                    # A caller that reads it finds nothing, and would try again for ever.
                    raise StoreRefused(f"{path}: not a file, but a directory or a dead link: remove it") from None
                # The object that the caller reads there next must be as durable as a created one.
                self._sync_folder(path.parent)
                raise Exists(f"{key} exists in {self.describe()}") from None
            self._sync_folder(path.parent)
        if key == FORMAT_KEY:
            self._format = bytes(body)
        return _version(body)

    def replace(self, key: str, body: Buffer, version: str) -> str:
        path = self._path(key)

        def land(turn: Path) -> None:
            if _version(self._read(key)) != version:
                # The object that the caller reads there next must be as durable as a replaced one.
                self._sync_folder(path.parent)
                raise Changed(f"{key} in {self.describe()} was replaced by somebody else")
            os.replace(turn / _BODY, path)
            self._sync_folder(path.parent)

        with self._errors(key):
            self._in_a_turn(key, body, land)
        return _version(body)

    def get(self, key: str) -> Found:
        with self._errors(key):
            body = self._read(key)
        if key == FORMAT_KEY:
            self._format = self._format or body
        return Found(body, _version(body))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        with self._errors(key), self._opened(key) as descriptor:
            return _read(descriptor, start, size)

    def list(self, folder: str, after: str = "") -> Iterator[list[Listed]]:
        page: list[Listed] = []
        with self._errors(folder or "/"):
            self._check_mounted()
            for listed in self._walk(self._root / folder if folder else self._root):
                if listed.key > after:
                    page.append(listed)
                if len(page) == PAGE_OBJECTS:
                    yield page
                    page = []
        yield page

    def delete(self, key: str) -> None:
        path = self._path(key)

        def land(turn: Path) -> None:
            self._check_mounted()
            if path.is_dir():
                return
            try:
                # Unlike unlink(2), this fails if another process has taken the turn away.
                os.replace(path, turn / _BODY)
            except _ABSENT:
                if not (turn / _BODY).exists():
                    raise
                return
            self._sync_folder(path.parent)

        with self._errors(key):
            self._in_a_turn(key, None, land)

    def cut_short(self, thread: int) -> None:
        pass

    def close(self) -> None:
        pass

    def describe(self) -> str:
        return f"file://{self._root}"

    def _path(self, key: str) -> Path:
        return self._root / key

    @contextlib.contextmanager
    def _written(self, body: Buffer) -> Iterator[Path]:
        """A synced file in `.new`, which is removed afterwards."""
        new = self._root / _NEW / _unique_name()
        try:
            self._write(new, body)
            try:
                yield new
            except FileNotFoundError:
                if new.exists() or not new.parent.is_dir():
                    raise
                raise self._removed(new) from None
        finally:
            with contextlib.suppress(OSError):
                new.unlink()

    def _write(self, path: Path, body: Buffer | None) -> None:
        """Make a file with this body, and sync it; an empty one without a sync if there is no body."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            if body is not None:
                rest = memoryview(body).cast("B")
                while rest.nbytes:
                    rest = rest[os.write(descriptor, rest) :]
                self._sync(descriptor)
        finally:
            os.close(descriptor)

    def _removed(self, new: Path) -> Unsure:
        """A process with another clock took it for one that a crash has left. The next try has another name."""
        return Unsure(f"{self.describe()}: {new.name} was removed: compare the clocks of all machines")

    # -- turns --------------------------------------------------------------------------------------------------

    def _in_a_turn(self, key: str, body: Buffer | None, land: Callable[[Path], None]) -> None:
        """Call `land` with the folder of a turn for this object, in which the body is. Its last step must need that
        folder; if it raises FileNotFoundError because others have taken the turn away, it is called again with another
        turn.
        """
        place = self._root / _TURNS / key.replace("/", "=")
        for _ in range(TURNS_MAX):
            name = _unique_name()
            new = self._root / _NEW / name
            turn = place / name
            try:
                os.mkdir(new)
                os.mkdir(new / name)
                self._write(new / name / _BODY, body)
                self._take_turn(new, place)
                land(turn)
                return
            except FileNotFoundError:
                if (turn / _BODY).exists() or not new.parent.is_dir():
                    raise
            finally:
                shutil.rmtree(new, ignore_errors=True)
                with contextlib.suppress(OSError):
                    _remove_turn(turn)
                    # This fails if another process has its turn there by now.
                    place.rmdir()
        raise Unsure(f"{self.describe()}: {key}: other processes have taken its turn away {TURNS_MAX} times")

    def _take_turn(self, new: Path, place: Path) -> None:
        """Rename `new` to `place`, when it is nobody's turn there. Take a turn away that lasts too long."""
        holders: list[str] = []
        taken_away_at = 0.0
        while True:
            try:
                os.rename(new, place)
                return
            except FileNotFoundError:
                if new.exists():
                    raise
                raise self._removed(new) from None
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            before, holders = holders, _names_in(place)
            if holders != before:
                taken_away_at = time.monotonic() + TURN_SECONDS_MAX
            elif time.monotonic() >= taken_away_at:
                for holder in holders:
                    _remove_turn(place / holder)
            time.sleep(_LOOK_SECONDS)

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
        self._check_mounted()
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
    def _opened(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY)
        except _ABSENT:
            raise self._missing(key) from None
        try:
            yield descriptor
        except IsADirectoryError:
            raise self._missing(key) from None
        finally:
            os.close(descriptor)

    def _missing(self, key: str) -> Missing:
        self._check_mounted()
        return Missing(f"{key} is not in {self.describe()}")

    def _check_mounted(self) -> None:
        """Raise StoreRefused if the directory is not the one that this process has seen. Where a file system is no
        longer mounted there is an empty directory, in which each object seems to be missing.
        """
        if self._format is None:
            return
        try:
            is_same = (self._root / FORMAT_KEY).read_bytes() == self._format
        except _ABSENT:
            is_same = False
        if not is_same:
            raise StoreRefused(
                f"{self.describe()}: {FORMAT_KEY} is not the one that was there: mount the directory again"
            )

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

    def _clean(self, folder: Path, before: float) -> None:
        for entry in list(os.scandir(folder)):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime >= before:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """A context in which errors of the operating system become errors of the contract."""
        if self._sync_failed:
            raise StoreBroken(f"{self.describe()}: a sync of its directory has failed: check the disk, then restart")
        try:
            yield
        except OSError as error:
            reason = f"{self.describe()}: {what}: {error.strerror or error}"
            if error.errno in OUT_OF_SPACE:
                raise Full(reason) from error
            if error.errno in _PASSING:
                raise Unsure(reason) from error
            raise StoreRefused(f"{reason}: make it a directory that this user may write to") from error


def _unique_name() -> str:
    """A name that no other call uses, of any process."""
    return f"{os.getpid()}-{threading.get_ident()}-{secrets.token_hex(8)}"


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove_turn(turn: Path) -> None:
    """Remove the folder of a turn. Whatever its holder does with it later fails, also if it has begun already: the
    file system looks for the body, and whether the folder is still there, when it holds the folder's lock.
    """
    with contextlib.suppress(FileNotFoundError):
        while True:
            with contextlib.suppress(FileNotFoundError):
                (turn / _BODY).unlink()
            try:
                turn.rmdir()
                return
            except OSError as error:
                # The holder has just moved an object here, to delete it.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise


def _read(descriptor: int, start: int, size: int) -> bytes:
    parts = []
    while size and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _version(body: Buffer) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
