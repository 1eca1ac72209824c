"""Damage in a sealed segment is found without a reader, each byte is read once in a pass, and readers are told."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, at
from eventually import eventually
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.log.broker.scrubber import Scrubber
from semel.log.storage.files import DiskFiles, MemoryFiles
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.remedy import mend
from semel.log.storage.scrub import NAME, Scrub, read, write
from semel.wire.errors import ErrorCode
from semel.wire.versions import DELETE_RECORDS

BATCHES = 12
# Where a pass is that has read nothing.
NOWHERE = Scrub(0).place


def broker_in(data: Path) -> Broker:
    """Its start verifies nothing, as that of a broker with a large log."""
    return Broker(data, settings=LogSettings(verified_bytes_max=0))


def fill(broker: Broker) -> None:
    """Four batches to a segment."""
    with Asker(broker.bootstrap) as ask:
        ask.create("payments", segment_bytes="14000")
        for number in range(BATCHES):
            assert ask.produce("payments", at(*[number] * 250)) == number * 250


async def filled(data: Path) -> list[Path]:
    """The sealed segments of the log of a broker that has stopped."""
    async with broker_in(data) as broker:
        await asyncio.to_thread(fill, broker)
    return sorted((data / "topics").glob("*/0/*.log"))[:-1]


def flip(segment: Path, place: int) -> None:
    content = bytearray(segment.read_bytes())
    content[place] ^= 1
    segment.write_bytes(content)


def scrubber_of(broker: Broker) -> Scrubber:
    assert broker.scrubber is not None
    return broker.scrubber


async def fetched(broker: Broker, offset: int) -> Any:
    def fetch() -> Any:
        with Asker(broker.bootstrap) as ask:
            return ask.fetch("payments", offset)

    return await asyncio.to_thread(fetch)


def sealed_bytes(broker: Broker) -> int:
    (partition,) = broker.log.state.partitions.used()
    return sum(segment.size for segment in partition.segments[:-1])


async def test_readers_of_a_damaged_segment_are_told_and_all_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, second, *_ = await filled(tmp_path)
    begins = int(second.stem)
    batch_bytes = second.stat().st_size // 4
    flip(second, batch_bytes + batch_bytes // 2)
    async with broker_in(tmp_path) as broker:
        assert (await fetched(broker, begins + 250)).error_code == 0, "nobody has looked yet"
        await scrubber_of(broker).look()
        before, damaged, behind, after = [await fetched(broker, begins + more) for more in (0, 250, 500, 4 * 250)]
        assert before.error_code == 0
        assert 0 < len(before.records) < 2 * batch_bytes, "one whole batch"
        assert damaged.error_code == behind.error_code == ErrorCode.CORRUPT_MESSAGE
        assert after.error_code == 0
        await scrubber_of(broker).look()
        (told,) = [one for one in caplog.records if "segment_damaged" in one.getMessage()]
        assert told.levelno == logging.ERROR
        assert f"records from offset {begins + 250} to {begins + 999} are lost or damaged" in told.getMessage()
        assert "semel_damaged_segments 1\n" in exposition(broker)


async def test_a_reader_is_not_led_over_the_damage(tmp_path: Path) -> None:
    """A fetch that begins before it ends there, and the next one begins at it."""
    first, *_ = await filled(tmp_path)
    flip(first, first.stat().st_size // 4 + 100)
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).look()
        (partition,) = broker.log.state.partitions.used()
        _, following = partition.read(0, 1 << 20, partition.readable, whole_first_batch=True)
        assert following == 250


async def test_a_pass_reads_each_byte_once_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with broker_in(tmp_path) as broker:
        looking = asyncio.create_task(scrubber_of(broker).look())
        while not broker.metrics.scrubbed_bytes:  # noqa: ASYNC110 - a thread counts
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.wait((looking,))
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).look()
        rest = broker.metrics.scrubbed_bytes
        assert 0 < rest <= sealed_bytes(broker)
        await scrubber_of(broker).look()
        assert broker.metrics.scrubbed_bytes == rest + sealed_bytes(broker), "the second pass reads all"
        assert broker.metrics.scrub_passes == 2


async def test_a_pass_that_goes_on_reads_no_segment_again_that_it_has_noted(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with broker_in(tmp_path) as broker:
        looking = asyncio.create_task(scrubber_of(broker).look())
        while (noted := read(broker.log.files)) is None or noted.place == NOWHERE:  # noqa: ASYNC110 - a file tells
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.wait((looking,))
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).look()
        assert broker.metrics.scrubbed_bytes < sealed_bytes(broker)


async def test_a_pass_reads_the_segments_of_all_partitions(tmp_path: Path) -> None:
    """Also those that begin at the same offsets as segments that it has read before."""

    def two_of_each(broker: Broker) -> None:
        with Asker(broker.bootstrap) as ask:
            for topic in ("payments", "refunds"):
                ask.create(topic, partitions=2, segment_bytes="14000")
                for number in range(2 * BATCHES):
                    ask.produce(topic, at(*[number] * 250), partition=number % 2)

    async with broker_in(tmp_path) as broker:
        await asyncio.to_thread(two_of_each, broker)
    sealed = [path for of_one in (tmp_path / "topics").glob("*/*") for path in sorted(of_one.glob("*.log"))[:-1]]
    for path in sealed:
        flip(path, 100)
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).look()
        assert sorted(broker.log.damage.marks) == sorted(path.relative_to(tmp_path).as_posix() for path in sealed)


async def test_a_restart_begins_no_pass_before_the_next_one_is_due(tmp_path: Path) -> None:
    """Else a broker that restarts each day would read its whole log each day. What is damaged is looked at."""
    first, *_ = await filled(tmp_path)
    flip(first, 100)
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).try_on()
        assert broker.metrics.scrub_passes == 1
    flip(first, 100)
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).try_on()
        (partition,) = broker.log.state.partitions.used()
        assert (broker.metrics.scrub_passes, broker.metrics.scrubbed_bytes) == (0, partition.segments[0].size)
        assert not broker.log.damage.marks


async def test_damage_is_known_after_a_restart_until_the_segment_is_brought_back(tmp_path: Path) -> None:
    first, *_ = await filled(tmp_path)
    flip(first, 100)
    async with broker_in(tmp_path) as broker:
        await scrubber_of(broker).look()
    flip(first, 100)
    async with broker_in(tmp_path) as broker:
        assert (await fetched(broker, 0)).error_code == ErrorCode.CORRUPT_MESSAGE
        await scrubber_of(broker).look()
        assert (await fetched(broker, 0)).error_code == 0
        assert not broker.log.damage.marks


async def test_a_segment_that_is_gone_is_damage_and_one_that_retention_took_is_none(tmp_path: Path) -> None:
    _, second, *_ = await filled(tmp_path)
    async with broker_in(tmp_path) as broker:
        second.unlink()
        await scrubber_of(broker).look()
        assert list(broker.log.damage.marks) == [second.relative_to(tmp_path).as_posix()]
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            topics = [{"name": "payments", "partitions": [{"partition_index": 0, "offset": -1}]}]
            await asyncio.to_thread(ask, DELETE_RECORDS, topics=topics, timeout_ms=1000)
        broker.pump.begin_checkpoint()
        assert await asyncio.to_thread(eventually, lambda: not broker.log.damage.marks)


async def test_readers_are_told_of_what_a_repair_has_given_up_and_read_on_behind_it(tmp_path: Path) -> None:
    """In the middle of a segment: what is whole behind the damage is kept."""
    _, second, *_ = await filled(tmp_path)
    begins, batch_bytes = int(second.stem), second.stat().st_size // 4
    flip(second, batch_bytes + batch_bytes // 2)
    told: list[str] = []
    mend(DiskFiles(tmp_path), told.append)
    (line,) = told
    assert line.endswith(f"except {begins + 500} to {begins + 999}, which are whole")
    async with broker_in(tmp_path) as broker:
        assert [(await fetched(broker, begins + more)).error_code for more in (0, 250, 499, 500, 999)] == [
            *(0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE, 0, 0)
        ]
        await scrubber_of(broker).look()
        assert not broker.log.damage.marks


@pytest.mark.parametrize("first", [0, 1], ids=["and nothing is before it", "and what is before it ends there"])
async def test_no_reader_comes_unnoticed_from_before_what_a_repair_has_given_up_to_behind_it(
    tmp_path: Path, first: int
) -> None:
    """Compaction may have removed all records in between."""
    _, two, *_ = await filled(tmp_path)
    ends = int(two.stem)
    flip(two, 100)
    mend(DiskFiles(tmp_path), lambda _: None)
    async with broker_in(tmp_path) as broker:
        (partition,) = broker.log.state.partitions.used()
        if first == 0:
            assert broker.log.swap(partition, [partition.segments[0]], None)
        answers = [(answer.error_code, bool(answer.records)) for answer in [await fetched(broker, ends - 1)]]
        assert answers == [(0, True) if first else (ErrorCode.CORRUPT_MESSAGE, False)]
        assert (await fetched(broker, ends)).error_code == ErrorCode.CORRUPT_MESSAGE
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            topics = [{"name": "payments", "partitions": [{"partition_index": 0, "offset": ends + 250}]}]
            await asyncio.to_thread(ask, DELETE_RECORDS, topics=topics, timeout_ms=1000)
        assert partition.given_up == []


async def test_a_topic_that_is_deleted_during_a_pass_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    segments = await filled(tmp_path)
    async with broker_in(tmp_path) as broker:
        looking = asyncio.create_task(scrubber_of(broker).look())
        while not broker.metrics.scrubbed_bytes:  # noqa: ASYNC110 - a thread counts
            await asyncio.sleep(0)
        catalog, ids = broker.log.state.catalog, broker.log.state.producer_ids
        broker.log.commit(catalog.decide_delete("payments", ids.block_count, 0))
        for segment in segments:
            segment.unlink()
        await looking
        assert not broker.log.damage.marks
        assert "segment_damaged" not in caplog.text


async def test_after_a_start_the_damage_that_is_known_is_looked_at_first_and_that_of_other_files_is_forgotten(
    tmp_path: Path,
) -> None:
    first, *_ = await filled(tmp_path)
    known, other = (path.relative_to(tmp_path).as_posix() for path in (first, first.with_stem("9")))
    note = Scrub(0, place=(99, 0, 0), damaged=((known, 0, 0), (other, 0, 0)))
    write(DiskFiles(tmp_path), note)
    async with broker_in(tmp_path) as broker:
        assert list(broker.log.damage.marks) == [known]
        await scrubber_of(broker).look()
        assert not broker.log.damage.marks, "it was brought back, and the pass was behind it"
        assert broker.metrics.scrubbed_bytes < sealed_bytes(broker)


def test_a_note_replaces_one_that_is_longer() -> None:
    files = MemoryFiles()
    damaged = tuple((f"topics/0-payments/0/{number:020d}.log", 1, 2) for number in range(10))
    for scrub in (Scrub(1, (1, 0, 500), damaged=damaged), Scrub(2, (1, 0, 600), key="segments/7", is_over=True)):
        write(files, scrub)
        assert read(files) == scrub


@pytest.mark.parametrize("content", [b"", b"7", b"null", b"{}", b'{"place": 1}', b'{"place": [1, 2], "damaged": []}'])
def test_a_note_that_cannot_be_read_is_none(content: bytes) -> None:
    """The pass begins again."""
    files = MemoryFiles()
    with contextlib.closing(files.open(NAME, create=True)) as file:
        file.write_at([content], 0)
    assert read(files) is None


async def test_a_second_repair_forgets_nothing_of_what_the_first_one_has_given_up(tmp_path: Path) -> None:
    segments = await filled(tmp_path)
    for segment in segments[:2]:
        flip(segment, 100)
        mend(DiskFiles(tmp_path), lambda _: None)
    async with broker_in(tmp_path) as broker:
        for segment in segments[:2]:
            assert (await fetched(broker, int(segment.stem))).error_code == ErrorCode.CORRUPT_MESSAGE
