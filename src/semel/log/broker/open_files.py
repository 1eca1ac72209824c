"""How the files that a process may open are shared: connections leave enough for the log. Otherwise clients that only
connect could keep the log from opening a file, and then it can neither accept a write nor make one durable.
"""

import logging
import os
import resource
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from semel.log.broker.events import Events
from semel.log.broker.forwarder import UNDER_WAY_MAX
from semel.log.broker.limits import Limits
from semel.log.storage.segment_files import OPEN_SEGMENTS_MAX

# Files besides connections and segments: the journal, a checkpoint, what compaction reads and writes, listeners, locks,
# and the connections of those who read metrics, of which there are up to 16.
_OTHERS: Final = 64
# The files of a broker on a store besides these: its calls, each with up to two files or connections.
_OF_STORE: Final = 32
# What is open in a process where the system does not tell: the standard streams.
_STANDARD_STREAMS: Final = 3
# Where a program has opened nearly all that it may, a broker is made for this many all the same.
_FREE_MIN: Final = 16
# With fewer connections than this a broker warns, although nobody has asked for more.
_FEW_CONNECTIONS: Final = 100


class Shares(NamedTuple):
    """How many files each part of a broker may open, and how many its process may."""

    allowed: int
    connections_max: int
    segments_max: int
    forwarded_max: int


def shares_of_open_files(*, on_store: bool) -> Shares:
    """The shares of a broker that starts now, in what its process has not opened yet."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        allowed = sys.maxsize
    # A program that embeds a broker has files of its own.
    free = max(allowed - _open_now(), _FREE_MIN)
    segments_max = min(OPEN_SEGMENTS_MAX, free // 4)
    # A standby answers by itself what it does not forward.
    forwarded_max = min(UNDER_WAY_MAX, free // 8) if on_store else 0
    others = _OTHERS + (_OF_STORE if on_store else 0)
    connections_max = max(free - segments_max - forwarded_max - others, free // 4)
    return Shares(allowed, connections_max, segments_max, forwarded_max)


def within_open_files(limits: Limits, shares: Shares, events: Events) -> Limits:
    """These limits with no more connections than the shares allow. Clients that have not logged in get the same part of
    these places as of all others.
    """
    connections_max = shares.connections_max
    if connections_max >= limits.connections_max:
        return limits

    def lowered(limit: int) -> int:
        return min(limit, max(limit * connections_max // limits.connections_max, 1))

    is_asked_for = limits.connections_max != Limits().connections_max
    # Most programs may open 1,024 files. That is enough for hundreds of clients, and nothing to warn of.
    level = logging.WARNING if is_asked_for or connections_max < _FEW_CONNECTIONS else logging.INFO
    events.tell(level, "connections_limited", connections_max=connections_max, open_files_max=shares.allowed)
    return replace(
        limits,
        connections_max=connections_max,
        unknown_connections_max=lowered(limits.unknown_connections_max),
        unknown_connections_per_address_max=lowered(limits.unknown_connections_per_address_max),
    )


def _open_now() -> int:
    """How many files this process has open."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            # One of them is the directory itself, while it is listed.
            return len(os.listdir(directory)) - 1
    return _STANDARD_STREAMS
