"""Pieces of work on all cores: in processes, because in threads, many short steps of numpy wait for each other.

Small work is done in the caller's process, since a process takes half a second to start. Results come in the order of
the tasks. An error of a task ends the work; after that, a running task ends with its piece.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Final, Self, TypeVar

from semel.audit.errors import AuditFailed

Task = TypeVar("Task")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

# From this many rows on, starting more processes saves time.
PROCESSES_FROM_ROWS: Final = 2_000_000


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """A number of processes, or this process alone; also where a machine has not what processes share."""

    def __init__(self, processes: int) -> None:
        self._pool = _pool(processes) if processes > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The result of each task, as soon as it and all tasks before it are done."""
        if self._pool is None:
            yield from map(work, tasks)
            return
        try:
            yield from self._pool.map(work, tasks)
        except BrokenProcessPool:
            raise AuditFailed(
                "a process that counted ended before its work did: was there too little memory, or does a script audit "
                'with no `if __name__ == "__main__"`, so that each process runs it again?'
            ) from None


def _pool(processes: int) -> ProcessPoolExecutor | None:
    try:
        return ProcessPoolExecutor(processes, get_context("spawn"), initializer=_live_with_the_parent)
    except (OSError, NotImplementedError) as error:
        logger.warning(
            "counting in one process, because %d have nothing to share: %s; can /dev/shm be written?", processes, error
        )
        return None


def _live_with_the_parent() -> None:
    """Leave an interrupt to the parent, and end if the parent was killed, because nobody waits for a result then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_the_parent, daemon=True).start()


def _die_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
