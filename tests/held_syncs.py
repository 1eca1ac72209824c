"""The disk threads of a broker whose syncs wait until a test lets them go.

syncs = HeldSyncs()
broker = Broker(disk_threads=syncs)
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from semel.log.broker.disk_thread import DiskThread, JobError

_SECONDS_MAX = 30


class HeldSyncs:
    """A sync waits as long as they are `held`; `began` is set as soon as one waits."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self._may_run = threading.Event()
        self._may_run.set()

    def __call__(self, name: str, loop: asyncio.AbstractEventLoop) -> DiskThread:
        return _SyncThread(self._wait, name, loop) if name == "semel-sync" else DiskThread(name, loop)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until the end, or until an assertion fails: no broker that ends then waits for them in vain."""
        self._may_run.clear()
        self.began.clear()
        try:
            yield
        finally:
            self._may_run.set()

    def _wait(self) -> None:
        self.began.set()
        assert self._may_run.wait(_SECONDS_MAX)


class _SyncThread(DiskThread):
    def __init__(self, wait: Callable[[], None], name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name, loop)
        self._wait = wait

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        def held_job() -> None:
            self._wait()
            job()

        super().run(held_job, done)
