"""Which clients have been silent for too long, counted in the time in which the broker was up to hear them.

What is forgotten after a time without a word (producers, transactional ids, offsets) bears the time of day at which it
was heard last. But the time of day goes on while the broker is down, and it jumps when a person sets the clock; in
neither case was a client silent. So each stretch that the clock on the wall shows and the process did not live through
is an absence, and does not count. `allowed_ms` says how long ago, by the clock on the wall, a client may have been
heard last without having been silent for longer than a period.

Producers are forgotten only when `note_time` is called, by the `horizon_ms` that it sets. So that number, and not the
clock, says whether a producer may have been forgotten. Nothing here reads a clock.
"""

from collections.abc import Mapping
from typing import Any, Final

# What a clock may be ahead of the steady one after a few seconds because it is being put right, not set.
DRIFT_MS_MAX: Final = 1_000
# Absences that are kept apart. Beyond that the oldest two become one, with the time between them, which counts less
# then: what is remembered for too long costs some memory, and what is forgotten too soon is stored twice.
ABSENCES_MAX: Final = 100


class Silence:
    """The absences, and since when producers must have been heard to be remembered."""

    __slots__ = ("_absences", "_last", "horizon_ms", "seen_ms")

    def __init__(self) -> None:
        # From when until when by the clock on the wall, in order.
        self._absences: list[tuple[int, int]] = []
        # What both clocks showed when they were last looked at, in this process.
        self._last: tuple[int, int] | None = None
        # The time of day at which a broker was there for certain; None where nothing is known of the past.
        self.seen_ms: int | None = None
        # A producer last heard at this time of day or before may have been forgotten; None if no producer may.
        self.horizon_ms: int | None = None

    def note_time(self, now_ms: int, steady_ms: int, expiration_ms: int) -> None:
        """What the clock on the wall and the steady one show; producers may be silent for `expiration_ms`."""
        if self._last is None:
            absent_ms = now_ms - (0 if self.seen_ms is None else self.seen_ms)
        else:
            last_ms, last_steady_ms = self._last
            absent_ms = now_ms - last_ms - (steady_ms - last_steady_ms)
        # A clock that was set back says that some of what was noted has not been yet.
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
        """How long ago, by the clock on the wall, a client may have been heard that is silent for a period at most."""
        counted_ms = 0
        later_ms = now_ms
        for begin, end in reversed(self._absences):
            if counted_ms + later_ms - end >= period_ms:
                break
            counted_ms += max(later_ms - end, 0)
            later_ms = min(begin, later_ms)
        return now_ms - later_ms + period_ms - counted_ms

    def producer_allowed_ms(self, now_ms: int, expiration_ms: int) -> int:
        """The same for producers, by the horizon of the last look: none was forgotten since."""
        return expiration_ms if self.horizon_ms is None else now_ms - self.horizon_ms

    # Checkpoints

    def snapshot(self) -> dict[str, Any]:
        return {"absences": list(self._absences), "seen_ms": self.seen_ms, "horizon_ms": self.horizon_ms}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """As it was when the snapshot was taken, except that this process has not looked at a clock yet."""
        self._absences = [(begin, end) for begin, end in snapshot["absences"]]
        self.seen_ms = snapshot["seen_ms"]
        self.horizon_ms = snapshot["horizon_ms"]
