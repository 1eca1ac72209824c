"""Every kind of fault that a run of histories has to have seen: one that never fired proves nothing."""

from collections import Counter
from typing import Final

KINDS: Final = (
    # The network.
    *("request lost", "answer lost", "cut short", "in pieces", "late request", "late answer", "held back", "cut off"),
    *("answers untaken", "half-open connection", "client gave up waiting", "repeated on purpose", "paused client"),
    *("silent member", "member that leaves", "static member that returns"),
    "records compacted away",
    "topic made anew",
    # The disk.
    *("crash before", "crash after", "torn", "EIO", "ENOSPC", "failed sync", "slow disk"),
    *("lost write", "partly lost write", "lost name", "lost size"),
    # The process, the machine and the clock.
    *("kill", "process killed", "power lost", "orderly restart", "stopped serving", "clock set"),
    "long outage",
    *("crash during recovery", "recovery refused by the disk"),
)


def never_fired(fired: Counter[str]) -> list[str]:
    """The kinds that a run has not seen."""
    return [kind for kind in KINDS if not fired[kind]]
