"""A checkpoint of a directory does not free the journal while only the journal has what the disk is known to have lost:
the broker stops with a line, and its next start writes the records again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, at
from log.broker.test_damage_met_by_readers import (
    BATCHES,
    DAMAGE,
    RECORDS,
    change,
    cut_in_a_batch,
    fetched,
    fill,
    keep,
    zeros,
)
from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFailed
from semel.log.storage.journal import Damaged
from semel.wire.batch import read_header
from semel.wire.errors import ErrorCode

ALL = BATCHES * RECORDS


def offsets_of(ask: Asker) -> list[int]:
    """The first offset of each batch that a reader gets."""
    found: list[int] = []
    wanted = 0
    while records := bytes(ask.fetch("payments", wanted).records):
        place = 0
        while place < len(records):
            header = read_header(records, place)
            found.append(header.base_offset)
            place, wanted = place + header.batch_bytes, header.next_offset
    return found


@contextlib.asynccontextmanager
async def broker_with_records(data: Path, *, is_young: bool = True, segment_bytes: int = 1 << 20) -> Any:
    """A broker and its client. If the log is not young, a checkpoint has the first records."""
    broker = Broker(data)
    await broker.start()
    try:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments", segment_bytes=str(segment_bytes))
            if not is_young:
                await asyncio.to_thread(fill, ask)
                await keep(broker)
            await asyncio.to_thread(fill, ask, 0 if is_young else ALL)
            yield broker, ask
    finally:
        with contextlib.suppress(Damaged, BrokerFailed):
            await broker.stop()


async def everything_is_there(data: Path, records: int) -> None:
    async with Broker(data) as again:
        with await asyncio.to_thread(Asker, again.bootstrap) as ask:
            assert await asyncio.to_thread(offsets_of, ask) == list(range(0, records, RECORDS))


def only_the_newest(how: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """This damage, in the second half: that is what came after a checkpoint, if there was one."""

    def changed(content: bytes) -> bytes:
        half = len(content) // 2
        return content[:half] + how(content[half:])

    return changed


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("is_young", [True, False], ids=["young", "old"])
async def test_what_a_reader_has_met_is_not_lost_with_the_next_checkpoint(
    tmp_path: Path, how: Callable[[bytes], bytes], is_young: bool
) -> None:
    records = ALL if is_young else 2 * ALL
    async with broker_with_records(tmp_path, is_young=is_young) as (broker, ask):
        change(tmp_path, how if is_young else only_the_newest(how))
        answers = [await fetched(ask, offset) for offset in range(0, records, RECORDS)]
        assert ErrorCode.CORRUPT_MESSAGE in {answer.error_code for answer in answers}
        with pytest.raises(BrokerFailed, match=r"the disk failed: .*\.log: .*, but the journal in .* start again$"):
            await keep(broker)
    await everything_is_there(tmp_path, records)


async def test_nor_is_it_with_that_of_a_broker_that_stops(tmp_path: Path) -> None:
    async with broker_with_records(tmp_path) as (broker, ask):
        change(tmp_path, zeros)
        assert (await fetched(ask, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        with pytest.raises(Damaged, match=r"\.log: .*, but the journal in .* start again$"):
            await broker.stop()
    await everything_is_there(tmp_path, ALL)


async def test_what_a_look_at_sealed_segments_has_found_is_not_lost_either(tmp_path: Path) -> None:
    async with broker_with_records(tmp_path, segment_bytes=3000) as (broker, _):
        change(tmp_path, zeros)
        await broker.scrubber.look()
        with pytest.raises(BrokerFailed, match=r"but the journal in .* start again$"):
            await keep(broker)
    await everything_is_there(tmp_path, ALL)


@pytest.mark.parametrize("harm", ["cut", "replaced", "removed"])
async def test_a_file_that_nobody_has_read_and_that_is_shorter_or_gone_is_missed(tmp_path: Path, harm: str) -> None:
    """The broker has the file open, so its readers see nothing of what somebody does to its name."""
    async with broker_with_records(tmp_path) as (broker, ask):
        [path] = (tmp_path / "topics").glob("*/0/*.log")
        if harm == "cut":
            change(tmp_path, cut_in_a_batch)
        else:
            content = path.read_bytes()
            path.unlink()
            if harm == "replaced":
                path.write_bytes(content)
            assert await asyncio.to_thread(ask.produce, "payments", at(*[7] * RECORDS)) == ALL
        with pytest.raises(BrokerFailed, match=r"the disk failed: .*\.log"):
            await keep(broker)
    await everything_is_there(tmp_path, ALL if harm == "cut" else ALL + RECORDS)


async def test_what_a_checkpoint_has_already_keeps_no_broker_from_the_next_one(tmp_path: Path) -> None:
    """The journal no longer has it: a start could not write it again, and would refuse the directory."""
    async with broker_with_records(tmp_path) as (broker, ask):
        await keep(broker)
        change(tmp_path, zeros)
        assert (await fetched(ask, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        await asyncio.to_thread(fill, ask, ALL)
        await keep(broker)
        assert not broker.failed.done()
        assert (await fetched(ask, ALL)).error_code == 0
