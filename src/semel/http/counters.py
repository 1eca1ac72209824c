"""What the HTTP keys count."""

import threading
from typing import Final

from semel.metrics import traces
from semel.metrics.counters import Counter

REPEATED: Final = Counter(
    "semel_http_steps_in_doubt_total",
    "Steps without a key that were executed although an earlier attempt may have done them.",
    "step",
)
CLAIMS: Final = Counter(
    "semel_http_claims_total",
    "Requests with a key: executed and kept (accepted), answered from the store (replayed), refused because the first "
    "one is running (conflict) or was another request (mismatch), not kept (forgotten), or too late (fenced).",
    outcomes=("accepted", "replayed", "conflict", "mismatch", "forgotten", "fenced"),
)
REAPED: Final = Counter("semel_http_keys_reaped_total", "Expired keys that were deleted.")


class Tally:
    """Counts the outcome of one request once: the first one that is known. The handler and the heartbeat may both find
    one."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_counted = False

    def count(self, outcome: str) -> None:
        with self._mutex:
            is_first, self._is_counted = not self._is_counted, True
        if is_first:
            CLAIMS.add(outcome)
            traces.note("semel.outcome", outcome)
