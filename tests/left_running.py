"""What a test has started in its worker and leaves running: it would reach into the tests after it.

A relay whose broker is away goes on trying when its test is over, and writes into the broker of a later test that gets
the same port, or that is the same broker, started again. What fixtures start before the test itself begins may go on.
This module must never end any of it: a test ends what it starts.
"""

from __future__ import annotations

import gc
import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from eventually import eventually

# A thread that was told to end needs a moment for it, and on a busy machine some.
SECONDS_MAX: Final = 20.0
_TASKS: Final = Path("/proc/self/task")
# Threads that write to a broker.
_THREADS: Final = ("semel-outbox-", "semel-publish-")
_COMMAND: Final = re.compile(r"\S+ (-m semel|\S+/semel)\b")


def running() -> Counter[str]:
    """How many relays and publishers there are by the names of their threads, and commands of semel by their words."""
    found = Counter(thread.name for thread in threading.enumerate() if thread.name.startswith(_THREADS))
    children = _text(_TASKS / str(threading.get_native_id()) / "children").split()
    # One that has ended, and is not waited for yet, has no command line.
    lines = [_text(Path(f"/proc/{number}/cmdline")).replace("\0", " ").strip() for number in children]
    return found + Counter(line for line in lines if _COMMAND.match(line))


def left_running(
    before: Counter[str], now: Callable[[], Counter[str]] = running, seconds_max: float = SECONDS_MAX
) -> Counter[str]:
    """What there is more of than before, and does not end by itself within a moment."""
    has_ended = eventually(lambda: now() <= before, seconds_max)
    return Counter() if has_ended else now() - before


def clients_of_librdkafka() -> int:
    """Each has one such thread, of which Python does not know. What only a circle of garbage holds does not count."""
    gc.collect()
    return sum(_text(_TASKS / task / "comm").strip() == "rdk:main" for task in os.listdir(_TASKS))


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""
