"""A clock that stands still until a test moves it, for code that takes a clock: to expire keys, to forget offsets, to
end retries.

    clock = Clock()
    idempotency = Idempotency(engine, scope=caller, clock=clock)
    clock.ms += 86_400_000                      # a day later
    broker = Broker(clock=clock.time)           # which counts in seconds
"""

from typing import Final

# A day in 2026.
BEGINNING_MS: Final = 1_770_000_000_000


class Clock:
    """Set `ms` to move it forward or back. `sleep` moves it and returns at once."""

    def __init__(self, ms: int = BEGINNING_MS) -> None:
        """`ms` is the time in milliseconds since 1970."""
        self.ms = ms
        # How long each sleep was.
        self.sleeps: list[float] = []

    def __call__(self) -> int:
        """Milliseconds since 1970, as the application kit needs them."""
        return self.ms

    def time(self) -> float:
        """Seconds since 1970, like `time.time`."""
        return self.ms / 1000

    def monotonic(self) -> float:
        """The same seconds, to replace `time.monotonic`."""
        return self.time()

    def sleep(self, seconds: float, /) -> None:
        """Move the clock forward, to replace `time.sleep`."""
        self.ms += round(seconds * 1000)
        self.sleeps.append(seconds)
