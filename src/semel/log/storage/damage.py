"""Which segments of a log are known to be damaged, whether a reader met the damage or somebody looked for it.

Readers get the records before the damage, and an error in place of the rest. This must never say that a segment is
whole: nobody may have looked.
"""

from collections.abc import Callable
from typing import Final

from semel.log.storage.files import NotHere
from semel.log.storage.journal import Corrupt

_ON_A_STORE: Final = (
    "{} has what was acknowledged: have another broker take over (semel resign URL), stop this one, remove its --data "
    "and start it"
)
_ON_THIS_DISK_ALONE: Final = (
    "no store has this log: put the file back from a backup; or stop the broker, copy its --data to another disk if "
    "this one fails, and semel repair DIR --set-aside goes on without these records"
)


class Misread(Corrupt):
    """A file has other bytes than those of its segment from `position` on, where the batch with `offset` should be."""

    def __init__(self, path: str, position: int, offset: int, end_offset: int, what: str = "") -> None:
        self.what = what or f"no batch of this segment at offset {position}"
        super().__init__(f"{path}: {self.what}")
        self.path = path
        self.position = position
        self.offset = offset
        # The end of the segment.
        self.end_offset = end_offset


class Damage:
    """The damage of one log."""

    def __init__(self, describe: Callable[[str], str]) -> None:
        """`describe` returns the full path of a file."""
        # By path: how many bytes are right, and the offset after these.
        self.marks: dict[str, tuple[int, int]] = {}
        # Gets the path, and a line for the operator, when a reader meets damage that nobody knew of.
        self.tell: Callable[[str, str], None] = lambda path, line: None
        # Whether the store may have what is damaged at this place of a file. Then it will be fetched again.
        self.doubt: Callable[[str, int], bool] = lambda path, position: False
        # Where the log is kept besides this disk; empty if nowhere.
        self.store = ""
        self._describe = describe

    @property
    def remedy(self) -> str:
        """Whether there is another copy of what this disk has lost, and what to do."""
        return _ON_A_STORE.format(self.store) if self.store else _ON_THIS_DISK_ALONE

    def met(self, misread: Misread) -> Corrupt:
        """Mark the segment from there on, tell of it, and return the error for the reader. NotHere if the bytes are to
        be fetched again.
        """
        path, mark = misread.path, (misread.position, misread.offset)
        lost = f"records from offset {misread.offset} to {misread.end_offset - 1} are lost or damaged"
        line = f"{self._describe(path)}: {misread.what}; {lost}"
        if self.doubt(path, misread.position):
            self.tell(path, f"{line} on the disk; they are fetched from the store again")
            raise NotHere(path, misread.position, 1)
        known = self.marks.get(path)
        if known is None:
            self.tell(path, line)
        elif known <= mark:
            return Corrupt(str(misread))
        self.marks[path] = mark
        return misread
