"""How one message fares in one go: what it failed of by itself is counted, what passes is not.

It waits for nothing and touches no database. A message that was held up too often in one go is left for the next one,
so that a loop can talk to its broker in between.
"""

from collections.abc import Callable

from semel.inbox.admission import Passing
from semel.inbox.errors import IdentityIsPlace
from semel.inbox.outages import Outage
from semel.inbox.retries import Retries


class Attempts:
    def __init__(self, retries: Retries, outage: Outage, passing: Passing, chance: Callable[[], float]) -> None:
        self.failed = 0
        self.failure: Exception | None = None
        self._held_up = 0
        self._retries = retries
        self._outage = outage
        self._passing = passing
        self._chance = chance

    @property
    def are_used_up(self) -> bool:
        """Whether the message is to be put aside."""
        return self.failed >= self._retries.attempts

    @property
    def are_held_up(self) -> bool:
        """Whether this go is over, and nothing is known of the message."""
        return self._held_up >= self._retries.attempts

    def wait_seconds(self, error: Exception) -> float:
        """How long to wait after this failure. What cannot be put aside is raised."""
        if isinstance(error, IdentityIsPlace):
            raise error
        if self._passing(error):
            self._held_up += 1
            return self._outage.wait_seconds(error, self._chance())
        if self.are_used_up:
            raise error
        self.failed += 1
        self.failure = error
        return 0.0 if self.are_used_up else self._retries.wait_seconds(self.failed, self._chance())
