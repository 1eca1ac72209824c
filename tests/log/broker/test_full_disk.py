"""A full disk: what is refused can be tried again, what was acknowledged stays, and space is all it takes to go on."""

import asyncio
import errno
import os

import pytest

from asking import Asker
from semel.log.broker.broker import Broker
from semel.log.broker.chores import HOUSEKEEPING_SECONDS
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.files import MemoryFiles
from semel.log.storage.log_settings import LogSettings
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.steps import finish
from semel.wire.versions import PRODUCE
from small_disk import SmallDisk
from virtual_brokers import AtOnce, run

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def fill(asker: Asker, rounds: int) -> tuple[int, int]:
    """Produce until the disk is full or it was enough; answers how many batches were taken, and the last error."""
    records = bytes(encode_batch([Record(b"x" * 10_000)]))
    data = [{"name": "events", "partition_data": [{"index": 0, "records": records}]}]
    for taken in range(rounds):
        answer = asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        error = answer.responses[0].partition_responses[0].error_code
        if error:
            return taken, error
    return rounds, ErrorCode.NONE


def test_a_full_disk_refuses_with_an_error_that_is_retried_and_serves_on_once_there_is_space() -> None:
    disk = SmallDisk(3_000_000)
    settings = LogSettings(journal_file_bytes=200_000, checkpoint_bytes=400_000)
    with FaultyBroker(files=disk, settings=settings) as broker:
        asker = Asker(broker.bootstrap)
        asker.create("events")
        taken, error = fill(asker, 1_000)
        assert error == STORAGE_ERROR
        assert len(broker.log("events")) == taken > 50
        disk.bytes_max *= 2
        more, error = fill(asker, 50)
        assert (more, error) == (50, ErrorCode.NONE)
        broker.kill()
        broker.restart()
        assert [record.offset for record in broker.log("events")] == list(range(taken + more))


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
async def test_a_checkpoint_for_which_there_is_no_space_or_file_is_put_off_and_is_no_failure_of_the_disk(
    monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def run(job: CheckpointJob) -> None:
        raise OSError(refusal, os.strerror(refusal))

    async with Broker() as broker:
        monkeypatch.setattr(CheckpointJob, "run", run)
        broker.pump.begin_checkpoint()
        ended = asyncio.Event()
        broker.pump._checkpoints._thread.run(lambda: None, lambda _: ended.set())
        await ended.wait()
        monkeypatch.undo()
        assert not broker.failed.done()
        finish(broker.pump.look_for_space())
        broker.pump.begin_checkpoint()
        assert broker.log.checkpoint_running


def test_a_disk_that_stays_full_costs_one_checkpoint_until_the_broker_looks_for_space_again() -> None:
    """Clients try what was refused again and again, and each time it would cost a whole one."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def scenario() -> None:
        broker = Broker(files=MemoryFiles(), host="a", port=1, insecure=True, disk_threads=AtOnce)
        await broker.start()
        for _ in range(2):
            before = broker.metrics.checkpoints
            for _ in range(3):
                broker.pump.write_refused(full)
                await asyncio.sleep(HOUSEKEEPING_SECONDS / 10)
            assert broker.metrics.checkpoints == before + 1
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
        await broker.stop()

    run(scenario())
