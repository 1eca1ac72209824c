"""An event loop with virtual time: when nothing is ready, its clock jumps to the next timer.

Everything runs in one thread, in an order that only depends on what was scheduled, so the same program with the same
seed does the same each time. It must never open a socket, start a thread, or read the real clock.

    VirtualLoop().run(my_worker_that_sleeps_for_an_hour())     # returns at once
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

# A history takes some ten thousand turns; far more mean an endless loop.
TURNS_MAX: Final = 400_000


class Deadlock(AssertionError):
    """All tasks wait, and no timer is set: nothing would ever happen again."""


class NoEnd(AssertionError):
    """The loop has made the maximum of turns, and the program has not ended."""


class Network(Protocol):
    """A simulated network, on which servers of the loop listen."""

    def listen(self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Any:
        """A server, which accepts connections after `start_serving`."""


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
        """Replaces a selector: nothing ever arrives from outside, so jump to the next timer."""
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
