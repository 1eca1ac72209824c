"""A thread for work that waits for the disk, so that the event loop never does.

Jobs run one after the other, first come, first served. The event loop gets the error of a job; the job itself must not
touch anything that the loop uses. `Warmer` is such a thread for reads that consumers wait for.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from semel.storage.log import Log
from semel.storage.segment import Stretch

JobError = BaseException | None


class DiskThread:
    """One thread and its queue."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], None], Callable[[JobError], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        """Run `job` in the thread, then call `done` on the event loop with the exception of the job, or None."""
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Return when all jobs that were given before have run."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            job, done = work
            outcome: JobError = None
            try:
                job()
            except BaseException as error:
                outcome = error
            # If the loop is closed by now, nobody waits for the outcome.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, outcome)


class Warmer:
    """Reads records from the disk into the page cache."""

    def __init__(self, log: Log, thread: DiskThread) -> None:
        self._log = log
        self._thread = thread
        self._stopped = False

    def warm(self, stretches: list[Stretch], done: Callable[[], None]) -> None:
        """Have the thread read records into the page cache, then call `done`."""

        def read() -> None:
            # A broker that stops waits for this thread, and the records would be of no use to it.
            if not self._stopped:
                self._log.warm(stretches)

        self._thread.run(read, lambda _: done())

    def stop(self) -> None:
        """Read nothing more, and wait for the thread."""
        self._stopped = True
        self._thread.stop()
