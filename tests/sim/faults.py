"""Every kind of fault that a run of histories has to have seen: one that never fired proves nothing."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

# In the network, and among clients.
_COMMON: Final = (
    *("request lost", "answer lost", "cut short", "in pieces", "late request", "late answer", "held back", "cut off"),
    *("answers untaken", "half-open connection", "client gave up waiting", "repeated on purpose", "paused client"),
    *("silent member", "member that leaves", "static member that returns"),
    "records compacted away",
    "topic made anew",
    "clock set",
)
KINDS: Final = (
    *_COMMON,
    # The disk.
    *("crash before", "crash after", "torn", "EIO", "ENOSPC", "failed sync", "slow disk"),
    *("lost write", "partly lost write", "lost name", "lost size"),
    # The process, the machine and the clock.
    *("kill", "process killed", "power lost", "orderly restart", "stopped serving"),
    "long outage",
    *("crash during recovery", "recovery refused by the disk"),
)


KINDS_OF_PAIRS: Final = (
    *_COMMON,
    # The brokers.
    *("kill active", "kill standby", "freeze active", "freeze standby", "orderly restart", "disk wiped"),
    "lost before a checkpoint",
    *("takeover", "fenced", "history of 2 brokers", "history of 3 brokers"),
    # The store.
    *("store: late", "store: lost request", "store: lost answer", "store: conflict", "store: throttled"),
    *("store: slow", "store: landed again", "store away", "slot removed"),
)


def never_fired(fired: Counter[str], kinds: Sequence[str] = KINDS) -> list[str]:
    """The kinds that a run has not seen."""
    return [kind for kind in kinds if not fired[kind]]
