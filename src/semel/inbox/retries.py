"""How often a failing message is tried, and which errors do not count as attempts.

An error that passes by itself is not the event's fault: another transaction was in the way, or a system is away. The
loop waits until it has passed, and does not put a good event aside because of it. After too many such errors in a row,
the loop leaves the message for a later turn, so that it can poll its broker in between. This module must never wait,
nor use a database; random numbers come in as an argument.
"""

import logging
from collections.abc import Callable

from semel.database import TransactionBroken
from semel.database import is_passing as is_passing_database
from semel.database.errors import causes, kind_of, raised_by, singly
from semel.inbox.events import IdentityIsPlace, Message, Outcome, Version
from semel.inbox.quarantine import one_line
from semel.retries.backoff import Retries, is_no_answer

# -- outages -----------------------------------------------------------------------------------------------------------


Passing = Callable[[BaseException], bool]
"""Says whether an error passes by itself, and so is not the message's fault."""

logger = logging.getLogger("semel.inbox")


def is_passing(error: BaseException) -> bool:
    """Whether an error passes by itself: contention in a database, or a system that does not answer."""
    return all(
        is_passing_database(single) or any(is_no_answer(one) for one in causes(single)) for single in singly(error)
    )


class Outage:
    """The present outage. It is logged once after it has begun, and once when it is over."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._count = 0
        self._kind = ""

    @property
    def why(self) -> str | None:
        """The kind of the error of an outage that lasts; a few errors are none. A probe shows it to anybody, and the
        text of an error may have rows, or a URL with a password."""
        return self._kind if self._count >= self._retries.attempts else None

    def wait_seconds(self, error: BaseException, chance: float) -> float:
        """How long to wait after this error: longer each time, until the outage is over."""
        self._count += 1
        self._kind = kind_of(error)
        # A few errors are normal, for example if two transactions want the same row, so the first ones are not logged.
        if self._count == self._retries.attempts:
            logger.warning("waiting: %s", one_line(f"{type(error).__name__}: {raised_by(error)}"))
        return self._retries.wait_seconds(self._count, chance)

    def is_over(self) -> None:
        if self._count >= self._retries.attempts:
            logger.warning("going on: the error has passed")
        self._count = 0


# -- one message -------------------------------------------------------------------------------------------------------


class Attempts:
    def __init__(self, retries: Retries, outage: Outage, passing: Passing, chance: Callable[[], float]) -> None:
        self.identity: str | Version | None = None
        self.failed = 0
        # Why the message is to be put aside.
        self.failure: Exception | None = None
        # The handler may have committed the claim before it failed.
        self.broken: TransactionBroken | None = None
        self._held_up = 0
        self._retries = retries
        self._outage = outage
        self._passing = passing
        self._chance = chance

    @property
    def are_used_up(self) -> bool:
        """Whether to put the message aside now."""
        return self.failed >= self._retries.attempts

    @property
    def are_held_up(self) -> bool:
        """Whether errors that pass have held the message up so often that this turn is over."""
        return self._held_up >= self._retries.attempts

    def wait_seconds(self, error: Exception, message: Message) -> float:
        """How long to wait after this failure. An error for which no message may be put aside is raised."""
        if isinstance(error, IdentityIsPlace):
            raise error
        if isinstance(error, TransactionBroken):
            self.broken = error
        if self._passing(error):
            self._held_up += 1
            return self._outage.wait_seconds(error, self._chance())
        if self.are_used_up:
            raise error
        self.failed += 1
        self.failure = error
        logger.warning(
            "attempt %d of %d to handle %s has failed",
            self.failed,
            self._retries.attempts,
            self._name_of(message),
            exc_info=error,
            extra=self._ids_of(message),
        )
        return 0.0 if self.are_used_up else self._retries.wait_seconds(self.failed, self._chance())

    def tell(self, outcome: Outcome, message: Message) -> None:
        """Log a message that was put aside; an error, because somebody has to do something about it."""
        if outcome in (Outcome.QUARANTINED, Outcome.GAP):
            error = self.failure
            reason = "" if error is None else f": {one_line(f'{type(error).__name__}: {error}')}"
            logger.error(
                "put aside %s%s; see `semel inbox quarantine list`",
                self._name_of(message),
                reason,
                exc_info=None if self.failed else error,
                extra=self._ids_of(message),
            )

    def _ids_of(self, message: Message) -> dict[str, object]:
        """For a log that keeps fields."""
        event = None if self.identity is None else str(self.identity)
        return {"event": event, "topic": message.topic, "partition": message.partition, "offset": message.offset}

    def _name_of(self, message: Message) -> str:
        name = "an event" if self.identity is None else f"event {one_line(str(self.identity))}"
        return f"{name} at offset {message.offset} of {message.topic}:{message.partition}"
