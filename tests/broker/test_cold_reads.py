"""Records that have left the memory reach their consumer, and nobody else waits for the disk on their account."""

import os
import threading
from pathlib import Path

import pytest

from asking import READ_COMMITTED, Asker
from producing import deliver, idempotent_producer
from semel.storage.aborted_blocks import BLOCK_LAYOUT
from semel.storage.files import DiskFile
from semel.storage.log import Log
from semel.storage.segment import SCAN_BYTES, Stretch
from semel.testing.broker import FaultyBroker
from semel.wire.records import Record
from semel.wire.versions import FETCH
from transacting import TransactionalProducer


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make every part of every file look cold the first time it is asked for; answers the places that were."""
    places: list[int] = []

    def is_cached(self: DiskFile, size: int, position: int) -> bool:
        if position in places:
            return True
        places.append(position)
        return False

    monkeypatch.setattr(DiskFile, "is_cached", is_cached)
    return places


def test_records_that_left_the_memory_are_fetched_all_the_same(tmp_path: Path, cold: list[int]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    values = [b"%d" % number for number in range(50)]
    with FaultyBroker(tmp_path) as broker:
        deliver(idempotent_producer(broker), "events", values)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("events", 0, 0)])
        consumed = [message.value() for message in consumer.consume(len(values), timeout=30)]
        consumer.close()
    assert consumed == values
    assert cold, "no read was cold, so nothing was tested"


def test_the_way_to_records_in_an_old_segment_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of the segment, and the batches between its entry and the offset that a consumer begins at: with them,
    too, a consumer that comes back after a day held all others up.
    """
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not say which file is read")
    with FaultyBroker(tmp_path) as broker:
        asker = Asker(broker.bootstrap)
        asker.create("events", **{"segment.bytes": "1048576"})
        for _ in range(120):
            asker.produce("events", [Record(bytes(20_000))])
        asker.close()
    brought: set[tuple[str, int]] = set()
    waited: list[tuple[str, int, int]] = []
    read_at = DiskFile.read_at

    def places(file: DiskFile, size: int, position: int) -> tuple[str, range]:
        size = min(size, file.size() - position)
        return os.readlink(f"/proc/self/fd/{file._descriptor}"), range(position, position + size)

    def is_cached(file: DiskFile, size: int, position: int) -> bool:
        path, bytes_ = places(file, size, position)
        return all((path, place) in brought for place in (bytes_[0], bytes_[-1]))

    def read(file: DiskFile, size: int, position: int) -> bytes:
        path, bytes_ = places(file, size, position)
        if threading.current_thread().name != "semel-broker":
            brought.update((path, place) for place in bytes_)
        elif path.endswith(".log") and not all((path, place) in brought for place in bytes_):
            waited.append((path, size, position))
        return read_at(file, size, position)

    with FaultyBroker(tmp_path) as broker:
        monkeypatch.setattr(DiskFile, "is_cached", is_cached)
        monkeypatch.setattr(DiskFile, "read_at", read)
        asker = Asker(broker.bootstrap)
        assert asker.fetch("events", 5, bytes_max=100_000, wait_ms=10_000).records
        assert asker.fetch("events", 70, wait_ms=10_000).records
        asker.close()
    assert brought, "no read was cold, so nothing was tested"
    assert not waited


def test_no_more_is_brought_into_memory_than_one_answer_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a consumer of many partitions, come back after a day, would have the disk read a hundredfold."""
    brought: list[int] = []
    original = Log.warm

    def warm(log: Log, stretches: list[Stretch]) -> None:
        brought.append(sum(stretch.size for stretch in stretches))
        original(log, stretches)

    monkeypatch.setattr(Log, "warm", warm)
    monkeypatch.setattr(DiskFile, "is_cached", lambda self, size, position: False)
    with FaultyBroker(tmp_path) as broker:
        asker = Asker(broker.bootstrap)
        asker.create("events", partitions=20)
        for index in range(20):
            asker.produce("events", [Record(bytes(10_000))], index)
        partitions = [
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_000_000, "log_start_offset": -1}
            for index in range(20)
        ]
        answer = asker(
            FETCH,
            4,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=30_000,
            isolation_level=0,
            topics=[{"topic": "events", "partitions": partitions}],
        )
        asker.close()
    records = [partition.records or b"" for partition in answer.responses[0].partitions]
    assert [len(sent) > 10_000 for sent in records] == [True, True] + [False] * 18
    assert len(brought) == 1
    assert sum(map(len, records)) <= brought[0] <= 30_000


def test_neither_are_the_ways_to_more_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor anything for a consumer that waits at the end, where nothing is to be read."""
    brought: list[int] = []
    original = Log.warm

    def warm(log: Log, stretches: list[Stretch]) -> None:
        brought.append(sum(stretch.size for stretch in stretches))
        original(log, stretches)

    with FaultyBroker(tmp_path) as broker:
        asker = Asker(broker.bootstrap)
        asker.create("events", partitions=20, **{"segment.bytes": "1048576"})
        for index in range(20):
            for _ in range(6):
                asker.produce("events", [Record(bytes(200_000))], index)
        asker.close()
    monkeypatch.setattr(Log, "warm", warm)
    monkeypatch.setattr(DiskFile, "is_cached", lambda self, size, position: False)
    with FaultyBroker(tmp_path) as broker:
        asker = Asker(broker.bootstrap)
        partitions = [
            {"partition": index, "fetch_offset": 3, "partition_max_bytes": 1_000_000, "log_start_offset": -1}
            for index in range(20)
        ]
        fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "isolation_level": 0}
        topics = [{"topic": "events", "partitions": partitions}]
        answer = asker(FETCH, 4, max_bytes=300_000, topics=topics, **fields)
        assert any(partition.records for partition in answer.responses[0].partitions)
        assert 0 < max(brought) <= 300_000 + SCAN_BYTES
        brought.clear()
        assert not asker.fetch("events", 6).records
        asker.close()
    assert not brought


def test_the_list_of_what_was_aborted_is_whole_though_it_left_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a consumer would take records for committed that are not."""
    monkeypatch.setattr(DiskFile, "is_cached", lambda self, size, position: size != BLOCK_LAYOUT.block_bytes)
    brought: list[str] = []
    original = Log.warm

    def warm(log: Log, stretches: list[Stretch]) -> None:
        brought.extend(stretch.path for stretch in stretches)
        original(log, stretches)

    monkeypatch.setattr(Log, "warm", warm)
    aborted_count = BLOCK_LAYOUT.aborted_per_block + 2
    with FaultyBroker(tmp_path, durability="os") as broker:
        asker = Asker(broker.bootstrap)
        asker.create("orders")
        producer = TransactionalProducer(asker)
        producer.claim()
        for number in range(aborted_count):
            producer.send("orders", f"{number}", version=12)
            producer.end(committed=False)
        told = asker.fetch("orders", 0, isolation_level=READ_COMMITTED)
        asker.close()
    assert [found.first_offset for found in told.aborted_transactions] == list(range(0, 2 * aborted_count, 2))
    assert [path.rpartition(".")[2] for path in brought] == ["aborted"]


def test_what_was_just_written_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    file = DiskFile(os.open(path, os.O_RDWR))
    assert file.is_cached(100_000, 0)
    file.close()


def test_what_was_dropped_from_memory_is_known_to_be_cold(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_000))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    file = DiskFile(descriptor)
    if file.is_cached(1_000_000, 0):
        file.close()
        pytest.skip("this file system keeps its pages, or cannot say")
    assert len(file.read_at(1_000_000, 0)) == 1_000_000
    assert file.is_cached(1_000_000, 0)
    file.close()
