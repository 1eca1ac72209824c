"""The security log: refused logins, denied requests, and what administrators change, as one JSON object in each line.

`semel serve --security-log FILE` appends to a separate file, for other tools to read. It has every such event, while
the log for operators (`events`) leaves out events that occur too often. Text from clients is escaped, so that a client
cannot forge lines, and no password ever comes here. In a flood the number of lines in a period is limited; the next
line says how many were left out. If the file was renamed or removed, it is created again, so that it can be rotated.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

# The events in this log.
SECURITY_EVENTS: Final = frozenset(
    (
        *("access_denied", "access_rules_added", "access_rules_removed", "login_refused", "quotas_changed"),
        "users_changed",
    )
)
# A hundred each second on average: more than a person reads, and less than 2 GB a day.
LINES_MAX: Final = 1_000
PERIOD_SECONDS: Final = 10.0
# Only the owner may read the file.
_MODE: Final = 0o600


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
        self._period_began = clock()
        self._lines = 0
        self._file = -1
        # Why the last line could not be written; None if it was.
        self.failure: OSError | None = None
        self._open()

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Append an event. If the write fails, `failure` says why, and requests are served all the same."""
        now = self._clock()
        left_out = 0
        if now - self._period_began >= PERIOD_SECONDS:
            left_out = max(self._lines - LINES_MAX, 0)
            self._period_began, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            return
        at = datetime.fromtimestamp(self._time_of_day(), UTC).isoformat(timespec="milliseconds")
        content = {"at": at.replace("+00:00", "Z"), "event": event, **fields}
        if left_out:
            content["left_out"] = left_out
        try:
            if not self._is_current():
                self._open()
            os.write(self._file, json.dumps(content, default=str).encode() + b"\n")
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
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._file)
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
