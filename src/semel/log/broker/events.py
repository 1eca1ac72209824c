"""The log for operators, one line for each event: `event=connection_closed peer=10.0.0.7:5123 reason="..."`.

All lines have the same form, so that they can be searched and counted. Text from clients is quoted and escaped, so that
a client cannot forge lines. If an event occurs too often, it is only counted: a flood of bad clients cannot fill the
disk, nor can one that tries the same again for ever. This file must never decide what happens next.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from semel.log.broker.security_log import SECURITY_EVENTS, SecurityLog, clipped

logger = logging.getLogger("semel")

# The most lines for one kind of event in a period, which adds up to some 20 MB a day. The next line says in `left_out`
# how many were left out.
LINES_MAX: Final = 10
PERIOD_SECONDS: Final = 10.0
# The first lines of what repeats, and the time after which one more says in `repeated` how often it has happened since.
# Within a minute somebody who watches the log learns that a client is still refused.
FIRST_LINES: Final = 3
REPEAT_SECONDS: Final = 60.0
# For so many repeated things it is known when they were last told. With the longest names that is a few MB.
REPEATED_MAX: Final = 1_000
# The events that clients can cause by each request, and the fields that are the same if the same thing happens again;
# only the host of a peer counts. The changes of administrators are no repetitions, and each is told.
REPEATABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "access_denied": ("principal", "operation", "resource", "name"),
    "address_over_quota": ("address",),
    "connection_closed": ("peer", "reason"),
    "connection_refused": ("peer",),
    "group_emptied": ("group",),
    "group_rebalanced": ("group",),
    "housekeeping_failed": (),
    "login_refused": ("peer", "user"),
    "member_expired": ("group", "reason"),
    "producer_refused": ("reason",),
    "read_failed": ("reason",),
    "request_failed": ("api", "group"),
    "security_log_failed": ("reason",),
    "segment_damaged": ("reason",),
    "tls_refused": ("peer", "reason"),
    "transaction_fenced": ("transactional_id",),
    "transaction_timed_out": ("transactional_id",),
    "write_refused": ("reason",),
}

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/+\[\]-]+")


class Events:
    """The events of one broker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, security_log: SecurityLog | None = None) -> None:
        """Events about rights and logins also go to the security log, whatever the level of this log is."""
        self._clock = clock
        self._security_log = security_log
        self._kinds: dict[str, _Lines] = {}
        # What may repeat; that which was told last is at the end.
        self._repeated: dict[Hashable, _Lines] = {}

    def tell(self, level: int, event: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Log an event with its fields. `error` adds a traceback, and is only for bugs in semel."""
        if self._security_log is not None and event in SECURITY_EVENTS:
            self._write_security(event, fields)
        if not logger.isEnabledFor(level):
            return
        now = self._clock()
        kind = self._kinds.setdefault(event, _Lines(now, LINES_MAX))
        if now - kind.began >= PERIOD_SECONDS:
            kind.began, kind.left = now, LINES_MAX
        if kind.has_room():
            same = self._same(now, _subject(event, fields, error)) if event in REPEATABLE else None
            if same is None or same.has_room():
                fields |= {} if same is None else same.take("repeated")
                fields |= kind.take("left_out")
                logger.log(level, line(event, fields), exc_info=error)

    def _same(self, now: float, subject: Hashable) -> "_Lines":
        """The lines about this subject."""
        same = self._repeated.get(subject)
        if same is None:
            if len(self._repeated) >= REPEATED_MAX:
                del self._repeated[next(iter(self._repeated))]
            same = self._repeated[subject] = _Lines(now, FIRST_LINES)
        elif now - same.began >= REPEAT_SECONDS:
            same.began, same.left = now, 1 if same.left_out else FIRST_LINES
            self._repeated[subject] = self._repeated.pop(subject)
        return same

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


@dataclass(slots=True)
class _Lines:
    """The lines about one thing: how many more may be written in the period that began then, and how many were not."""

    began: float
    left: int
    left_out: int = 0

    def has_room(self) -> bool:
        """Whether one more may be written. If not, it counts."""
        if not self.left:
            self.left_out += 1
        return self.left > 0

    def take(self, name: str) -> dict[str, object]:
        """Write one, and say in the field of this name how many were not written before it."""
        counted: dict[str, object] = {name: self.left_out} if self.left_out else {}
        self.left, self.left_out = self.left - 1, 0
        return counted


def _subject(event: str, fields: Mapping[str, object], error: BaseException | None) -> Hashable:
    """What is the same if an event happens again."""
    of_fields = [
        str(clipped(str(fields.get(name)).rpartition(":")[0] if name == "peer" else str(fields.get(name))))
        for name in REPEATABLE[event]
    ]
    return event, type(error), *of_fields


def line(event: str, fields: dict[str, object]) -> str:
    """An event as text."""
    return " ".join((f"event={event}", *(f"{name}={_shown(value)}" for name, value in fields.items())))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        # A client may change thousands of rules at once: here their number is enough, and the security log has all.
        value = len(value)
    text = f"{value:.3f}" if isinstance(value, float) else str(clipped(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
