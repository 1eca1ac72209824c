"""Looks for damage in the sealed segments of a log in a directory, in the background, from one end to the other, again
and again. A segment with damage is marked: readers of its records get an error in place of bytes that nobody sent, or
of silence, and the operator is told.

A pass begins a week after the one before, reads at most `BYTES_PER_SECOND`, and takes at most a fiftieth of a
processor. It goes on where it was after a restart. This must never change a segment, nor wait on the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Generator
from typing import Final

from semel.log.broker.disk_thread import DiskThread
from semel.log.broker.runtime import Runtime
from semel.log.replica.worker import in_thread
from semel.log.storage import scrub
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.scrub import Scrub
from semel.log.storage.segment import Segment, place_of
from semel.log.storage.verification import Fault, fault_in_steps

PERIOD_MS: Final = 7 * 86_400_000
BYTES_PER_SECOND: Final = 4 * 1024 * 1024
# For each second of work the thread rests for as many seconds.
REST: Final = 49.0
# A broker that has just started has other things to read.
FIRST_SECONDS: Final = 600.0
_SLICE_BYTES: Final = 256 * 1024


class Scrubber:
    """The passes over one broker's log."""

    def __init__(self, runtime: Runtime, thread: DiskThread) -> None:
        self._runtime = runtime
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._scrub = Scrub(0)

    def begin(self) -> None:
        """Mark what was found damaged before this start, and go on with the pass."""
        known = scrub.read(self._runtime.log.files)
        self._scrub = known or Scrub(self._runtime.clock.now_ms())
        self._runtime.log.damage.marks.update({path: (size, after) for path, size, after in self._scrub.damaged})
        self._marked()
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    def stop(self) -> None:
        """Read nothing more, and wait for the thread."""
        if self._task is not None:
            self._task.cancel()
        self._thread.stop()

    async def _go_on(self) -> None:
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            await self.try_on()
            due_ms = self._scrub.began_ms + PERIOD_MS - self._runtime.clock.now_ms()
            await asyncio.sleep(max(due_ms / 1000, FIRST_SECONDS))

    async def try_on(self) -> None:
        """Go on with a pass if one is due, as far as the disk lets it; look at what is known to be damaged anyway."""
        try:
            if self._scrub.is_due(self._runtime.clock.now_ms(), PERIOD_MS):
                await self.look()
            else:
                await self._look_again()
        except OSError as error:
            self._runtime.events.tell(logging.WARNING, "scrub_interrupted", reason=error)

    async def _look_again(self) -> None:
        """Verify the damaged segments: somebody may have brought their files back."""
        marked = self._marked()
        for partition, damaged in marked:
            await self._verify(partition, damaged)
        if marked:
            self._note()

    async def look(self) -> None:
        """Verify the segments that this pass has not verified yet; begin a new pass if it is over."""
        log = self._runtime.log
        await self._look_again()
        if self._scrub.is_over:
            self._scrub = self._scrub._replace(began_ms=self._runtime.clock.now_ms(), place=(-1, -1, -1), is_over=False)
        partitions = [partition for partition in log.state.partitions.used() if len(partition.segments) > 1]
        for partition in await in_thread(self._thread, lambda: sorted(partitions, key=lambda one: one.name)):
            # The list may change meanwhile: compaction replaces segments, and retention removes them.
            while (segment := self._next_of(partition)) is not None:
                await self._verify(partition, segment)
                self._scrub = self._scrub._replace(place=(*partition.name, segment.base_offset))
                self._note()
        self._runtime.metrics.scrub_passes += 1
        self._scrub = self._scrub._replace(is_over=True)
        self._note()

    def _next_of(self, partition: PartitionLog) -> Segment | None:
        """The first sealed segment after the place of the pass."""
        for segment in self._sealed_of(partition):
            if segment.size and (*partition.name, segment.base_offset) > self._scrub.place:
                return segment
        return None

    def _sealed_of(self, partition: PartitionLog) -> list[Segment]:
        """The sealed segments of a partition, none if its topic was deleted."""
        is_there = self._runtime.log.state.catalog.numbered(partition.topic_number) is not None
        return partition.segments[:-1] if is_there else []

    def _marked(self) -> list[tuple[PartitionLog, Segment]]:
        """The damaged segments that the log still has. What is known of others is forgotten."""
        damaged = self._runtime.log.damage.marks
        marked = []
        for path in list(damaged):
            partition = self._runtime.log.state.partitions.at(*place_of(path))
            segments = [] if partition is None else self._sealed_of(partition)
            segment = next((segment for segment in segments if segment.path == path), None)
            if partition is None or segment is None:
                del damaged[path]
            else:
                marked.append((partition, segment))
        return marked

    async def _verify(self, partition: PartitionLog, segment: Segment) -> None:
        steps = fault_in_steps(self._runtime.log.files, segment)
        fault, is_over = None, False
        while not is_over:
            size, seconds, fault, is_over = await in_thread(self._thread, lambda: _slice_of(steps))
            self._runtime.metrics.scrubbed_bytes += size
            await asyncio.sleep(max(size / BYTES_PER_SECOND, seconds * REST))
        if segment in self._sealed_of(partition):
            self._mark(segment, fault)

    def _mark(self, segment: Segment, fault: Fault | None) -> None:
        damaged = self._runtime.log.damage.marks
        if fault is None:
            damaged.pop(segment.path, None)
            return
        if segment.path not in damaged:
            self._runtime.segment_damaged(fault.message)
        damaged[segment.path] = fault.size, fault.next_offset

    def _note(self) -> None:
        self._marked()
        log = self._runtime.log
        damaged = tuple((path, *right) for path, right in log.damage.marks.items() if not log.is_written_again(path))
        self._scrub = self._scrub._replace(damaged=damaged)
        scrub.write(self._runtime.log.files, self._scrub)


def _slice_of(steps: Generator[int, None, Fault | None]) -> tuple[int, float, Fault | None, bool]:
    """Read on for a moment, in the thread: how many bytes were right, how long the processor took, and, if the segment
    is over, what is wrong with it.
    """
    began, size = time.thread_time(), 0
    while size < _SLICE_BYTES:
        try:
            size += next(steps)
        except StopIteration as end:
            return size, time.thread_time() - began, end.value, True
    return size, time.thread_time() - began, None, False
