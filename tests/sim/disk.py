"""What the disk does in a simulation: its threads run on the loop after a while, and it fails when it is told to.

The files are those of `semel.testing.faulty`, under a page cache that forgets. A job runs at one moment between being
given and being answered for, and the state of the broker may have moved on before and after. It must never run a job
of a process that is dead.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from semel.log.broker.disk_thread import DiskThread, JobError
from semel.log.storage.files import File
from semel.testing.faulty import Crashed, FaultyFiles

if TYPE_CHECKING:
    from sim.world import World

# In how many reads for a checkpoint the disk has lost something.
LOSSES: Final = 0.02

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


class LosingDisk:
    """The disk of a broker on a store. When a checkpoint is written, it may have lost what no other has. Only the
    checkpoint sees that: clients of the simulation verify no checksums.
    """

    def __init__(self, files: FaultyFiles, random: Random, stored_bytes: Callable[[str], int]) -> None:
        """`stored_bytes` says how much of a file the store has."""
        self._files = files
        self.random = random
        self.stored_bytes = stored_bytes
        self.is_losing = False
        self.losses = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False) -> "_LosingFile":
        return _LosingFile(self, path, self._files.open(path, create=create))


class _LosingFile:
    def __init__(self, disk: LosingDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, size: int, position: int) -> bytes:
        content, disk = self._file.read_at(size, position), self._disk
        first = max(disk.stored_bytes(self._path) - position, 0) if disk.is_losing else len(content)
        if first < len(content) and self._path.endswith(".log") and disk.random.random() < LOSSES:
            disk.losses += 1
            other = bytearray(content)
            other[disk.random.randrange(first, len(content))] ^= 1
            return bytes(other)
        return content


class LosingThread(SimulatedDiskThread):
    """The thread of checkpoints over such a disk."""

    def __init__(
        self,
        world: "World",
        random: Random,
        loop: asyncio.AbstractEventLoop,
        died: Callable[[], None],
        disk: LosingDisk,
    ) -> None:
        super().__init__(world, random, loop, died)
        self._disk = disk

    def _do(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        disk = self._disk
        disk.is_losing = not self._world.is_healed
        super()._do(job, done)
        disk.is_losing = False
        self._world.fired["lost before a checkpoint"] += disk.losses
        disk.losses = 0
