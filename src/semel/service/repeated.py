"""Repeats a work of housekeeping, such as that of a reaper, until it is told to end. Any number of copies may run."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from semel.database import is_passing
from semel.database.errors import kind_of, one_line
from semel.retries.backoff import Retries

# How long after a failed pass the next one begins.
_RETRIES: Final = Retries(first_wait_ms=1_000, wait_ms_max=60_000)

logger: Final = logging.getLogger("semel.reaper")


class Repeated:
    """`work` says what it has done, in a line."""

    role: Final = "active"

    def __init__(
        self, work: Callable[[], str], every_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._every_seconds = every_seconds
        self._stopping = threading.Event()
        self._clock = clock
        self._failure = "the first pass has not ended"
        # When the present pass began; None between two passes.
        self._began: float | None = None

    def run(self) -> None:
        """Errors of the database that pass by themselves are waited out."""
        failed = 0
        while not self._stopping.is_set():
            self._began = self._clock()
            try:
                logger.info("%s", self._work())
                self._failure, failed = "", 0
            except Exception as error:
                if not is_passing(error):
                    raise
                self._failure, failed = f"the last pass failed: {kind_of(error)}", failed + 1
                logger.warning("the last pass failed: %s", one_line(error))
            self._began = None
            # No chance in it: few reapers run, and passes take unlike times.
            again_seconds = _RETRIES.wait_seconds(failed, 0.0) if failed else self._every_seconds
            self._stopping.wait(min(again_seconds, self._every_seconds))

    def stop(self) -> None:
        self._stopping.set()

    def why_not_ready(self, behind_seconds: float) -> str:
        began = self._began
        age_seconds = 0.0 if began is None else self._clock() - began
        if not self._failure and age_seconds > behind_seconds:
            return f"behind: the present pass has run for {age_seconds:.0f} s"
        return self._failure
