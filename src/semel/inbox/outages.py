"""Which errors say nothing of an event: somebody was in the way, or something is away. They are waited for.

An event that is put aside for such an error was good. This must never wait itself.
"""

import errno
import logging
import socket
from typing import Final

from semel.database import is_passing as is_passing_database
from semel.database.errors import causes, is_of_a_kind, singly
from semel.inbox.asides import one_line
from semel.inbox.retries import Retries

# From here on waits are as long as they get.
_COUNT_MAX: Final = 32

logger = logging.getLogger("semel.inbox")

_NO_WAY_THERE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
# What clients of HTTP raise where there was no answer; they do not say what of.
_NO_ANSWER: Final = frozenset(
    {
        *("httpx.NetworkError", "httpx.TimeoutException", "httpx.RemoteProtocolError"),
        *("requests.exceptions.ConnectionError", "requests.exceptions.Timeout"),
        "aiohttp.client_exceptions.ClientConnectionError",
    }
)


def is_passing(error: BaseException) -> bool:
    """Whether it passes by itself: contention in a database, or something that does not answer."""
    return all(
        is_passing_database(single) or any(_is_no_answer(one) for one in causes(single)) for single in singly(error)
    )


def _is_no_answer(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _NO_WAY_THERE:
        return True
    return is_of_a_kind(error, _NO_ANSWER)


class Outage:
    """What is waited for at present. It is said once when it begins, and once when it is over."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._count = 0

    def wait_seconds(self, error: BaseException, chance: float) -> float:
        """How long to wait after this error: longer each time, until it is over."""
        self._count += 1
        # Of two who want the same row one is turned away, now and then. That is no news.
        if self._count == self._retries.attempts:
            logger.warning("waiting: %s", one_line(f"{type(error).__name__}: {error}"))
        # Far beyond the limit of any wait, and no farther.
        return self._retries.wait_seconds(min(self._count, _COUNT_MAX), chance)

    def is_over(self) -> None:
        if self._count >= self._retries.attempts:
            logger.warning("going on: what was waited for is there again")
        self._count = 0
