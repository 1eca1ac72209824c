"""What a broker needs in a loop whose clock jumps to the next timer: a network in memory, and no threads."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from semel.log.broker.disk_thread import DiskThread, JobError
from semel.testing.virtual_loop import VirtualLoop
from sim.network import Network


def run(scenario: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    loop.network = Network(loop, Random(0), Counter())
    loop.run(scenario)


class AtOnce(DiskThread):
    """A thread of the disk that is none."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        job()
        self._loop.call_soon(done, None)

    def stop(self) -> None:
        """There is nothing to wait for."""
