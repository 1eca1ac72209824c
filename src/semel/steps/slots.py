"""The places of one process for transactions of requests: the request that comes first begins first, in any event loop.

An application may run in several loops at once, each in a thread, as tests of concurrency do. A lock of asyncio belongs
to one of them. A place must never be lost: not to a task that was cancelled, nor to a loop that was closed while its
request had it.
"""

import asyncio
import threading
from collections import deque
from typing import Final, NamedTuple

# How often a waiting request looks for places of loops that were closed: nobody gives them back.
_LOOK_SECONDS: Final = 1.0


class _Waiter(NamedTuple):
    loop: asyncio.AbstractEventLoop
    turn: "asyncio.Future[None]"


class Slots:
    """A number of places. With `one_loop` all are those of one loop at a time: an asynchronous engine has locks that
    belong to a loop."""

    def __init__(self, count: int, *, one_loop: bool = False) -> None:
        self._count = count
        self._one_loop = one_loop
        self._mutex = threading.Lock()
        # The loop of each request that has a place.
        self._taken: list[asyncio.AbstractEventLoop] = []
        self._waiters: deque[_Waiter] = deque()

    async def acquire(self) -> None:
        loop = asyncio.get_running_loop()
        with self._mutex:
            if not self._waiters and self._is_free_for(loop):
                self._taken.append(loop)
                return
            waiter = _Waiter(loop, loop.create_future())
            self._waiters.append(waiter)
        try:
            while not waiter.turn.done():
                with self._mutex:
                    self._hand_on()
                await asyncio.wait([waiter.turn], timeout=_LOOK_SECONDS)
        except asyncio.CancelledError:
            with self._mutex:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                else:
                    # It had its turn already, and cannot take it.
                    self._taken.remove(loop)
                    self._hand_on()
            raise

    def release(self) -> None:
        """In the loop that has acquired the place."""
        with self._mutex:
            self._taken.remove(asyncio.get_running_loop())
            self._hand_on()

    def _is_free_for(self, loop: asyncio.AbstractEventLoop) -> bool:
        is_of_others = self._one_loop and any(taken is not loop for taken in self._taken)
        return len(self._taken) < self._count and not is_of_others

    def _hand_on(self) -> None:
        """Give free places to those who wait longest."""
        self._taken = [loop for loop in self._taken if not loop.is_closed()]
        while self._waiters and self._is_free_for(self._waiters[0].loop):
            waiter = self._waiters.popleft()
            try:
                waiter.loop.call_soon_threadsafe(_begin, waiter.turn)
            except RuntimeError:
                # Its loop was closed.
                continue
            self._taken.append(waiter.loop)


def _begin(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
