"""The clock of outbox, inbox and HTTP keys. Times are milliseconds since 1970."""

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
