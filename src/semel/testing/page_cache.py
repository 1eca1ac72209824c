"""A model of a page cache and the disk below it, and of what a loss of power may leave.

`semel.testing.faulty` uses this model, which has no calls, faults or threads. It keeps files and names twice: as a
program sees them, and as they are on the disk for certain, with the list of changes from the disk's state to the
program's. It must never be kinder than POSIX: any subset of changes that were not synced may survive, whatever came
after them.
"""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

# A disk writes a sector completely or not at all.
SECTOR_BYTES: Final = 512

# Chooses one of a number of options; 0 always means loss, and 1 survival.
Choose = Callable[[int], int]


@dataclass(slots=True)
class Change:
    """A change that may be lost. A `saved` one is never lost; a `doubtful` one was in a failed sync, and no later sync
    saves it.
    """

    saved: bool = field(default=False, kw_only=True)
    doubtful: bool = field(default=False, kw_only=True)


SomeChange = TypeVar("SomeChange", bound=Change)


@dataclass(slots=True)
class Write(Change):
    """Bytes that were written at a position."""

    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        _overwrite(content, self.position, self.data)


@dataclass(slots=True)
class Resize(Change):
    """A truncation, or an allocation, which never shrinks."""

    size: int
    shrinks: bool

    def apply(self, content: bytearray) -> None:
        if self.size >= len(content):
            content.extend(bytes(self.size - len(content)))
        elif self.shrinks:
            del content[self.size :]


@dataclass(slots=True, eq=False)
class Inode:
    """A file without its name."""

    cached: bytearray = field(default_factory=bytearray)
    certain: bytearray = field(default_factory=bytearray)
    changes: list[Write | Resize] = field(default_factory=list)

    def change(self, change: Write | Resize) -> None:
        change.apply(self.cached)
        self.changes.append(change)

    def sync(self) -> None:
        mark_saved(self.changes)
        for change in _settled(self.changes):
            change.apply(self.certain)

    def clone(self) -> "Inode":
        changes = [copy.copy(change) for change in self.changes]
        return Inode(bytearray(self.cached), bytearray(self.certain), changes)

    def surviving(self, choose: Choose, lost: Counter[str]) -> "Inode":
        """The file after a loss of power; what was lost is counted in `lost`."""
        content = bytearray(self.certain)
        for change in self.changes:
            if change.saved:
                change.apply(content)
            elif isinstance(change, Write):
                _surviving_write(content, change, choose, lost)
            elif choose(2):
                change.apply(content)
            else:
                lost["lost size"] += 1
        return Inode(cached=content, certain=bytearray(content))


# A directory has no content: it is only a name, below which there are other names.
DIRECTORY: Final = None
Names = dict[str, Inode | None]


@dataclass(slots=True)
class NameChange(Change):
    """A name that appears or vanishes; saved once all `directories` are synced. A rename is a name that appears
    elsewhere.
    """

    directories: set[str]
    path: str
    node: Inode | None
    appears: bool

    def apply(self, names: Names) -> None:
        if self.node is not DIRECTORY:
            # The file moves from any earlier name, which may depend on a change that was lost.
            for path in [path for path, node in names.items() if node is self.node]:
                del names[path]
        elif not self.appears:
            names.pop(self.path, None)
        if self.appears:
            names[self.path] = self.node


class Tree:
    """All names of a disk, and their files and directories."""

    def __init__(self) -> None:
        self.names: Names = {"": DIRECTORY}
        self._certain: Names = {"": DIRECTORY}
        self._changes: list[NameChange] = []

    def is_directory(self, path: str) -> bool:
        return path in self.names and self.names[path] is DIRECTORY

    def children(self, path: str) -> list[str]:
        start = f"{path}/" if path else ""
        below = (name[len(start) :] for name in self.names if name.startswith(start))
        return [name for name in below if name and "/" not in name]

    def change(self, change: NameChange) -> None:
        change.apply(self.names)
        self._changes.append(change)

    def make_certain(self, path: str) -> None:
        """Make an empty file that always survives."""
        self.names[path] = self._certain[path] = Inode()

    def sync(self, path: str) -> None:
        """Save the changes of the names in one directory."""
        here = [change for change in self._changes if path in change.directories and not change.doubtful]
        for change in here:
            change.directories.discard(path)
        mark_saved([change for change in here if not change.directories])
        for change in _settled(self._changes):
            change.apply(self._certain)

    def give_up(self, path: str) -> None:
        """The effect of a failed sync of one directory."""
        mark_doubtful([change for change in self._changes if path in change.directories])

    def clone(self) -> "Tree":
        nodes = (*self.names.values(), *self._certain.values(), *(change.node for change in self._changes))
        # A file that has several names, now and on the disk, stays one.
        files = {id(node): node for node in nodes if node is not DIRECTORY}
        cloned = {number: node.clone() for number, node in files.items()}
        after = Tree()
        after.names = {path: cloned.get(id(node)) for path, node in self.names.items()}
        after._certain = {path: cloned.get(id(node)) for path, node in self._certain.items()}
        after._changes = [
            replace(change, directories=set(change.directories), node=cloned.get(id(change.node)))
            for change in self._changes
        ]
        return after

    def surviving(self, choose: Choose, lost: Counter[str]) -> "Tree":
        """The tree after a loss of power; what was lost is counted in `lost`."""
        names = dict(self._certain)
        for change in self._changes:
            if change.saved or choose(2):
                change.apply(names)
            else:
                lost["lost name"] += 1
        after = Tree()
        # Parents come before their children in this order, so that one pass removes whole branches.
        for path in sorted(names):
            if path and after.is_directory(above(path)):
                node = names[path]
                after.names[path] = node if node is DIRECTORY else node.surviving(choose, lost)
        after._certain = dict(after.names)
        return after


def mark_saved(changes: Sequence[Change]) -> None:
    """The effect of a sync: it saves all changes except the doubtful ones."""
    for change in changes:
        change.saved = not change.doubtful


def mark_doubtful(changes: Sequence[Change]) -> None:
    """The effect of a failed sync."""
    for change in changes:
        change.doubtful = not change.saved


def above(path: str) -> str:
    """The directory in which this name is."""
    return path.rpartition("/")[0]


def _settled(changes: list[SomeChange]) -> list[SomeChange]:
    """Remove the saved changes at the front of the list, up to the first one that is not saved, and return them."""
    settled = list(itertools.takewhile(lambda change: change.saved, changes))
    del changes[: len(settled)]
    return settled


def _overwrite(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _surviving_write(content: bytearray, write: Write, choose: Choose, lost: Counter[str]) -> None:
    sectors = _sectors(write)
    picked = choose(3 if len(sectors) > 1 else 2)
    if picked == 1:
        write.apply(content)
        return
    kept = [sector for sector in sectors if choose(2)] if picked == 2 else []
    for position, data in kept:
        _overwrite(content, position, data)
    lost["partly lost write" if kept else "lost write"] += 1
    end = write.position + len(write.data)
    if end > len(content) and choose(2):
        # A disk stores the size apart from the bytes, so it may survive without them.
        content.extend(bytes(end - len(content)))


def _sectors(write: Write) -> list[tuple[int, bytes]]:
    """A write divided at the borders of sectors, each piece with its position."""
    end = write.position + len(write.data)
    borders = range((write.position // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES)
    return [
        (start, write.data[start - write.position : stop - write.position])
        for start, stop in itertools.pairwise([write.position, *borders, end])
    ]
