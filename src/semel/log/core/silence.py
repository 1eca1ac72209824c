"""Which clients have been silent for too long. Only the time during which the broker was running counts.

The broker forgets producers, transactional ids and offsets that were not used for a time, and it keeps for each the
wall-clock time of its last use. But the wall clock goes on while the broker is down, and it jumps when a person sets
it; in neither case was a client silent. So each stretch that the wall clock shows and the process did not live through
is an absence, and does not count. `allowed_ms` converts a period of silence into time of the wall clock: it adds the
absences in between.

The broker forgets producers only after `note_time`, by the `horizon_ms` that it sets. So that number, and not the
clock, says whether a producer may have been forgotten. Nothing here reads a clock.
"""

from collections.abc import Mapping
from typing import Any, Final

# How far the wall clock may get ahead of the steady one within seconds because NTP slews it, not because it was set.
DRIFT_MS_MAX: Final = 1_000
# The absences kept. If there are more, the oldest two become one, together with the time between them. So that time no
# longer counts as silence, which is the safe side: to remember a producer too long costs some memory, but after
# forgetting it too soon a retried batch would be stored twice.
ABSENCES_MAX: Final = 100


class Silence:
    """The absences, and the time since which a producer must have been heard to be remembered."""

    __slots__ = ("_absences", "_last", "horizon_ms", "seen_ms")

    def __init__(self) -> None:
        # Begin and end of each by the wall clock, in order.
        self._absences: list[tuple[int, int]] = []
        # What both clocks showed at the last `note_time` of this process.
        self._last: tuple[int, int] | None = None
        # The last wall-clock time at which a broker was certainly running; None if no such time is known.
        self.seen_ms: int | None = None
        # A producer that was last heard at this wall-clock time or before may have been forgotten; None if no producer
        # may.
        self.horizon_ms: int | None = None

    def note_time(self, now_ms: int, steady_ms: int, expiration_ms: int) -> None:
        """Take note of both clocks, the wall clock and the steady one; producers may be silent for `expiration_ms`."""
        if self._last is None:
            absent_ms = now_ms - (0 if self.seen_ms is None else self.seen_ms)
        else:
            last_ms, last_steady_ms = self._last
            absent_ms = now_ms - last_ms - (steady_ms - last_steady_ms)
        # If the wall clock was set back, some absences now lie in the future.
        self._absences = [(begin, min(end, now_ms)) for begin, end in self._absences if begin < now_ms]
        if absent_ms > DRIFT_MS_MAX:
            self._add(now_ms - absent_ms, now_ms)
        self._last = now_ms, steady_ms
        self.seen_ms = now_ms
        self.horizon_ms = now_ms - self.allowed_ms(now_ms, expiration_ms)

    def _add(self, begin: int, end: int) -> None:
        while self._absences and self._absences[-1][1] >= begin:
            begin = min(begin, self._absences.pop()[0])
        self._absences.append((begin, end))
        if len(self._absences) > ABSENCES_MAX:
            self._absences[:2] = [(self._absences[0][0], self._absences[1][1])]

    def allowed_ms(self, now_ms: int, period_ms: int) -> int:
        """How long ago, by the wall clock, a client was last heard if its silence counts as exactly `period_ms`."""
        counted_ms = 0
        later_ms = now_ms
        for begin, end in reversed(self._absences):
            if counted_ms + later_ms - end >= period_ms:
                break
            counted_ms += max(later_ms - end, 0)
            later_ms = min(begin, later_ms)
        return now_ms - later_ms + period_ms - counted_ms

    def producer_allowed_ms(self, now_ms: int, expiration_ms: int) -> int:
        """The same for producers, by the horizon of the last `note_time`: no producer was forgotten since."""
        return expiration_ms if self.horizon_ms is None else now_ms - self.horizon_ms

    # Checkpoints

    def snapshot(self) -> dict[str, Any]:
        return {"absences": list(self._absences), "seen_ms": self.seen_ms, "horizon_ms": self.horizon_ms}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Load the state in `snapshot`. This process has not looked at a clock yet."""
        self._absences = [(begin, end) for begin, end in snapshot["absences"]]
        self.seen_ms = snapshot["seen_ms"]
        self.horizon_ms = snapshot["horizon_ms"]
