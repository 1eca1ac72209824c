"""The security log: refused logins, denied requests, and what administrators change, as one JSON object in each line.

`semel serve --security-log FILE` appends to a separate file, for other tools to read. It has every such event, while
the log for operators (`events`) leaves out events that occur too often. Text from clients is escaped, so that a client
cannot forge lines, and cut if it is long. A password is never written. In a flood of refusals the lines in a period are
limited, and the next line says how many were left out. Changes of administrators have a limit of their own, so that a
flood of refusals cannot suppress them. If the file was renamed or removed, it is created again, so that it can be
rotated.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

# The events that anybody who reaches a port can cause.
_REFUSALS: Final = frozenset(("access_denied", "login_refused", "tls_refused"))
# The events in this log.
SECURITY_EVENTS: Final = _REFUSALS | {
    *("access_rules_added", "access_rules_removed", "administration", "quotas_changed", "users_changed")
}
# The limits in a period, for refusals and for changes separately. A hundred lines each second are more than a person
# reads, and the bytes add up to 2 GB a day.
LINES_MAX: Final = 1_000
BYTES_MAX: Final = 256 * 1024
PERIOD_SECONDS: Final = 10.0
# A client's text is cut after this many characters; no valid name is longer.
TEXT_CHARACTERS_MAX: Final = 1_024
# Only the owner may read the file.
_MODE: Final = 0o600


class _Period:
    """How much was written, and how much left out, in a period."""

    __slots__ = ("began", "bytes", "left_out", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = self.bytes = self.left_out = 0

    def has_room(self, line_bytes: int, *, is_refusal: bool) -> bool:
        """Whether a line may be written; then it counts. One change may have five hundred rules in its line."""
        if self.lines >= LINES_MAX or (is_refusal and self.bytes + line_bytes > BYTES_MAX):
            return False
        self.lines += 1
        self.bytes += line_bytes
        return True


def clipped(value: object) -> object:
    """The value; for a long text, its beginning and its length."""
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        return f"{value[:TEXT_CHARACTERS_MAX]}... ({len(value)} characters)"
    return value


class SecurityLog:
    """A file to which lines are appended."""

    def __init__(
        self,
        path: Path | str,
        *,
        time_of_day: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """OSError if the file cannot be written."""
        self._path = Path(path)
        self._time_of_day = time_of_day
        self._clock = clock
        self._periods = {True: _Period(clock()), False: _Period(clock())}
        self._file = -1
        # Why the last line could not be written; None if it was.
        self.failure: OSError | None = None
        self._open()

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Append an event. If the write fails, `failure` says why, and requests are served all the same."""
        now = self._clock()
        period = self._periods[event in _REFUSALS]
        left_out = 0
        if now - period.began >= PERIOD_SECONDS:
            left_out = period.left_out
            period = self._periods[event in _REFUSALS] = _Period(now)
        at = datetime.fromtimestamp(self._time_of_day(), UTC).isoformat(timespec="milliseconds")
        content: dict[str, object] = {"at": at.replace("+00:00", "Z"), "event": event}
        content |= {name: clipped(value) for name, value in fields.items()}
        if left_out:
            content["left_out"] = left_out
        line = json.dumps(content, default=str).encode() + b"\n"
        if not period.has_room(len(line), is_refusal=event in _REFUSALS):
            period.left_out += 1
            return
        try:
            if not self._is_current():
                self._open()
            os.write(self._file, line)
            self.failure = None
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Release the file; the next line opens it again."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def _is_current(self) -> bool:
        """Whether the open file still has this name."""
        if self._file < 0:
            return False
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._file)
        return (status.st_dev, status.st_ino) == (mine.st_dev, mine.st_ino)
