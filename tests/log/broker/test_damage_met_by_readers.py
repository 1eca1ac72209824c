"""Bytes that are no batches never reach a client: a reader that meets them is told, the segment is marked, and its
bytes come from the store again where that has them.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asking import READ_COMMITTED, READ_UNCOMMITTED, Asker, at
from eventually import eventually
from log.broker.apis.test_list_offsets import offset_of
from semel.log.broker.broker import Broker
from semel.log.broker.exposition import exposition
from semel.log.storage.aborted_blocks import BlockLayout
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.segment import INDEX_INTERVAL_BYTES
from semel.testing.stores import MemoryStore
from semel.wire.batch import HEADER_BYTES, read_header
from semel.wire.errors import ErrorCode
from semel.wire.records import Record
from sharing import Sharer, configure
from transacting import TransactionalProducer

RECORDS = 100
BATCHES = 6


def zeros(content: bytes) -> bytes:
    return bytes(len(content))


def cut(content: bytes) -> bytes:
    return b""


def cut_in_a_batch(content: bytes) -> bytes:
    return content[: HEADER_BYTES // 2]


def moved(content: bytes) -> bytes:
    """The batches of other offsets: those of the last one come first."""
    half = len(content) // 2
    return content[half:] + content[:half]


def page_of_zeros(content: bytes) -> bytes:
    """From the second batch on."""
    first = int.from_bytes(content[8:12], "big") + 12
    return content[:first] + bytes(HEADER_BYTES) + content[first + HEADER_BYTES :]


DAMAGE = [zeros, cut, cut_in_a_batch, moved, page_of_zeros]


def fill(ask: Asker, begin: int = 0) -> None:
    for number in range(BATCHES):
        assert ask.produce("payments", at(*[number] * RECORDS)) == begin + number * RECORDS


def change(data: Path, how: Callable[[bytes], bytes]) -> None:
    """What a failing disk does below a broker that has the file open."""
    for path in (data / "topics").glob("*/0/*.log"):
        content = how(path.read_bytes())
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))


def next_offset_of(records: bytes) -> int:
    """The offset after these batches."""
    at = next_offset = 0
    while at < len(records):
        header = read_header(records, at)
        at, next_offset = at + header.batch_bytes, header.next_offset
    return next_offset


async def keep(broker: Broker) -> None:
    """Write a checkpoint; raises what keeps the broker from that."""
    before = broker.metrics.checkpoints
    broker.pump.begin_checkpoint()

    def has_ended() -> bool:
        is_written = broker.metrics.checkpoints > before and not broker.log.checkpoint_running
        return is_written or broker.failed.done()

    assert await asyncio.to_thread(eventually, has_ended)
    if broker.failed.done():
        broker.failed.result()


async def fetched(ask: Asker, offset: int) -> Any:
    return await asyncio.to_thread(ask.fetch, "payments", offset)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("segment_bytes", [1 << 20, 3000], ids=["growing", "sealed"])
@pytest.mark.parametrize("wanted", [0, 250])
async def test_a_reader_gets_an_error_and_no_bytes_that_nobody_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: Callable[[bytes], bytes], segment_bytes: int, wanted: int
) -> None:
    async with Broker(tmp_path, settings=LogSettings()) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments", segment_bytes=str(segment_bytes))
            await asyncio.to_thread(fill, ask)
            await keep(broker)
            whole = [path.read_bytes() for path in sorted((tmp_path / "topics").glob("*/0/*.log"))]
            change(tmp_path, how)
            seen = wanted
            while not (answer := await fetched(ask, seen)).error_code:
                assert answer.records, "the end was not reached"
                assert any(bytes(answer.records) in content for content in whole)
                seen = next_offset_of(bytes(answer.records))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            assert "event=segment_damaged" in caplog.text
            assert 'remedy="no store has this log: put the file back from a backup' in caplog.text
            assert f"semel_damaged_segments {len(broker.log.damage.marks)}\n" in exposition(broker)
            assert broker.log.damage.marks
            assert broker.metrics.storage_errors == 0, "no write was refused"
            if segment_bytes == 3000:
                # Nobody has met the damage of the segment that grows.
                return
            assert await asyncio.to_thread(ask.produce, "payments", at(7)) == BATCHES * RECORDS
            again = await fetched(ask, BATCHES * RECORDS)
            assert (again.error_code, len(again.records) > 0) == (0, True), "what comes later can be read"


@pytest.mark.parametrize("how", DAMAGE)
async def test_who_looks_for_a_time_at_a_damaged_place_is_told_the_same_as_a_reader(
    tmp_path: Path, how: Callable[[bytes], bytes]
) -> None:
    """KAFKA_STORAGE_ERROR would have clients try again until their timeout."""
    async with Broker(tmp_path) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            await asyncio.to_thread(fill, ask)
            await keep(broker)
            change(tmp_path, how)
            found = await asyncio.to_thread(offset_of, ask, BATCHES - 1, topic="payments")
            assert found[:2] == (ErrorCode.CORRUPT_MESSAGE, -1)


async def test_a_share_group_that_begins_at_a_damaged_time_is_told_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(tmp_path) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            topic = await asyncio.to_thread(ask.create, "jobs")
            await asyncio.to_thread(ask.produce, "jobs", at(round(time.time() * 1000)))
            await keep(broker)
            change(tmp_path, zeros)
            await asyncio.to_thread(partial(configure, ask, auto_offset_reset="by_duration:PT1H"))
            ada = Sharer(ask, topic.topic_id)
            await asyncio.to_thread(ada.beat, 0, "jobs")
            answer = await asyncio.to_thread(ada.fetch)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
            assert "event=request_failed" not in caplog.text


def pages_of_zeros(content: bytes) -> bytes:
    half = len(content) // 2
    return content[:half] + bytes(8192) + content[half + 8192 :]


def exchanged(content: bytes) -> bytes:
    """Two intervals of the index, of batches that are all of one size."""
    batch_bytes = read_header(content).batch_bytes
    size = -(-INDEX_INTERVAL_BYTES // batch_bytes) * batch_bytes
    return content[:size] + content[2 * size : 3 * size] + content[size : 2 * size] + content[3 * size :]


@pytest.mark.parametrize("how", [zeros, pages_of_zeros, exchanged])
async def test_an_answer_too_large_to_be_compared_batch_by_batch_has_no_bytes_that_nobody_sent(
    tmp_path: Path, how: Callable[[bytes], bytes]
) -> None:
    async with Broker(tmp_path) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            for number in range(16):
                await asyncio.to_thread(ask.produce, "payments", [Record(b"%x" % number * 16_000)])
            await keep(broker)
            [path] = (tmp_path / "topics").glob("*/0/*.log")
            whole = path.read_bytes()
            change(tmp_path, how)
            seen = 0
            while not (answer := await fetched(ask, seen)).error_code:
                assert bytes(answer.records) in whole
                seen = next_offset_of(bytes(answer.records))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            assert broker.log.damage.marks


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("wanted", [0, 250])
async def test_what_the_disk_has_lost_comes_from_the_store_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: Callable[[bytes], bytes], wanted: int
) -> None:
    async with Broker(tmp_path, store=MemoryStore()) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            await asyncio.to_thread(fill, ask)
            await keep(broker)
            before = bytes((await fetched(ask, wanted)).records)
            change(tmp_path, how)

            def reads() -> Any:
                answer = ask.fetch("payments", wanted)
                assert answer.error_code == 0
                return answer.records

            assert bytes(await asyncio.to_thread(eventually, reads)) == before
            assert "event=segment_damaged" in caplog.text
            assert "fetched from the store again" in caplog.text
            assert "has what was acknowledged: have another broker take over (semel resign URL)" in caplog.text
            assert "semel_damaged_segments 0\n" in exposition(broker)
            assert broker.metrics.failed_reads > 0


async def test_a_disk_that_loses_again_what_was_fetched_is_told_of(tmp_path: Path) -> None:
    async with Broker(tmp_path, store=MemoryStore()) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(ask.create, "payments")
            await asyncio.to_thread(fill, ask)
            await keep(broker)
            change(tmp_path, zeros)
            assert await asyncio.to_thread(eventually, lambda: ask.fetch("payments", 0).records)
            change(tmp_path, zeros)
            answer = await fetched(ask, 0)
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            assert "semel_damaged_segments 1\n" in exposition(broker)


def abort_some(ask: Asker) -> None:
    ask.create("payments")
    producer = TransactionalProducer(ask)
    for _ in range(3):
        assert producer.claim() == 0
        assert producer.add("payments") == [0]
        assert producer.send("payments", "not to be seen") == 0
        assert producer.end(committed=False) == 0


async def test_who_cannot_be_told_what_was_aborted_is_told_of_the_damage(tmp_path: Path) -> None:
    """KAFKA_STORAGE_ERROR would have the client try again for ever."""
    async with Broker(tmp_path, settings=LogSettings(aborted_blocks=BlockLayout(1, 2))) as broker:
        with await asyncio.to_thread(Asker, broker.bootstrap) as ask:
            await asyncio.to_thread(abort_some, ask)
            await keep(broker)
            path = min((tmp_path / "topics").glob("*/0/*.aborted"))
            path.write_bytes(zeros(path.read_bytes()))
            for level, code in ((READ_COMMITTED, ErrorCode.CORRUPT_MESSAGE), (READ_UNCOMMITTED, 0)):
                answer = await asyncio.to_thread(partial(ask.fetch, "payments", isolation_level=level))
                assert answer.error_code == code
