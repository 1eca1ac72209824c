"""What the two loops share: how they are made, what they count, and when it is time for what is no message's business.

It does no IO.
"""

import random
from collections.abc import Callable
from typing import Generic, TypeVar

from semel.database.clock import Clock, now_ms
from semel.inbox.admission import Admission, Identity, Passing
from semel.inbox.attempts import Attempts
from semel.inbox.brokers import Brokers
from semel.inbox.identities import checked_consumer
from semel.inbox.outages import Outage, is_passing
from semel.inbox.outcomes import Counts, Outcome
from semel.inbox.progress import Progress
from semel.inbox.reaper import checked_retention
from semel.inbox.retries import Retries
from semel.inbox.settings import REAP_EVERY_MS, RETRY_EVERY_MS
from semel.inbox.times import RETENTION_MS

EngineT = TypeVar("EngineT")


class Looping(Generic[EngineT]):
    # Of the run under way.
    _brokers: Brokers

    def __init__(
        self,
        engine: EngineT,
        *,
        consumer: str,
        identity: Identity,
        first_version: int = 1,
        retries: Retries | None = None,
        passing: Passing = is_passing,
        retention_ms: int = RETENTION_MS,
        clock: Clock = now_ms,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`identity` finds an event's id, or its `Version`. Errors that are `passing` are waited for, and never count
        as attempts. `chance` is at least 0 and less than 1."""
        self.counts = Counts()
        self._admission = Admission(checked_consumer(consumer), identity, first_version, passing, clock)
        self._engine = engine
        self._retries = retries or Retries()
        self._passing = passing
        self._outage = Outage(self._retries)
        self._retention_ms = checked_retention(retention_ms)
        self._clock = clock
        self._chance = chance
        self._progress = Progress()
        self._is_stopping = False
        self._retrying = Every(RETRY_EVERY_MS, clock)
        self._reaping = Every(REAP_EVERY_MS, clock)

    def stop(self) -> None:
        """Let `run` return after the message it is at; from any thread or a signal handler. One that fails is not
        tried again, and left to whoever runs next."""
        self._is_stopping = True

    def _count(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self.counts = self.counts.with_one(outcome)

    def _count_retried(self) -> None:
        self.counts = self.counts._replace(retried=self.counts.retried + 1)

    def _new_attempts(self) -> Attempts:
        return Attempts(self._retries, self._outage, self._passing, self._chance)

    def _outage_seconds(self, error: Exception) -> float:
        """How long to wait for what is in the way; raises what does not pass."""
        if not self._passing(error):
            raise error
        return self._outage.wait_seconds(error, self._chance())


class Every:
    """Something that is due at once, and then again whenever so much time has gone by since it last was."""

    def __init__(self, period_ms: int, clock: Clock) -> None:
        self._period_ms = period_ms
        self._clock = clock
        self._due_at_ms = 0

    def is_due(self) -> bool:
        """Whether it is; whoever asks does it then."""
        at_ms = self._clock()
        # A clock that was ahead and went back must not keep it from being due until then.
        is_due = not self._due_at_ms - self._period_ms <= at_ms < self._due_at_ms
        if is_due:
            self._due_at_ms = at_ms + self._period_ms
        return is_due

    def make_due(self) -> None:
        """It was not finished, and goes on when it is asked for next."""
        self._due_at_ms = 0
