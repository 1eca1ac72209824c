"""The interface of a thread that waits for the disk."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")
JobError = BaseException | None


class Worker(Protocol):
    """A thread that waits for the disk."""

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        """Run `job` in the thread, then `done` on the event loop."""

    def stop(self) -> None:
        """Return when all jobs have run."""


class Here:
    """A worker without a thread, for a caller that may block."""

    def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
        """Run both now."""
        outcome: JobError = None
        try:
            job()
        except Exception as error:
            outcome = error
        done(outcome)

    def stop(self) -> None:
        """Do nothing, because all jobs have run."""


async def in_thread(worker: Worker, job: Callable[[], Result]) -> Result:
    """The result of a job that the worker has run."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    results: list[Result] = []

    def done(outcome: JobError) -> None:
        if ended.done():
            return
        if outcome is None:
            ended.set_result(None)
        else:
            ended.set_exception(outcome)

    worker.run(lambda: results.append(job()), done)
    await ended
    return results[0]
