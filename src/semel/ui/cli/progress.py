"""Shows the progress of work that takes more than a second: one line on standard error, if that is a terminal.

Standard output is for the command's result; this must never write there.
"""

import sys
import time
from typing import Final

_SILENT_SECONDS: Final = 1.0
_BETWEEN_SECONDS: Final = 0.2
_BAR_CHARACTERS: Final = 24


class Progress:
    """Shows the progress. Call `show` any number of times, and `end` once."""

    def __init__(self, what: str, total: int = 0, unit: str = "MB") -> None:
        """Without a total it shows a count and no bar. `unit` is the name for a million."""
        self._what = what
        self._total = total
        self._unit = unit
        self._began = self._printed_at = time.monotonic()
        self._shown = False

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._began < _SILENT_SECONDS or now - self._printed_at < _BETWEEN_SECONDS or not sys.stderr.isatty():
            return
        self._printed_at = now
        self._shown = True
        bar = ""
        if self._total:
            share = min(done / self._total, 1.0)
            bar = f"[{'#' * round(share * _BAR_CHARACTERS):.<{_BAR_CHARACTERS}}] {share:4.0%} "
        print(f"\rsemel: {self._what} {bar}{done / 1e6:.0f} {self._unit}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)
