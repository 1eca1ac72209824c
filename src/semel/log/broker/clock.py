"""The clocks of one broker: the time of day, which an operator may set, and a steady clock, which cannot be set.

Times that outlive the process or that clients see are the time of day. Deadlines and measurements use the steady clock.
"""

import asyncio
from collections.abc import Callable


class Clock:
    """The time since one broker was started, and the time of day."""

    def __init__(self, time_of_day: Callable[[], float], loop: asyncio.AbstractEventLoop) -> None:
        self._time_of_day = time_of_day
        self._loop = loop
        self._loop_began_s = time_of_day() - loop.time()

    def now_ms(self) -> int:
        """The time of day."""
        return int(self._time_of_day() * 1000)

    def steady_ms(self) -> int:
        """The time of day at the start plus the time since, even if the clock was set: for deadlines."""
        return int((self._loop_began_s + self._loop.time()) * 1000)

    def uptime(self) -> float:
        """Seconds on the steady clock, from an arbitrary beginning: to measure durations."""
        return self._loop.time()

    def skip(self, seconds: float) -> None:
        """Move the clock for deadlines forward by this time at once. For tests."""
        self._loop_began_s += seconds
