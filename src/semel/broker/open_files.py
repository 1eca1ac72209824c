"""How the files that a process may open are shared: connections leave enough for the log. Otherwise clients that only
connect could keep the log from opening a file, and then it can neither accept a write nor make one durable.
"""

import logging
import resource
from dataclasses import replace
from typing import Final

from semel.broker.events import Events
from semel.broker.limits import Limits
from semel.storage.segment import OPEN_SEGMENTS_MAX

# Files besides connections and segments: the journal, a checkpoint, listeners, locks, the connections to a store.
_OTHERS: Final = 64


def open_segments_max() -> int:
    """How many segments may be open at once."""
    allowed = _allowed()
    return OPEN_SEGMENTS_MAX if allowed is None else min(OPEN_SEGMENTS_MAX, allowed // 4)


def within_open_files(limits: Limits, events: Events) -> Limits:
    """These limits with no more connections than the system allows besides the files of the log."""
    allowed = _allowed()
    if allowed is None:
        return limits
    connections_max = max(allowed - open_segments_max() - _OTHERS, allowed // 4)
    if connections_max >= limits.connections_max:
        return limits
    events.tell(logging.WARNING, "connections_limited", connections_max=connections_max, open_files_max=allowed)
    return replace(limits, connections_max=connections_max)


def _allowed() -> int | None:
    """How many files this process may open; None if the system sets no limit."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if allowed == resource.RLIM_INFINITY else allowed
