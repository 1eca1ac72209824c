"""An event loop whose time a test moves on, so that what a broker does by itself happens now."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from semel.testing.clock import Clock


class SkippingLoop(asyncio.SelectorEventLoop):
    """Set `skipped_s` forward: all that was due meanwhile is done at the next turn."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s

    def skip(self, clock: Clock, seconds: float) -> None:
        """Move on the time of day as well, as time does that passes."""
        clock.ms += int(seconds * 1000)
        self.skipped_s += seconds


def run(scenario: Callable[[SkippingLoop], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SkippingLoop)
        runner.run(scenario(loop))


async def until(condition: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let the event loop turn until it is so, and do something before each turn."""
    while not condition():
        meanwhile()
        await asyncio.sleep(0)
