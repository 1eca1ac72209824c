"""The lock on a data directory, which keeps out a second broker on the same machine: two that write to one journal lose
what both have acknowledged.

It is on a file, and on the directory itself: somebody may take the file for one that a crash left behind, and remove
it. The end of the process releases it. Nothing here may wait for the lock.
"""

import fcntl
import os


class TreeLock:
    """The lock that this process has, or may take."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def take(self, root: str) -> None:
        """Lock this directory, or raise BlockingIOError."""
        taken: list[int] = []
        try:
            for path, flags in ((f"{root}/lock", os.O_RDWR | os.O_CREAT), (root, os.O_RDONLY)):
                taken.append(os.open(path, flags | os.O_CLOEXEC, 0o644))
                fcntl.flock(taken[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # A network drive may lock files and no directories.
            is_file_alone = len(taken) == 2 and not isinstance(error, BlockingIOError)
            while len(taken) > is_file_alone:
                os.close(taken.pop())
            if not is_file_alone:
                raise
        self._descriptors += taken

    def release(self) -> None:
        """Release the lock, if this process has it."""
        while self._descriptors:
            # Closing is not enough: a process that was forked meanwhile also has the descriptor.
            fcntl.flock(self._descriptors[-1], fcntl.LOCK_UN)
            os.close(self._descriptors.pop())
