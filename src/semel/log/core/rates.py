"""A rate over the last ten seconds, and how long to wait until it is down to a limit, as Apache Kafka measures both.

Amounts are added up in windows of a second, of which eleven count: ten whole ones and the one that has just begun. A
window begins with the first amount that comes when the one before is a second old, so it may cover more than a second;
it counts until its last amount is eleven seconds old. If there is less history than that, the time before it counts as
idle: so a client may use at once the amount that it is allowed in ten seconds. Nothing here may know what is measured.
"""

from collections import deque
from typing import Final

WINDOW_MS: Final = 1_000
WINDOWS: Final = 11
# The shortest time over which a rate is measured.
SPAN_MS_MIN: Final = (WINDOWS - 1) * WINDOW_MS
# An amount of this age or older does not count any more.
AGE_MS_MAX: Final = WINDOWS * WINDOW_MS
# Thirty years.
_FOREVER_MS: Final = 10**12


class _Window:
    __slots__ = ("amount", "began_ms", "last_ms")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = self.last_ms = began_ms
        self.amount = 0.0


class Rate:
    """A rate. All times are milliseconds of a clock that never goes back."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        windows = self._windows
        self._forget(now_ms)
        if not windows or now_ms - windows[-1].began_ms >= WINDOW_MS:
            windows.append(_Window(now_ms))
        windows[-1].amount += amount
        windows[-1].last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        return 1000 * self._amount() / self._span_ms(now_ms)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long the rate takes to fall to `limit` for each second if nothing is added; 0 if it is not above it."""
        self._forget(now_ms)
        # For very small limits the quotient is infinite.
        return max(round(min(1000 * self._amount() / limit, _FOREVER_MS)) - self._span_ms(now_ms), 0)

    def _amount(self) -> float:
        return sum(window.amount for window in self._windows)

    def _span_ms(self, now_ms: int) -> int:
        """The time that the amounts span; if there are fewer than ten windows, the missing ones count as idle."""
        elapsed_ms = now_ms - self._windows[0].began_ms if self._windows else 0
        missing = max(WINDOWS - 1 - elapsed_ms // WINDOW_MS, 0)
        return elapsed_ms + missing * WINDOW_MS

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0].last_ms >= AGE_MS_MAX:
            self._windows.popleft()
