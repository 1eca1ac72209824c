"""Repeats a work of housekeeping, such as that of a reaper, until it is told to end. Any number of copies may run."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from semel.database import is_passing
from semel.database.errors import one_line

logger: Final = logging.getLogger("semel.reaper")


class Repeated:
    """`work` says what it has done, in a line."""

    role: Final = "active"

    def __init__(self, work: Callable[[], str], every_seconds: float) -> None:
        self._work = work
        self._every_seconds = every_seconds
        self._stopping = threading.Event()
        self._failure = "the first pass has not ended"

    def run(self) -> None:
        """Errors of the database that pass by themselves are waited out."""
        while not self._stopping.is_set():
            try:
                logger.info("%s", self._work())
                self._failure = ""
            except Exception as error:
                if not is_passing(error):
                    raise
                self._failure = f"the last pass failed: {one_line(error)}"
                logger.warning("%s", self._failure)
            self._stopping.wait(self._every_seconds)

    def stop(self) -> None:
        self._stopping.set()

    def why_not_ready(self, behind_seconds: float) -> str:
        return self._failure
