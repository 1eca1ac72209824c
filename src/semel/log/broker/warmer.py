"""Brings records to where they can be read at once: from the disk into the page cache, and from a store onto the disk.
So the event loop waits for neither.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from semel.log.broker.disk_thread import DiskThread
from semel.log.replica.cache import Cache, Failures
from semel.log.storage.files import NotHere
from semel.log.storage.log import Log
from semel.log.storage.segment import Stretch
from semel.wire.steps import Steps, Waiting

# A request that is not a fetch waits this long for records that are in a store. Then its client may try again.
STORE_SECONDS_MAX: Final = 10.0


class Warmer:
    """Reads for one broker."""

    def __init__(self, log: Log, thread: DiskThread, cache: Cache | None) -> None:
        """`cache` is None without a store."""
        self._log = log
        self._thread = thread
        self._cache = cache
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    def warm(self, stretches: list[Stretch], done: Callable[[Failures], None]) -> None:
        """Bring these records, then call `done` with the reasons, by the path of the file, for those that the store
        does not have.
        """
        if self._cache is None:
            self._read(stretches, lambda: done({}))
            return
        cache = self._cache

        async def bring() -> None:
            failures = await cache.bring(stretches)
            self._read(stretches, lambda: done(failures))

        task = asyncio.get_running_loop().create_task(bring())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def brought(self, absent: NotHere) -> Steps[None]:
        """Wait until this part of a file is on the disk. OSError if that takes too long; Damaged or StoreError if the
        store does not have it.
        """
        waiting = Waiting()
        found: list[Failures] = []

        def come(failures: Failures) -> None:
            found.append(failures)
            waiting.end()

        timer = asyncio.get_running_loop().call_later(STORE_SECONDS_MAX, waiting.end)
        self.warm([Stretch(absent.path, absent.position, absent.size)], come)
        try:
            yield waiting
        finally:
            timer.cancel()
        if not found:
            raise TimeoutError(f"{absent}, and have not come from the store within {STORE_SECONDS_MAX:g} s")
        for failure in found[0].values():
            raise failure

    def _read(self, stretches: list[Stretch], done: Callable[[], None]) -> None:
        def read() -> None:
            # A broker that stops waits for this thread, and the records would be of no use to it.
            if not self._stopped:
                self._log.warm(stretches)

        if not self._stopped:
            self._thread.run(read, lambda _: done())

    def stop(self) -> None:
        """Read nothing more, and wait for the thread."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self._thread.stop()
