"""The retry budget: limits the retries of all callers of one process together, to a share of the first attempts and a
small rate.

It is a token bucket, counted in thousandths. A first attempt adds a share of a token, time adds some, and a retry takes
one. While a service works, the bucket is full and has no effect. In an outage it becomes empty, and from then on a call
fails after its first attempt.

A loop, such as a relay, must not fail: it has to keep trying. It takes its token on credit, and gets the time to wait
until the debt is paid, so all loops of a process together retry no faster than time fills the bucket.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from semel.retries.counters import RETRIES

_WHOLE: Final = 1000

# The values of Finagle's retry budget (twitter.github.io/finagle/guide/Clients.html#retries): one retry for five
# requests, and ten a second, saved up for ten seconds, so that a program with few requests can retry, too.
SHARE: Final = 0.2
PER_SECOND: Final = 10.0
RESERVE: Final = 100


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class RetryBudget:
    """A first attempt adds `share` retries, each second adds `per_second`, and at most `reserve` are saved. The budget
    begins full. Any thread may use it."""

    def __init__(
        self,
        share: float = SHARE,
        *,
        per_second: float = PER_SECOND,
        reserve: int = RESERVE,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`clock` returns milliseconds and never goes back."""
        if not 0 <= share <= 1 or per_second <= 0 or reserve < 1:
            raise ValueError(
                f"a share is 0 to 1, a rate more than 0 and a reserve 1 at least: {share=}, {per_second=}, {reserve=}"
            )
        self._share = round(share * _WHOLE)
        # One token each second is one thousandth each millisecond.
        self._per_ms = per_second
        self._reserve = reserve * _WHOLE
        self._clock = clock
        self._mutex = threading.Lock()
        self._tokens = float(self._reserve)
        self._filled_ms = clock()

    def earn(self) -> None:
        """Call this for each first attempt."""
        with self._mutex:
            self._fill()
            self._tokens = min(self._tokens + self._share, self._reserve)

    def take(self) -> bool:
        """Take a token for a retry. False if there is none: then do not retry."""
        with self._mutex:
            self._fill()
            is_there = self._tokens >= _WHOLE
            if is_there:
                self._tokens -= _WHOLE
        RETRIES.add("made" if is_there else "refused")
        return is_there

    def take_on_credit(self) -> float:
        """Take a token for a retry that has to be made, and return how many seconds to wait before it."""
        with self._mutex:
            self._fill()
            self._tokens -= _WHOLE
            wait_seconds = max(-self._tokens, 0) / self._per_ms / 1000
        RETRIES.add("held_back" if wait_seconds else "made")
        return wait_seconds

    @property
    def tokens(self) -> float:
        """How many retries may be made now; below 0 if loops have taken some on credit."""
        with self._mutex:
            self._fill()
            return self._tokens / _WHOLE

    def _fill(self) -> None:
        now_ms = self._clock()
        self._tokens = min(self._tokens + (now_ms - self._filled_ms) * self._per_ms, self._reserve)
        self._filled_ms = now_ms


PROCESS_BUDGET: Final = RetryBudget()
"""The budget that HTTP clients, inboxes and relays share by default."""
