"""How often a message that fails is tried, and how long to wait in between. Chance comes in as an argument."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a message is tried, and how long is waited in between.

    The message's partition waits meanwhile, to keep its order: so all waits together have to stay far below the time
    after which the group takes a silent consumer for dead (`max.poll.interval.ms`, five minutes).
    """

    attempts: int = 5
    first_wait_ms: int = 100
    wait_ms_max: int = 10_000

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 < self.first_wait_ms <= self.wait_ms_max:
            raise ValueError(f"there has to be an attempt, and a wait that is not above its limit: {self}")

    def wait_seconds(self, attempt: int, chance: float) -> float:
        """After the attempt of this number (from 1): twice as long each time, less up to a half, so that many who
        failed together do not come back together. `chance` is at least 0 and less than 1."""
        wait_ms = min(self.first_wait_ms << (attempt - 1), self.wait_ms_max)
        return wait_ms * (1 - chance / 2) / 1000
