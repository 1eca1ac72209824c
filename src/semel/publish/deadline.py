"""How long is left of the time that a call may take."""

import time


class Deadline:
    """A moment from which on nothing is waited for any more."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_seconds(self) -> float:
        """What a client may be given as its timeout; 0 when the time is over."""
        return max(self._at - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_seconds <= 0.0
