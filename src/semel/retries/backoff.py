"""How many attempts to make, how long to wait in between, and which errors mean that there was no answer. Pure."""

import errno
import socket
from dataclasses import dataclass
from typing import Final

from semel.database.dialects import is_of_a_kind


@dataclass(frozen=True, slots=True)
class Retries:
    """How many attempts to make, and how long to wait in between.

    In the inbox the message's partition waits meanwhile, to keep its order. So all waits together have to stay far
    below the time after which the group removes a consumer that does not poll (`max.poll.interval.ms`, five minutes).
    """

    attempts: int = 5
    first_wait_ms: int = 100
    wait_ms_max: int = 10_000

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 < self.first_wait_ms <= self.wait_ms_max:
            raise ValueError(f"there has to be an attempt, and a wait that is not above its limit: {self}")

    def wait_seconds(self, attempt: int, chance: float) -> float:
        """How long to wait after the attempt of this number (from 1): twice as long each time, minus a random part of
        up to a half, so that clients that failed together do not retry together. `chance` is from 0 to below 1."""
        wait_ms = min(self.first_wait_ms << min(attempt - 1, _DOUBLINGS_MAX), self.wait_ms_max)
        return wait_ms * (1 - chance / 2) / 1000


# More doublings than this never make a wait longer.
_DOUBLINGS_MAX: Final = 32

_NO_WAY_THERE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
# The errors of HTTP clients for no answer or an incomplete one; they have no error number.
_NO_ANSWER: Final = frozenset(
    {
        *("httpx.NetworkError", "httpx.TimeoutException", "httpx.RemoteProtocolError"),
        *("httpx2.NetworkError", "httpx2.TimeoutException", "httpx2.RemoteProtocolError"),
        *("requests.exceptions.ConnectionError", "requests.exceptions.Timeout"),
        "requests.exceptions.ChunkedEncodingError",
        *("aiohttp.client_exceptions.ClientConnectionError", "aiohttp.client_exceptions.ClientPayloadError"),
    }
)


def is_no_answer(error: BaseException) -> bool:
    """Whether another system did not answer. It may have done what it was asked to do."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _NO_WAY_THERE:
        return True
    return is_of_a_kind(error, _NO_ANSWER)
