"""The one timer behind all that has a deadline: transactions that take too long, members of groups that fall silent.

Whoever has deadlines says when the earliest of them is, and is rung when it has passed. Nothing is polled: the timer is
set to the earliest deadline of all, and `look` moves it when one comes up that is earlier still. A deadline that moved
to a later time costs one look at the time it had before, and nothing when it moves; so deadlines may move with every
request.

Deadlines are times of the broker's steady clock, which nobody can set: a member is not gone, and a transaction not
overdue, because a clock was put right. Whoever does not do what it was rung for, because the disk refused, is rung
again a little later: no deadline is ever lost. This file must never know what a deadline is for.
"""

import asyncio
from collections.abc import Callable
from typing import Final

# A ring that left its deadline where it was could not do its work; the disk may take it again soon.
RING_AGAIN_MS: Final = 1_000

Deadline = Callable[[], int | None]
Ring = Callable[[int], None]
# Calls what it is given, and sees to whatever that raises.
Guard = Callable[[Callable[[], None]], None]


class Alarm:
    """Rings whoever's deadline has passed. Every ring is made under `guard`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, steady_ms: Callable[[], int], guard: Guard) -> None:
        self._loop = loop
        self._steady_ms = steady_ms
        self._guard = guard
        self._watches: list[_Watch] = []
        self._timer: asyncio.TimerHandle | None = None
        self._set_for_ms = 0
        self._ringing = False
        self._stopped = False

    def watch(self, next_deadline: Deadline, ring: Ring) -> None:
        """Call `ring` with the time whenever the time that `next_deadline` says has come; None is never."""
        self._watches.append(_Watch(next_deadline, ring))

    def look(self) -> None:
        """A deadline may have come up that is earlier than all there were."""
        if self._ringing or self._stopped:
            return
        due_ms = min((due_ms for watch in self._watches if (due_ms := watch.due_ms()) is not None), default=None)
        if due_ms is not None and (self._timer is None or due_ms < self._set_for_ms):
            self._set(due_ms)

    def catch_up(self) -> None:
        """The clock has jumped ahead: ring for all deadlines that have come by that."""
        self._unset()
        self._time_is_up()

    def stop(self) -> None:
        """Ring nobody any more."""
        self._stopped = True
        self._unset()

    def _set(self, due_ms: int) -> None:
        self._unset()
        self._set_for_ms = due_ms
        self._timer = self._loop.call_later(max(due_ms - self._steady_ms(), 0) / 1000, self._time_is_up)

    def _unset(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        now_ms = self._steady_ms()
        self._ringing = True
        try:
            for watch in self._watches:
                due_ms = watch.due_ms()
                if due_ms is not None and due_ms <= now_ms:
                    self._ring(watch, now_ms)
        finally:
            # Whatever broke off, even in the guard: an alarm that falls silent would do so for good.
            self._ringing = False
            self.look()

    def _ring(self, watch: "_Watch", now_ms: int) -> None:
        try:
            self._guard(lambda: watch.ring(now_ms))
        finally:
            watch.note_rung(now_ms)


class _Watch:
    """One that has deadlines."""

    __slots__ = ("_next_deadline", "_not_before_ms", "ring")

    def __init__(self, next_deadline: Deadline, ring: Ring) -> None:
        self._next_deadline = next_deadline
        self.ring = ring
        # When to ring again for a deadline that stood although its time had come.
        self._not_before_ms = 0

    def due_ms(self) -> int | None:
        deadline_ms = self._next_deadline()
        return None if deadline_ms is None else max(deadline_ms, self._not_before_ms)

    def note_rung(self, now_ms: int) -> None:
        deadline_ms = self._next_deadline()
        stands = deadline_ms is not None and deadline_ms <= now_ms
        self._not_before_ms = now_ms + RING_AGAIN_MS if stands else 0
