"""Retries: a client tries again until a deadline, with longer pauses each time; progress moves the deadline. After some
seconds it logs once what it waits for, and later once that the wait is over.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from semel.client.connection import ConnectionLost, ConnectionRefused
from semel.client.errors import LogError, UnknownTopic, Unreachable
from semel.client.settings import ClientSettings

T = TypeVar("T")

# A broker may not know a topic yet that was made a moment ago, and one that has just started may not listen yet.
# After this time the topic, or the broker, counts as missing.
MISSING_SECONDS_MAX: Final = 2.0
# How soon, and for how long, the client asks again while the broker still ends the previous transaction.
CONCLUDING_MS: Final = 20
CONCLUDING_SECONDS_MAX: Final = 1.0
# After this time the client logs what it waits for.
SAY_SECONDS: Final = 5.0
API_TIMEOUT: Final = "kafka.default.api.timeout.ms"

_LOG: Final = logging.getLogger(__name__)


class Moved(LogError):
    """This broker cannot serve the partition now; another broker can, or this one later."""


class Concluding(Moved):
    """The broker still ends the previous transaction, which takes a few milliseconds."""


# The errors that a retry may mend.
MENDABLE: Final = (ConnectionLost, Moved, UnknownTopic)


class Clock(Protocol):
    """A clock that can wait: the module `time`, or a test's own."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class Patience:
    """The retries of one request."""

    def __init__(
        self,
        settings: ClientSettings,
        timeout_ms: int | None = None,
        setting: str = API_TIMEOUT,
        *,
        clock: Clock = time,
    ) -> None:
        """`setting` is the option that sets the timeout; the message names it."""
        self._clock = clock
        self._settings = settings
        self._timeout_ms = settings.api_timeout_ms if timeout_ms is None else timeout_ms
        self._setting = setting
        self._has_said = False
        self.progress()

    def progress(self) -> None:
        """The attempt made progress, so the deadline starts again."""
        self.end()
        self._since = self._clock.monotonic()
        self._missing_since: float | None = None
        self._backoff_ms = self._settings.retry_backoff_ms

    def end(self) -> None:
        """The wait is over; log that, if the wait was logged."""
        if self._has_said:
            _LOG.warning("going on: what was waited for is there")
        self._has_said = False

    def patiently(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is repeated while a retry may succeed."""
        while True:
            try:
                outcome = attempt()
                self.end()
                return outcome
            except MENDABLE as reason:
                self.wait(reason)

    def wait(self, reason: LogError) -> None:
        """Wait a little before the next attempt, or raise if the deadline has passed."""
        now = self._clock.monotonic()
        waited = now - self._since
        if not isinstance(reason, UnknownTopic | ConnectionRefused):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since >= MISSING_SECONDS_MAX:
            if isinstance(reason, UnknownTopic):
                raise reason
            raise Unreachable(f"{reason}. Start the broker, or correct the address (bootstrap.servers)") from None
        if waited * 1000 >= self._timeout_ms:
            raise Unreachable(
                f"{reason} (tried for {waited:.0f} s; {self._setting} is {self._timeout_ms} ms)"
            ) from None
        if waited >= SAY_SECONDS and not self._has_said:
            self._has_said = True
            _LOG.warning("waiting: %s (tried for %.0f s; %s is %d ms)", reason, waited, self._setting, self._timeout_ms)
        if isinstance(reason, Concluding) and waited < CONCLUDING_SECONDS_MAX:
            self._clock.sleep(CONCLUDING_MS / 1000)
            return
        # Random, so that tasks that lost the same broker at the same time do not all reconnect at the same time.
        self._clock.sleep(self._backoff_ms / 1000 * random.uniform(0.8, 1.2))
        self._backoff_ms = min(2 * self._backoff_ms, self._settings.retry_backoff_ms_max)
