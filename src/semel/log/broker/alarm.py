"""The one timer for everything that has a deadline, such as open transactions and the sessions of members.

Each part of the broker keeps its own `Deadlines`, one time for each name. The timer is set to the earliest of all, and
nothing is polled. If a deadline moves to a later time, as with every heartbeat, nothing happens at once: at the earlier
time the work for that name looks at its state, and notes the next time.

Deadlines are times of the broker's steady clock, so that setting the wall clock does not expire members or
transactions. Work that fails, usually because the disk is full, is due again a little later, and does not hold up other
names: no deadline is ever lost. This file must never know what a deadline is for.
"""

import asyncio
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from semel.log.broker.clock import Clock
from semel.wire.steps import APPEND_PIECES, Steps

# How much later failed work is tried again.
DUE_AGAIN_MS: Final = 1_000

N = TypeVar("N", str, int)


class Deadlines(Generic[N]):
    """A time for each name, at or before its deadline."""

    def __init__(
        self, work: Callable[[N, int], Steps[None]], look: Callable[[], None], tell: Callable[[Exception], None]
    ) -> None:
        """`work` does in steps the work that is due for a name, and notes the name's next time. `look` is called after
        each earlier time that `note` adds, and `tell` with the error of work that failed.
        """
        self._work: Callable[[N, int], Steps[None]] = work
        self._look = look
        self._tell = tell
        self._due_ms: dict[N, int] = {}
        # An item for each name, and some obsolete ones that an earlier time has replaced.
        self._heap: list[tuple[int, N]] = []

    def note(self, name: N, deadline_ms: int | None) -> None:
        """Call `work` for `name` at this time; None means never. A later time than the noted one has no effect: the
        work will note it.
        """
        if deadline_ms is None or deadline_ms >= self._due_ms.get(name, deadline_ms + 1):
            return
        self._due_ms[name] = deadline_ms
        heappush(self._heap, (deadline_ms, name))
        self._look()

    def next_ms(self) -> int | None:
        """The earliest time of all."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pass_time(self, now_ms: int) -> Steps[None]:
        """Do the work of every name whose time has come, the earliest first."""
        for name in list(self._take(now_ms)):
            try:
                yield from self._work(name, now_ms)
            except Exception as error:
                self.note(name, now_ms + DUE_AGAIN_MS)
                self._tell(error)
            yield APPEND_PIECES

    def _take(self, now_ms: int) -> Iterator[N]:
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, name = heappop(self._heap)
            del self._due_ms[name]
            yield name


class Alarm:
    """Begins the work of all deadlines when they are due."""

    def __init__(self, clock: Clock, begin: Callable[[Steps[None]], None], tell: Callable[[Exception], None]) -> None:
        """`begin` runs the steps of work that is due; `tell` gets the error of work that failed."""
        self._clock = clock
        self._begin = begin
        self._tell = tell
        self._all: list[Deadlines[Any]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._set_for_ms = 0
        self._ringing = False
        self._stopped = False

    def deadlines(self, work: Callable[[N, int], Steps[None]]) -> Deadlines[N]:
        """Deadlines that this alarm watches. `work` gets a name and the time when that name is due."""
        deadlines = Deadlines(work, self._look, self._tell)
        self._all.append(deadlines)
        return deadlines

    def catch_up(self) -> None:
        """Do all work that is due after the clock has jumped ahead."""
        self._unset()
        self._ring()

    def stop(self) -> None:
        """Begin no more work."""
        self._stopped = True
        self._unset()

    def _look(self) -> None:
        if self._ringing or self._stopped:
            return
        due_ms = min((due_ms for one in self._all if (due_ms := one.next_ms()) is not None), default=None)
        if due_ms is not None and (self._timer is None or due_ms < self._set_for_ms):
            self._unset()
            self._set_for_ms = due_ms
            wait_s = max(due_ms - self._clock.steady_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _unset(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._clock.steady_ms()
        self._ringing = True
        try:
            for deadlines in self._all:
                due_ms = deadlines.next_ms()
                if due_ms is not None and due_ms <= now_ms:
                    self._begin(deadlines.pass_time(now_ms))
        finally:
            # Even after an error: otherwise the timer would never be set again.
            self._ringing = False
            self._look()
