"""Waiting for what gives no signal: the files of another process, rows of a database, what a cluster says of itself.

Whatever does give one, an event, a pipe, the end of a process, is waited for itself. This is the one place in which
tests sleep.
"""

import time
from collections.abc import Callable
from typing import TypeVar

# Far beyond what it takes: a busy machine is not a wrong answer.
SECONDS_MAX = 120.0
_PAUSE_SECONDS = 0.01

T = TypeVar("T")


def eventually(holds: Callable[[], T], seconds_max: float = SECONDS_MAX) -> T:
    """What `holds` answers as soon as that is true, or when the time is over: `assert eventually(...), "none came"`."""
    deadline = time.monotonic() + seconds_max
    while not (answer := holds()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return answer
