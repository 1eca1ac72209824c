"""Questions of clients about who is active, which wait for a moment in which an answer would lead them astray.

While a broker hands over, an answer would lead the client back to it. While the active broker misses its renewals of
the lease, a standby could only name one that is probably lost: the client would try to connect there, again and again,
and longer after each attempt, also when the standby has long taken over. Nothing may wait here for longer than a lease.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from semel.log.broker.exchange import Exchange

# How often it is looked whether the answer is known.
_LOOK_SECONDS: Final = 0.02


class Questions:
    """Those that wait at one broker."""

    def __init__(self, is_in_doubt: Callable[[], bool]) -> None:
        """`is_in_doubt` says whether the active broker is probably lost, and this one does not know the next yet."""
        self._is_in_doubt = is_in_doubt
        self._waiting: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        # Set while this broker hands over.
        self.are_held = False

    def take(self, exchange: Exchange, body: memoryview, serve: Callable[[memoryview], None]) -> bool:
        """Whether this request is such a question and has to wait; `serve` is called when an answer makes sense."""
        if exchange.api is None or not exchange.api.asks_who or not (self.are_held or self._is_in_doubt()):
            return False
        self._waiting.append(partial(serve, memoryview(bytes(body))))
        if not self.are_held and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return True

    async def answer(self) -> None:
        """Have all of them answered."""
        waiting, self._waiting = self._waiting, []
        for serve in waiting:
            serve()
            # Others are served in between.
            await asyncio.sleep(0)

    async def _look(self) -> None:
        while self._is_in_doubt():  # noqa: ASYNC110 - a clock ends it, and the look of a standby
            await asyncio.sleep(_LOOK_SECONDS)
        self._looking = None
        if not self.are_held:
            await self.answer()
