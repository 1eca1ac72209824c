"""A process that calls the engine of the directory, and stops itself (SIGSTOP) before one of its system calls.

Each line of the input is a call: the number of the system call before which to stop, or 0 for the one that renames the
object or something to it; then `replace` or `delete`, the key, and for a replace the new body and the version. The
output says how that call ended; then the process stops once more. So a test can stop it between any two system calls,
at the same place each time.
"""

import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from semel.log.storage.files import sync_with_metadata
from semel.log.store.contract import StoreError
from semel.log.store.directory import DirectoryStore

# What Python tells of before it calls the operating system. The other calls change nothing that another process sees.
AUDITED = frozenset(
    ("open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "fcntl.flock")
)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Stops:
    """Counts the system calls, and stops the process before the one with this number."""

    def __init__(self) -> None:
        self.left = 0
        # The object before whose renaming to stop.
        self.path: Path | None = None

    def note(self) -> None:
        self.left -= 1
        if self.left == 0:
            stop()

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in AUDITED:
            self.note()
        if event == "os.rename" and self.path is not None and str(self.path) in map(str, arguments):
            self.path = None
            stop()

    def sync(self, descriptor: int) -> None:
        self.note()
        sync_with_metadata(descriptor)


def serve(root: Path, calls: TextIO, outcomes: TextIO) -> None:
    stops = Stops()
    store = DirectoryStore(root, sync=stops.sync)
    sys.addaudithook(stops.audit)
    for line in calls:
        number, call, key, *rest = line.split()
        stops.left = int(number)
        stops.path = None if stops.left else root / key
        try:
            if call == "replace":
                store.replace(key, rest[0].encode(), rest[1])
            else:
                store.delete(key)
            outcome = "done"
        except StoreError as error:
            outcome = type(error).__name__
        stops.left, stops.path = 0, None
        print(outcome, file=outcomes, flush=True)
        stop()
