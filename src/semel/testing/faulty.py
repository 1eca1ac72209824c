"""A disk under a page cache that crashes, tears, loses and refuses on demand: a double of `semel.log.storage.files`.

It tests whether a program that keeps its files through `Files` ever loses data that it has acknowledged. It is in
memory, is deterministic except for the order in which threads call it, and must never be kinder than POSIX: data that
was not synced may be lost as a whole, in part, or not at all, whatever was written after it.

    rehearsal = FaultyFiles()                       # 1. run without faults, to learn the calls
    run(rehearsal, [])
    for fault in every_fault(rehearsal.calls):      # 2. run again for every fault at every call
        files, promised = FaultyFiles(fault), []
        with contextlib.suppress(Crashed, OSError):
            run(files, promised)                    #    which notes in `promised` what it acknowledged
        assert files.fired                          #    a fault that never fired proves nothing
        check(files.survivors(seed), promised)      # 3. recover after a loss of power
        check(files.after_kill(), promised)         #    and after the death of the process alone

`Fault` says what happens, and to which call: the first one numbered `at` or later, of the kind `call`, on a path that
matches `path`, if the fault is possible for it. `arm` adds a fault while the program runs, `disarm` removes all. After
a crash every call raises `Crashed`, in every thread. `survivors` and `after_kill` take further faults, for crashes
during recovery. `survivors` takes a seed, or a function that gets the number of options and picks one (`lose_all`,
`keep_all`, or your own); `every_survivor` goes through all possible trees.

What the disk promises:
- `File.sync` makes the content and size of that file survive, but not its name.
- A created, renamed or removed name survives once its directory was synced (after a rename to another directory, both
  directories), and the name of a directory is a name like any other. Until then each such change may survive or not,
  independently of the others. A rename is atomic: never both names, and never none.
- Of a write that was not synced, any combination of sectors may survive. A lost sector holds its earlier bytes, or
  zeros if the file grew. A truncation or an allocation survives or does not.
- After a failed sync, the data counts as clean though it is not on the disk: the next sync succeeds, but does not save
  it. Reads still see it.
- Every call is atomic for other threads.
"""

import contextlib
import errno
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from semel.log.files import Buffer
from semel.testing.page_cache import (
    DIRECTORY,
    SECTOR_BYTES,
    Choose,
    Inode,
    NameChange,
    Resize,
    Tree,
    Write,
    above,
    mark_doubtful,
)

FaultKind = Literal["crash before", "crash after", "torn", "EIO", "ENOSPC", "failed sync"]

_SYNCS: Final = frozenset({"sync", "sync_directory"})
_NEEDS_SPACE: Final = frozenset({"create", "make_directory", "rename", "write", "allocate"})
_NEVER_FAILS: Final = frozenset({"size", "close", "lock"})


class Crashed(BaseException):
    """The process is dead. `except Exception` does not catch this, just as no handler runs after a loss of power."""


class Call(NamedTuple):
    """One call: its number, its kind, its path, and how many bytes it was to write."""

    number: int
    kind: str
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that strikes once, or every time from then on if it is `lasting`.

    - `crash before`, `crash after`: the call has no effect or its whole effect, and never returns;
    - `torn`: the first `keep` bytes of a write arrive, then the process dies;
    - `EIO`: the call fails and changes nothing;
    - `ENOSPC`: the call fails for lack of space, a write after its first `keep` bytes;
    - `failed sync`: a sync fails with EIO, and its data counts as clean afterwards without being saved.
    """

    kind: FaultKind
    at: int = 0
    call: str | None = None
    path: str | None = None
    keep: int = 0
    lasting: bool = False

    def strikes(self, call: Call) -> bool:
        """Whether the fault strikes this call."""
        return (
            call.number >= self.at
            and self.call in (None, call.kind)
            and (self.path is None or fnmatchcase(call.path, self.path))
            and can_strike(self.kind, call)
        )


def can_strike(kind: FaultKind, call: Call) -> bool:
    """Whether this fault is possible for this call."""
    match kind:
        case "torn":
            return call.kind == "write" and call.size > 1
        case "ENOSPC":
            return call.kind in _NEEDS_SPACE
        case "failed sync":
            return call.kind in _SYNCS
        case "EIO":
            return call.kind not in _NEVER_FAILS
        case _:
            return True


def every_fault(calls: Iterable[Call]) -> Iterator[Fault]:
    """Every fault that is possible for each of these calls; writes are torn and cut short at several places."""
    for call in calls:
        for kind in ("crash before", "crash after"):
            yield Fault(kind, call.number, call.kind, call.path)
        if call.kind in _SYNCS:
            yield Fault("failed sync", call.number, call.kind, call.path)
        elif can_strike("EIO", call):
            yield Fault("EIO", call.number, call.kind, call.path)
        if can_strike("torn", call):
            whole_sectors = call.size // SECTOR_BYTES * SECTOR_BYTES
            for keep in sorted({1, call.size // 2, whole_sectors, call.size - 1} - {0, call.size}):
                yield Fault("torn", call.number, call.kind, call.path, keep)
        if can_strike("ENOSPC", call):
            for keep in sorted({0, call.size // 2}):
                yield Fault("ENOSPC", call.number, call.kind, call.path, keep)


def lose_all(options: int) -> int:
    """A disk that kept only the data that it had promised."""
    return 0


def keep_all(options: int) -> int:
    """A disk that kept everything, promised or not."""
    return 1


class FaultyFile:
    """One open file of a `FaultyFiles`; a `File`."""

    __slots__ = ("_files", "_inode", "_open", "_path")

    def __init__(self, files: "FaultyFiles", path: str, inode: Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._open = True

    def _calling(self, kind: str, size: int = 0) -> AbstractContextManager[Fault | None]:
        return self._files._calling(kind, self._path, size, is_open=self._open)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        with self._calling("write", len(data)) as fault:
            kept = data[: fault.keep] if fault is not None and fault.kind in ("torn", "ENOSPC") else data
            if kept:
                self._inode.change(Write(position, kept))
        return len(data)

    def read_at(self, size: int, position: int) -> bytes:
        with self._calling("read"):
            return bytes(memoryview(self._inode.cached)[position : position + size])

    def is_cached(self, size: int, position: int) -> bool:
        return True

    def holds(self, size: int, position: int) -> bool:
        with self._calling("read"):
            return any(memoryview(self._inode.cached)[position : position + size])

    def free(self, size: int, position: int) -> None:
        with self._calling("free"):
            self._inode.change(Write(position, bytes(max(min(size, len(self._inode.cached) - position), 0))))

    def sync(self) -> None:
        with self._calling("sync") as fault:
            if fault is not None and fault.kind == "failed sync":
                mark_doubtful(self._inode.changes)
            else:
                self._inode.sync()

    def truncate(self, size: int) -> None:
        with self._calling("truncate"):
            self._inode.change(Resize(size, shrinks=True))

    def allocate(self, size: int) -> None:
        with self._calling("allocate"):
            self._inode.change(Resize(size, shrinks=False))

    def size(self) -> int:
        with self._calling("size"):
            return len(self._inode.cached)

    def close(self) -> None:
        with self._calling("close"):
            self._open = False


class FaultyFiles:
    """A directory tree with planned faults; a `Files`.

    `calls` are the calls so far, and `counts` their number by kind; `fired` counts the faults that struck and, after
    `survivors`, the losses.
    """

    def __init__(self, *faults: Fault) -> None:
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self._armed: list[Fault] = list(faults)
        self._mutex = threading.Lock()
        self._crashed = False
        self._locked = False
        self._tree = Tree()
        # How often the machine has lost its power.
        self._runs = 0

    # The plan

    def arm(self, *faults: Fault) -> None:
        """Add these faults."""
        with self._mutex:
            self._armed.extend(faults)

    def disarm(self) -> None:
        """Remove all faults: the disk has space again, or its cable is back."""
        with self._mutex:
            self._armed.clear()

    def crash(self) -> None:
        """Kill the process now: from here on, every call raises `Crashed`."""
        with self._mutex:
            self._crashed = True

    @property
    def crashed(self) -> bool:
        return self._crashed

    @contextlib.contextmanager
    def _calling(self, kind: str, path: str, size: int = 0, *, is_open: bool = True) -> Iterator[Fault | None]:
        """Count a call and let its fault strike before or after the block, which is the effect of the call. A file that
        is closed has none."""
        with self._mutex:
            if self._crashed:
                raise Crashed("the process is dead")
            call = Call(len(self.calls), kind, path, size)
            self.calls.append(call)
            self.counts[kind] += 1
            fault = next((fault for fault in self._armed if fault.strikes(call)), None)
            if fault is None:
                self._check_open(path, is_open=is_open)
                yield None
                return
            self.fired[fault.kind] += 1
            if not fault.lasting:
                self._armed.remove(fault)
            self._before(fault, call)
            try:
                self._check_open(path, is_open=is_open)
                yield fault
            finally:
                if fault.kind in ("crash after", "torn"):
                    self._die(fault, call)
            self._refuse(fault, call)

    def _check_open(self, path: str, *, is_open: bool) -> None:
        if not is_open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)

    def _before(self, fault: Fault, call: Call) -> None:
        if fault.kind == "crash before":
            self._die(fault, call)
        if fault.kind == "EIO" or (fault.kind == "ENOSPC" and call.kind != "write"):
            self._refuse(fault, call)

    def _die(self, fault: Fault, call: Call) -> None:
        self._crashed = True
        raise Crashed(f"{fault.kind}: {call}")

    def _refuse(self, fault: Fault, call: Call) -> None:
        number = errno.ENOSPC if fault.kind == "ENOSPC" else errno.EIO
        raise OSError(number, os.strerror(number), self.describe(call.path))

    # The disk

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        kind = "create" if create and path not in self._tree.names else "open"
        with self._calling(kind, path):
            if create and path not in self._tree.names:
                self._make(path, Inode())
            return FaultyFile(self, path, self._file(path))

    def names(self, path: str) -> list[str]:
        with self._calling("names", path):
            return sorted(self._tree.children(path))

    def make_directory(self, path: str) -> None:
        with self._calling("make_directory", path):
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                step = "/".join(parts[:depth])
                if step not in self._tree.names:
                    self._make(step, DIRECTORY)
                elif not self._tree.is_directory(step):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.describe(step))

    def sync_directory(self, path: str) -> None:
        with self._calling("sync_directory", path) as fault:
            self._check_directory(path)
            if fault is not None and fault.kind == "failed sync":
                self._tree.give_up(path)
            else:
                self._tree.sync(path)

    def rename(self, source: str, target: str) -> None:
        with self._calling("rename", source):
            inode = self._file(source)
            self._check_directory(above(target))
            if target in self._tree.names:
                self._file(target)
            if source != target:
                self._tree.change(NameChange({above(source), above(target)}, target, inode, appears=True))

    def remove(self, path: str) -> None:
        with self._calling("remove", path):
            self._tree.change(NameChange({above(path)}, path, self._file(path), appears=False))

    def remove_directory(self, path: str) -> None:
        with self._calling("remove_directory", path):
            self._check_directory(path)
            if self._tree.children(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), self.describe(path))
            self._tree.change(NameChange({above(path)}, path, DIRECTORY, appears=False))

    def lock(self) -> None:
        with self._calling("lock", "lock"):
            if self._locked:
                raise BlockingIOError(errno.EWOULDBLOCK, "already locked", self.describe("lock"))
            if "lock" not in self._tree.names:
                # It makes no difference whether this empty file survives, so this does not double the number of
                # survivors.
                self._tree.make_certain("lock")
            self._locked = True

    def run_id(self) -> bytes:
        return b"run %12d" % self._runs

    def describe(self, path: str) -> str:
        return f"faulty:{path}"

    def close(self) -> None:
        with self._calling("close", ""):
            self._locked = False

    def _file(self, path: str) -> Inode:
        if self._tree.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.describe(path))
        inode = self._tree.names.get(path)
        if inode is None:
            raise self._missing(path)
        return inode

    def _check_directory(self, path: str) -> None:
        if path not in self._tree.names:
            raise self._missing(path)
        if not self._tree.is_directory(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.describe(path))

    def _missing(self, path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(path))

    def _make(self, path: str, node: Inode | None) -> None:
        self._check_directory(above(path))
        self._tree.change(NameChange({above(path)}, path, node, appears=True))

    # What is left

    def after_kill(self, *faults: Fault) -> "FaultyFiles":
        """The tree after the process died and the machine goes on: nothing is lost yet, and nothing more is synced."""
        after = FaultyFiles(*faults)
        with self._mutex:
            after._tree = self._tree.clone()
            after._runs = self._runs
        return after

    def survivors(self, choose: int | Choose, *faults: Fault) -> "FaultyFiles":
        """The tree after a loss of power: the promised data, and the part of the rest that the seed or `choose`
        picks.
        """
        if isinstance(choose, int):
            choose = random.Random(choose).randrange
        after = FaultyFiles(*faults)
        with self._mutex:
            after._tree = self._tree.surviving(choose, self.fired)
            after._runs = self._runs + 1
        return after

    def every_survivor(self) -> Iterator["FaultyFiles"]:
        """Every tree that a loss of power could leave: two to the power of the number of sectors not synced.

        The choices that led to one tree are kept; for the next tree, the last choice with another option takes that
        one.
        """
        choices: list[int] = []
        options_at: list[int] = []
        while True:
            steps = itertools.count()

            def choose(options: int, steps: Iterator[int] = steps) -> int:
                step = next(steps)
                if step == len(choices):
                    choices.append(0)
                    options_at.append(options)
                return choices[step]

            yield self.survivors(choose)
            while choices and choices[-1] + 1 == options_at[-1]:
                choices.pop()
                options_at.pop()
            if not choices:
                return
            choices[-1] += 1
