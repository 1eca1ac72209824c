"""Whether a SQLite transaction is IMMEDIATE: asked of the file itself, for the driver does not know.

A transaction that begins by reading and then writes fails at once when somebody else has written meanwhile, and no busy
timeout helps. Who began with BEGIN IMMEDIATE has the write lock from the start. So a second connection tries for that
lock: where it gets it, nobody has it, and certainly not the transaction in question. Where somebody else has it at that
moment, a transaction that is not IMMEDIATE passes unseen, once. This must never wait, and never hold what it got.
"""

import os
import sqlite3
import threading
from collections import OrderedDict
from typing import Final

# Databases that one thread has a probe for; the one that was not needed for the longest time is closed first.
PROBES_MAX: Final = 8


class _Probes(threading.local):
    """One connection for each file and thread. A file that was made anew under its name is another file."""

    def __init__(self) -> None:
        self._probes: OrderedDict[tuple[str, int], sqlite3.Connection] = OrderedDict()

    def of(self, path: str) -> sqlite3.Connection:
        key = (path, os.stat(path).st_ino)
        probe = self._probes.get(key)
        if probe is None:
            probe = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._probes[key] = probe
            if len(self._probes) > PROBES_MAX:
                self._probes.popitem(last=False)[1].close()
        self._probes.move_to_end(key)
        return probe


_probes = _Probes()


def may_be_immediate(path: str) -> bool:
    """False where nobody has the write lock of this file. In memory (an empty path) there is nobody else to fear."""
    if not path:
        return True
    probe = _probes.of(path)
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    probe.execute("ROLLBACK")
    return False
