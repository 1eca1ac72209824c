"""A directory for what Spark needs beside a program while that runs: sockets, tables, the configuration of its logging.

It is deleted when the process ends. A process that is killed leaves its directory behind, so the next one deletes it:
each process holds a lock on its own, which ends with the process. A cleaner such as systemd-tmpfiles spares a directory
with such a lock. This file must never delete the directory of a process that runs.
"""

import atexit
import contextlib
import fcntl
import os
import platform
import shutil
import stat
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Final, NamedTuple

# Several machines may share the directory for temporary files, and have locks of their own.
PREFIX: Final = f"semel-{zlib.crc32(platform.node().encode()):08x}-"


class _Held(NamedTuple):
    path: Path
    # The process that has made it: one that is forked from this one makes its own.
    owner: int
    # Open for the lock.
    descriptor: int


_mutex: Final = threading.Lock()
_held: _Held | None = None


def scratch() -> Path:
    """The directory of this process. If it was deleted it is made again: the JVM of this process has its path."""
    global _held
    with _mutex:
        if _held is None or _held.owner != os.getpid():
            _sweep(Path(tempfile.gettempdir()))
            _held = _new()
        elif not _is_ours(_held.path):
            _held = _made_again(_held)
        return _held.path


def _is_ours(path: Path) -> bool:
    """False also if another user has made a directory of this name."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _made_again(gone: _Held) -> _Held:
    try:
        gone.path.mkdir(mode=0o700)
        made = gone._replace(descriptor=_locked(gone.path))
    except OSError:
        # Something else is there, or the place for temporary files is another one now.
        made = _new()
    os.close(gone.descriptor)
    return made


def _new() -> _Held:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Another process may have found it without a lock, and deleted it.
        with contextlib.suppress(FileNotFoundError):
            held = _Held(path, os.getpid(), _locked(path))
            atexit.register(_delete, held.path, held.owner)
            return held


def _locked(path: Path) -> int:
    """A descriptor with a lock on this directory. FileNotFoundError if it was deleted meanwhile."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Where the file system has no locks, nobody can take this directory for one that was left behind.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.stat(path)
    except FileNotFoundError:
        os.close(descriptor)
        raise
    return descriptor


def _sweep(parent: Path) -> None:
    """Delete what processes of this user have left behind."""
    for left in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not os.path.samestat(os.fstat(descriptor), left.lstat()):
                        # Its process has made it again.
                        continue
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


def _delete(directory: Path, owner: int) -> None:
    """Not from a process that was forked from this one: Spark would miss its sockets."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
