"""Whether the store of a broker works, as seen by the calls that the broker makes anyway. A single call that fails is
ordinary; if calls of one kind go on failing, and none succeeds, the operator is told: at first after a second, and then
at ever longer intervals. This must never make a call of its own, nor decide what a broker does without its store.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from semel.log.store import StoreError

# Stores of all makers refuse a call now and then, and take the same one when it is repeated.
PATIENCE_SECONDS: Final = 1.0
LINE_SECONDS_MAX: Final = 60.0
# An older failure does not count: calls that a broker depends on are repeated far more often.
STALE_SECONDS: Final = 60.0

# The kinds of errors of a store, for a counter of each.
KINDS: Final = ("full", "refused", "silent", "unsure")
# Without a deletion or a listing a broker goes on all the same.
CallKind = Literal["create", "replace", "get", "other"]


class Outage(NamedTuple):
    """A store that does not work."""

    error: StoreError
    seconds: float
    # When the operator is told again if it goes on.
    next_line_seconds: float


class StoreHealth:
    """The outcomes of one broker's calls."""

    def __init__(
        self, clock: Callable[[], float], tell: Callable[[Outage], None], tell_end: Callable[[float], None]
    ) -> None:
        """`clock` measures seconds. `tell` gets an outage, again and again, and `tell_end` how long it was."""
        self.now = clock
        self._tell = tell
        self._tell_end = tell_end
        self.errors = dict.fromkeys(KINDS, 0)
        # Since when all calls of a kind have failed.
        self._failing_since: dict[CallKind, float] = {}
        self._last_failed_at = 0.0
        self._last_error: StoreError | None = None
        self._line_at = self._pause = 0.0

    @property
    def failing_seconds(self) -> float:
        """For how long the store has not worked; 0 if it works, or if that is unknown."""
        if not self._failing_since or self._is_stale:
            return 0.0
        return self._last_failed_at - min(self._failing_since.values())

    @property
    def _is_stale(self) -> bool:
        return self.now() - self._last_failed_at > STALE_SECONDS

    @property
    def why(self) -> str:
        """What the store said last, while it does not work."""
        return str(self._last_error)

    def note(self, kind: CallKind, began: float, error: StoreError | None) -> None:
        """A call that began then has ended; without an error if the store has answered it, even by a refusal."""
        if error is None:
            self._note_answer(kind)
            return
        self.errors[error.kind] += 1
        if kind == "other":
            return
        if self._is_stale:
            # What failed before was given up.
            self._failing_since.clear()
        self._failing_since.setdefault(kind, began)
        self._last_failed_at, self._last_error = self.now(), error
        seconds = self.failing_seconds
        if seconds >= PATIENCE_SECONDS and (not self._pause or self._last_failed_at >= self._line_at):
            self._pause = min(2 * self._pause or PATIENCE_SECONDS, LINE_SECONDS_MAX)
            self._line_at = self._last_failed_at + self._pause
            self._tell(Outage(error, seconds, self._pause))

    def _note_answer(self, kind: CallKind) -> None:
        began = self._failing_since.pop(kind, None)
        if began is not None and not self._failing_since and self._pause:
            self._pause = 0.0
            self._tell_end(self.now() - began)
