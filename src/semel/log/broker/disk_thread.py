"""A thread for work that waits for the disk, so that the event loop never does.

Jobs run one after the other, first come, first served. The event loop gets the error of a job; the job itself must not
touch anything that the loop uses.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

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
