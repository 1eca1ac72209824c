"""A clock that stands still until a test moves it, for whatever takes a clock: keys that expire, offsets that are
forgotten, patience that ends.

    clock = Clock()
    idempotency = Idempotency(engine, scope=caller, clock=clock)
    clock.ms += 86_400_000                      # a day later
    broker = Broker(clock=clock.time)           # which counts in seconds
"""

from typing import Final

# A day in 2026.
BEGINNING_MS: Final = 1_770_000_000_000


class Clock:
    """Set `ms` to move it, forth or back. A program that sleeps by it moves it, and goes on at once."""

    def __init__(self, ms: int = BEGINNING_MS) -> None:
        """`ms` is the time at which it stands: milliseconds since 1970."""
        self.ms = ms
        # How long each sleep was.
        self.sleeps: list[float] = []

    def __call__(self) -> int:
        """Milliseconds since 1970, as the pieces of the application kit want them."""
        return self.ms

    def time(self) -> float:
        """Seconds since 1970, as `time.time` gives them."""
        return self.ms / 1000

    def monotonic(self) -> float:
        """The same seconds, to replace `time.monotonic`."""
        return self.time()

    def sleep(self, seconds: float, /) -> None:
        """Move the clock forward, to replace `time.sleep`."""
        self.ms += round(seconds * 1000)
        self.sleeps.append(seconds)
