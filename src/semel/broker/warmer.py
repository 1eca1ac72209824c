"""Reads records from the disk into the page cache, in a thread, so that the event loop never waits for the disk."""

from collections.abc import Callable

from semel.broker.disk_thread import DiskThread
from semel.storage.log import Log
from semel.storage.segment import Stretch


class Warmer:
    """The reading of one broker."""

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
