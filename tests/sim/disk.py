"""What the disk does in a simulation: its threads run on the loop after a while, and it fails when it is told to.

The files are those of `semel.testing.faulty`, under a page cache that forgets. A job runs at one moment between being
given and being answered for, and the state of the broker may have moved on before and after. It must never run a job
of a process that is dead.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from semel.log.broker.disk_thread import DiskThread, JobError
from semel.testing.faulty import Crashed

if TYPE_CHECKING:
    from sim.world import World

Job = tuple[Callable[[], None], Callable[[JobError], None]]


class SimulatedDiskThread(DiskThread):
    """A thread of the disk that has no thread: one job after the other, each after as long as the disk takes."""

    def __init__(
        self, world: "World", random: Random, loop: asyncio.AbstractEventLoop, died: Callable[[], None]
    ) -> None:
        """`died` is called when a call of the disk ends the process."""
        self._world = world
        self._died = died
        self._random = random
        self._loop = loop
        self._waiting: deque[Job] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        self._waiting.append((job, done))
        self._begin_next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._do(*self._waiting.popleft())

    def _begin_next(self) -> None:
        if self._timer is None and self._waiting:
            delay_s = self._random.expovariate(1 / self._world.disk_delay_s)
            self._timer = self._loop.call_later(delay_s, self._work)

    def _work(self) -> None:
        self._timer = None
        self._do(*self._waiting.popleft())
        self._begin_next()

    def _do(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        outcome: JobError = None
        try:
            job()
        except Crashed:
            self._died()
            return
        except BaseException as error:
            outcome = error
        self._loop.call_soon(done, outcome)
