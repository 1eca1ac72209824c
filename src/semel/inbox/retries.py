"""How often a message that fails is tried, and which errors do not count as its own.

An error that passes by itself is not the event's fault: another transaction was in the way, or a system is away. The
loop waits until it has passed, and does not put a good event aside for it. A message that was held up too often in one
go is left for the next one, so that a loop can talk to its broker in between. This module must never wait itself, nor
touch a database; chance comes in as an argument.
"""

import logging
from collections.abc import Callable

from semel.database import is_passing as is_passing_database
from semel.database.errors import causes, singly
from semel.inbox.events import IdentityIsPlace
from semel.inbox.quarantine import one_line
from semel.retries.backoff import Retries, is_no_answer

# -- outages -----------------------------------------------------------------------------------------------------------


Passing = Callable[[BaseException], bool]
"""Whether an error passes by itself, and so is not the message's fault."""

logger = logging.getLogger("semel.inbox")


def is_passing(error: BaseException) -> bool:
    """Whether an error passes by itself: contention in a database, or a system that does not answer."""
    return all(
        is_passing_database(single) or any(is_no_answer(one) for one in causes(single)) for single in singly(error)
    )


class Outage:
    """What is waited for at present. It is said once when it begins, and once when it is over."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._count = 0

    def wait_seconds(self, error: BaseException, chance: float) -> float:
        """How long to wait after this error: longer each time, until it is over."""
        self._count += 1
        # If two transactions want the same row, one is turned away now and then. That is no news.
        if self._count == self._retries.attempts:
            logger.warning("waiting: %s", one_line(f"{type(error).__name__}: {error}"))
        return self._retries.wait_seconds(self._count, chance)

    def is_over(self) -> None:
        if self._count >= self._retries.attempts:
            logger.warning("going on: the error has passed")
        self._count = 0


# -- one message -------------------------------------------------------------------------------------------------------


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
