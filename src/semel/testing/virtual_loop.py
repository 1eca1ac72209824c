"""An event loop whose time is counted, not waited for: when nothing is ready it is at once the time of the next timer.

Everything that runs on it runs in one thread and in an order that follows from what was scheduled, so the same program
with the same chance does the same thing each time. It must never open a socket, start a thread, or ask what time it is.

    VirtualLoop().run(my_worker_that_sleeps_for_an_hour())     # returns at once
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

# A history takes some ten thousand; far beyond that somebody goes round in circles.
TURNS_MAX: Final = 400_000


class Deadlock(AssertionError):
    """Everybody waits, and no timer is set: nothing would ever happen again."""


class NoEnd(AssertionError):
    """The loop went through all the turns that it may, and the program has not ended."""


class Network(Protocol):
    """Where servers of the loop listen: a double of the network, for those who have one."""

    def listen(self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Any:
        """A server, which takes connections once its `start_serving` was awaited."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one history. Set `network` before something listens."""

    def __init__(self, *, turns_max: int = TURNS_MAX) -> None:
        super().__init__()
        self._turns_max = turns_max
        self._now = 0.0
        self._turns = 0
        self._selector = self
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

    # -- what the base class asks of a loop ---------------------------------------------------------------------

    def select(self, timeout: float | None) -> list[Any]:
        """In the place of a selector: nothing ever comes from outside, so skip to what is due next."""
        self._turns += 1
        if self._turns > self._turns_max:
            raise NoEnd(f"{self._turns} turns, and it is {self._now:.6f}")
        if timeout is None:
            raise Deadlock("everybody waits, and no timer is set")
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
