"""Tells the fetches that wait for records of a partition that it has grown, and answers them, a few in each turn.

Thousands of fetches may wait for one partition, and one request may append to hundreds of partitions: told and answered
at once, they would hold up everybody for seconds. A partition that grows again before its fetches were told is noted
once. Nothing here may read a record.
"""

import asyncio
from typing import Final, Protocol

from semel.log.broker.runtime import Runtime
from semel.log.storage.partition_log import PartitionLog
from semel.wire.steps import Steps

# Fetches that are told between two steps.
NOTIFIED_AT_ONCE: Final = 20


class Waiter(Protocol):
    """A fetch that waits."""

    def finish(self) -> None:
        """Answer it, or begin to."""


class Wakeups:
    """The partitions that have grown, and the fetches that are to be answered."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._moved: dict[PartitionLog, None] = {}
        self._ready: dict[Waiter, None] = {}
        self._is_running = False

    def note_moved(self, partition: PartitionLog) -> None:
        """More of a partition can be read, or its topic was deleted."""
        if partition.watchers:
            self._moved[partition] = None
            self._begin()

    def note_ready(self, waiter: Waiter) -> None:
        """A fetch has enough records, or its wait is over. It is answered once, whatever comes meanwhile."""
        self._ready[waiter] = None
        self._begin()

    def forget(self, waiter: Waiter) -> None:
        """A fetch is answered, or its client is gone."""
        self._ready.pop(waiter, None)

    def _begin(self) -> None:
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._runtime.turns.begin(self._steps(), self._note_end)

    def _note_end(self, error: Exception | None) -> None:
        self._is_running = False
        self._runtime.note_end(error)
        if self._moved or self._ready:
            self._begin()

    def _steps(self) -> Steps[None]:
        turns = self._runtime.turns
        while self._moved or self._ready:
            if self._moved:
                partition = next(iter(self._moved))
                del self._moved[partition]
                yield from notify(partition)
            if self._ready:
                waiter = next(iter(self._ready))
                del self._ready[waiter]
                pieces = turns.pieces
                waiter.finish()
                yield turns.pieces - pieces + 5


def notify(partition: PartitionLog) -> Steps[None]:
    """Tell all fetches that wait for this partition."""
    watchers = tuple(partition.watchers)
    for first in range(0, len(watchers), NOTIFIED_AT_ONCE):
        some = watchers[first : first + NOTIFIED_AT_ONCE]
        for watcher in some:
            # Its fetch may have been answered since the last step.
            if watcher in partition.watchers:
                watcher.moved(partition)
        yield 1 + len(some) // 4
