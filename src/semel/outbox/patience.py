"""What a relay does while the database or the brokers are away: it waits, says so once, and goes on.

This must never wait for what waiting does not mend.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from semel.database import is_passing
from semel.database.errors import one_line

T = TypeVar("T")

logger = logging.getLogger("semel.outbox")

DATABASE: Final = "the database"
BROKERS: Final = "the brokers"
PUBLISHER: Final = "the publisher's name"
_PAUSE_SECONDS: Final = 0.5


class Stopped(Exception):
    """The relay is to stop, and was waiting."""


class Patience:
    """One for each thread of a relay; any thread may ask what is waited for."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._missing: dict[str, str] = {}

    @property
    def waits_for(self) -> str | None:
        """What is missing, and why; None if nothing is."""
        return next((f"{what}: {why}" for what, why in self._missing.copy().items()), None)

    def with_database(self, work: Callable[[], T]) -> T:
        """Do it until the database lets it be done. It is done again as a whole, and has to be made for that."""
        while True:
            try:
                done = work()
            except SQLAlchemyError as error:
                if not is_passing(error):
                    raise
                self.wait_for(DATABASE, one_line(error))
            else:
                self.is_back(DATABASE)
                return done

    def wait_for(self, what: str, why: str) -> None:
        """A moment; `Stopped` if the relay is to stop."""
        is_news = what not in self._missing
        self._missing[what] = why
        if is_news:
            logger.warning("waiting for %s: %s", what, why)
        if self._stopping.wait(_PAUSE_SECONDS):
            raise Stopped

    def is_back(self, what: str) -> None:
        if self._missing.pop(what, None) is not None:
            logger.warning("%s: there again", what)
