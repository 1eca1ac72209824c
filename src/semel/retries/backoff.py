"""How many attempts there are, how long to wait in between, and which errors say that there was no answer. Pure."""

import errno
import socket
from dataclasses import dataclass
from typing import Final

from semel.database.errors import is_of_a_kind


@dataclass(frozen=True, slots=True)
class Retries:
    """How often something is tried, and how long is waited in between.

    In the inbox the message's partition waits meanwhile, to keep its order: so all waits together have to stay far
    below the time after which the group takes a silent consumer for dead (`max.poll.interval.ms`, five minutes).
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
        wait_ms = min(self.first_wait_ms << min(attempt - 1, _DOUBLINGS_MAX), self.wait_ms_max)
        return wait_ms * (1 - chance / 2) / 1000


# From here on waits are as long as they get.
_DOUBLINGS_MAX: Final = 32

_NO_WAY_THERE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
# What clients of HTTP raise where there was no answer, or not all of it; they do not say what of.
_NO_ANSWER: Final = frozenset(
    {
        *("httpx.NetworkError", "httpx.TimeoutException", "httpx.RemoteProtocolError"),
        *("requests.exceptions.ConnectionError", "requests.exceptions.Timeout"),
        "requests.exceptions.ChunkedEncodingError",
        "aiohttp.client_exceptions.ClientConnectionError",
    }
)


def is_no_answer(error: BaseException) -> bool:
    """Whether a system that was asked did not answer. It may have done what it was asked for."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _NO_WAY_THERE:
        return True
    return is_of_a_kind(error, _NO_ANSWER)
