"""What holds when a broker stops: answers that are under way go, and a disk that failed is believed to the last."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from asking import Asker, at
from semel.log.broker.broker import Broker
from semel.log.broker.disk_thread import DiskThread, JobError
from semel.log.storage import checkpoint
from semel.log.storage.files import File, MemoryFiles
from semel.log.storage.journal import SyncJob
from semel.log.storage.log import CheckpointJob, Log
from semel.log.storage.segment import Stretch


def fail_once(monkeypatch: pytest.MonkeyPatch, job: type) -> None:
    original = job.run  # type: ignore[attr-defined]

    def run(self: object) -> None:
        monkeypatch.setattr(job, "run", original)
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(job, "run", run)


@pytest.mark.parametrize("job", [SyncJob, CheckpointJob])
async def test_a_sync_that_fails_while_the_broker_stops_is_not_made_good_by_another(
    monkeypatch: pytest.MonkeyPatch, job: type
) -> None:
    """After a failed sync the next one may succeed though nothing reached the disk: a checkpoint would vouch for it."""
    files = MemoryFiles()
    broker = Broker(files=files)
    await broker.start()
    asker = await asyncio.to_thread(Asker, broker.bootstrap)
    await asyncio.to_thread(asker.create, "payments")
    await asyncio.to_thread(asker.produce, "payments", at(1))
    broker.log.new_producer_id(0)
    fail_once(monkeypatch, job)
    # Both begin in this turn of the event loop; how they end is known when the broker has begun to stop.
    broker.pump._begin_sync()
    broker.pump.begin_checkpoint()
    await broker.stop()
    asker.close()
    assert broker.failed.done()
    found = checkpoint.read(files)
    assert found is None or not found[0]["clean"]


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_nothing_happens_to_the_directory_once_a_broker_has_ended(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another one may have it by then."""
    late: list[str] = []
    ended = False

    def watched(name: str) -> None:
        original = getattr(Log, name)

        def call(*arguments: object) -> object:
            if ended:
                late.append(name)
            return original(*arguments)

        monkeypatch.setattr(Log, name, call)

    watched("finish_checkpoint")
    watched("finish_sync")
    broker = Broker()
    await broker.start()
    broker.log.new_producer_id(0)
    broker.pump._begin_sync()
    broker.pump.begin_checkpoint()
    await getattr(broker, how)()
    ended = True
    for _ in range(10):
        await asyncio.sleep(0)
    assert late == []


async def test_what_is_still_to_be_brought_from_the_disk_is_not_once_the_broker_stops() -> None:
    """Stopping waits for the thread that brings it, and thousands of consumers may have asked for a megabyte."""
    jobs: list[Callable[[], None]] = []
    opened: list[str] = []

    class WatchedFiles(MemoryFiles):
        def open(self, path: str, *, create: bool = False) -> File:
            opened.append(path)
            return super().open(path, create=create)

    class Held(DiskThread):
        def run(self, job: Callable[[], None], done: Callable[[JobError], None]) -> None:
            jobs.append(job)

    def thread(name: str, loop: asyncio.AbstractEventLoop) -> DiskThread:
        return (Held if name == "semel-read" else DiskThread)(name, loop)

    async with Broker(files=WatchedFiles(), disk_threads=thread) as broker:
        for _ in range(2):
            broker.warmer.warm([Stretch("a segment", 0, 1)], lambda: None)
        jobs[0]()
        assert "a segment" in opened
    opened.clear()
    jobs[1]()
    assert opened == []


async def test_requests_that_come_while_the_broker_stops_are_not_begun() -> None:
    broker = Broker()
    await broker.start()
    asker = await asyncio.to_thread(Asker, broker.bootstrap)
    await asyncio.to_thread(asker.create, "payments")
    for connection in broker.connections:
        connection.stop_serving()
    served = broker.metrics.latencies.copy()
    asker.post(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
    await broker.stop()
    assert broker.metrics.latencies == served
    asker.close()
