"""An event loop with virtual time: when nothing is ready, its clock jumps to the next timer.

Everything runs in one thread, in an order that only depends on what was scheduled, so the same program with the same
seed does the same each time. It must never open a socket, start a thread, or read the real clock.

    VirtualLoop().run(my_worker_that_sleeps_for_an_hour())     # returns at once
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

# A history takes some ten thousand turns; far more mean an endless loop.
TURNS_MAX: Final = 400_000
# With more timers than this, of which more than half are cancelled, the loop forgets the cancelled ones.
TIMERS_TO_SORT_OUT: Final = 100
# Timers that are no further apart are due in the same turn.
SAME_TIME_S: Final = 1e-9


class Deadlock(AssertionError):
    """All tasks wait, and no timer is set: nothing would ever happen again."""


class NoEnd(AssertionError):
    """The loop has made the maximum of turns, and the program has not ended."""


class Network(Protocol):
    """A simulated network, on which servers of the loop listen."""

    def listen(self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Any:
        """A server, which accepts connections after `start_serving`."""


class _Timer(asyncio.TimerHandle):
    """A timer of the loop."""

    __slots__ = ()
    # Whether the loop still waits for it.
    _scheduled: bool


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one history. Set `network` before something listens.

    It makes the turns of the base class without a selector. A history has tens of thousands, so `call_soon` and
    `call_at` leave out what debugging needs, and timers are compared as tuples.
    """

    # The base class defines these.
    _ready: deque[asyncio.Handle]
    _timer_cancelled_count: int
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self, *, turns_max: int = TURNS_MAX) -> None:
        super().__init__()
        self._turns_max = turns_max
        self._now = 0.0
        self._turns = 0
        self._timers: list[tuple[float, _Timer]] = []
        self.network: Network

    def time(self) -> float:
        return self._now

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        *,
        start_serving: bool = True,
        **_: object,
    ) -> Any:
        server = self.network.listen(protocol_factory, host, port)
        if start_serving:
            await server.start_serving()
        return server

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run `main` to its end, then cancel every task that still waits."""
        try:
            self.run_until_complete(main)
        finally:
            for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
                task.cancel()
            self.close()

    # -- what the base class asks of a loop, and does more slowly itself -----------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Timer:
        self._check_closed()
        timer = _Timer(when, callback, args, self, context)
        timer._scheduled = True
        heappush(self._timers, (when, timer))
        return timer

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """One turn: run what is ready, and the timers that are due. If nothing is ready, jump to the next timer."""
        self._turns += 1
        if self._turns > self._turns_max:
            raise NoEnd(f"{self._turns} turns, and it is {self._now:.6f}")
        self._forget_cancelled_timers()
        timers, ready = self._timers, self._ready
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock("everybody waits, and no timer is set")
            self._now = max(self._now, timers[0][0])
        end = self._now + SAME_TIME_S
        while timers and timers[0][0] < end:
            _, timer = heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._run_handle(handle)

    def _run_handle(self, handle: asyncio.Handle) -> None:
        handle._run()

    def _forget_cancelled_timers(self) -> None:
        timers = self._timers
        if len(timers) > TIMERS_TO_SORT_OUT and self._timer_cancelled_count > len(timers) / 2:
            for _, timer in timers:
                timer._scheduled = not timer._cancelled
            timers[:] = [(when, timer) for when, timer in timers if timer._scheduled]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            _, timer = heappop(timers)
            timer._scheduled = False

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
