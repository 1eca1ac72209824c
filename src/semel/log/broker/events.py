"""The log for operators, one line for each event: `event=connection_closed peer=10.0.0.7:5123 reason="..."`.

All lines have the same form, so that they can be searched and counted. Text from clients is quoted and escaped, so that
a client cannot forge lines. If an event occurs too often, it is only counted, so that a flood of bad clients cannot
fill the disk. This file must never decide what happens next.
"""

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Final

from semel.log.broker.security_log import SECURITY_EVENTS, SecurityLog, clipped

logger = logging.getLogger("semel")

# The most lines for one kind of event in a period. The first line of the next period says how many were left out.
LINES_MAX: Final = 10
PERIOD_SECONDS: Final = 10.0

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/+\[\]-]+")


class Events:
    """The events of one broker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, security_log: SecurityLog | None = None) -> None:
        """Events about rights and logins also go to the security log, whatever the level of this log is."""
        self._clock = clock
        self._security_log = security_log
        self._periods: dict[str, _Period] = {}

    def tell(self, level: int, event: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Log an event with its fields. `error` adds a traceback, and is only for bugs in semel."""
        if self._security_log is not None and event in SECURITY_EVENTS:
            self._write_security(event, fields)
        if not logger.isEnabledFor(level):
            return
        now = self._clock()
        period = self._periods.get(event)
        if period is None or now - period.began >= PERIOD_SECONDS:
            if period is not None and period.lines > LINES_MAX:
                fields["left_out"] = period.lines - LINES_MAX
            period = self._periods[event] = _Period(now)
        period.lines += 1
        if period.lines <= LINES_MAX:
            logger.log(level, line(event, fields), exc_info=error)

    def close(self) -> None:
        """Release the file of the security log."""
        if self._security_log is not None:
            self._security_log.close()

    def _write_security(self, event: str, fields: dict[str, object]) -> None:
        log = self._security_log
        assert log is not None
        log.write(event, fields)
        if log.failure is not None:
            self.tell(logging.ERROR, "security_log_failed", reason=log.failure)


class _Period:
    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


def line(event: str, fields: dict[str, object]) -> str:
    """An event as text."""
    return " ".join((f"event={event}", *(f"{name}={_shown(value)}" for name, value in fields.items())))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        # A client may change thousands of rules at once: here their number is enough, and the security log has all.
        value = len(value)
    text = f"{value:.3f}" if isinstance(value, float) else str(clipped(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
