"""Records that have left the memory reach their consumer, and nobody else waits for the disk on their account."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import READ_COMMITTED, Asker, fetch_fields
from eventually import eventually
from producing import deliver, idempotent_producer
from semel.log.broker.apis import fetch
from semel.log.broker.warmer import Warmer
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.files import DiskFile
from semel.log.storage.log import Log
from semel.log.storage.segment import SCAN_BYTES, Stretch
from semel.testing.broker import FaultyBroker
from semel.wire.records import Record
from semel.wire.versions import API_VERSIONS, FETCH
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


class Disk:
    """A disk whose parts become warm when a thread reads them; the thread waits while it is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brought: set[tuple[str, int]] = set()
        # What the event loop read that was not warm.
        self.waited: list[tuple[str, int, int]] = []
        # What the thread was asked for.
        self.asked: list[list[Stretch]] = []
        self.may_read = threading.Event()
        self.may_read.set()
        read_at, warm, is_asked = DiskFile.read_at, Log.warm, Warmer._read

        def is_cached(file: DiskFile, size: int, position: int) -> bool:
            path, bytes_ = self._places(file, size, position)
            return all((path, place) in self.brought for place in (bytes_[0], bytes_[-1]))

        def read(file: DiskFile, size: int, position: int) -> bytes:
            path, bytes_ = self._places(file, size, position)
            if threading.current_thread().name != "semel-broker":
                self.brought.update((path, place) for place in bytes_)
            elif path.endswith((".log", ".index")) and not all((path, place) in self.brought for place in bytes_):
                self.waited.append((path, size, position))
            return read_at(file, size, position)

        def warm_if_it_may(log: Log, stretches: list[Stretch]) -> None:
            assert self.may_read.wait(60)
            warm(log, stretches)

        def ask(warmer: Warmer, stretches: list[Stretch], done: Callable[[], None]) -> None:
            self.asked.append(stretches)
            is_asked(warmer, stretches, done)

        monkeypatch.setattr(DiskFile, "is_cached", is_cached)
        monkeypatch.setattr(DiskFile, "read_at", read)
        monkeypatch.setattr(Log, "warm", warm_if_it_may)
        monkeypatch.setattr(Warmer, "_read", ask)

    def _places(self, file: DiskFile, size: int, position: int) -> tuple[str, range]:
        size = min(size, file.size() - position)
        return os.readlink(f"/proc/self/fd/{file._descriptor}"), range(position, position + size)

    def make_warm(self, data: Path, partition: int) -> None:
        """All of this partition is in memory."""
        for path in data.glob(f"topics/*/{partition}/*"):
            self.brought.update((str(path), place) for place in range(path.stat().st_size + SCAN_BYTES))


@pytest.fixture
def old_records(tmp_path: Path) -> Path:
    """The directory of a broker with three segments of records in one partition, and none in another."""
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not say which file is read")
    with FaultyBroker(tmp_path) as broker, Asker(broker.bootstrap) as asker:
        asker.create("events", partitions=2, **{"segment.bytes": "1048576"})
        for _ in range(120):
            asker.produce("events", [Record(bytes(20_000))])
    return tmp_path


def fields_of_both(bytes_min: int = 1, wait_ms: int = 60_000) -> dict[str, Any]:
    """A fetch of old records of the first partition, and of new ones of the second."""
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 100_000, "log_start_offset": -1}
        for index, offset in enumerate((5, 0))
    ]
    fields = {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": bytes_min, "max_bytes": 1_000_000}
    return {**fields, "isolation_level": 0, "topics": [{"topic": "events", "partitions": partitions}]}


def test_the_way_to_records_in_an_old_segment_is_read_in_a_thread(
    old_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of the segment, and the batches between its entry and the offset that a consumer begins at: with them,
    too, a consumer that comes back after a day held all others up.
    """
    with FaultyBroker(old_records) as broker, Asker(broker.bootstrap) as asker:
        disk = Disk(monkeypatch)
        assert asker.fetch("events", 5, bytes_max=100_000, wait_ms=10_000).records
        assert asker.fetch("events", 70, wait_ms=10_000).records
    assert disk.brought, "no read was cold, so nothing was tested"
    assert not disk.waited


def test_what_a_producer_appends_makes_no_fetch_read_before_the_thread_has(
    old_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is behind on a topic that is still written is the usual one, and for it the event loop read the
    index with the first new record, and the old records with the second.
    """
    with FaultyBroker(old_records) as broker, Asker(broker.bootstrap) as asker, Asker(broker.bootstrap) as producer:
        disk = Disk(monkeypatch)
        disk.may_read.clear()
        answer = asker.ask_later(FETCH, 12, **fetch_fields("events", 5, bytes_max=100_000, wait_ms=60_000))
        assert eventually(lambda: disk.asked), "the fetch does not wait for the thread"
        for _ in range(3):
            producer.produce("events", [Record(b"new")])
            # By the second answer everything has run that the produce has set off.
            assert producer(API_VERSIONS, 0).error_code == 0
        assert not asker.has_answer()
        assert len(disk.asked) == 1
        disk.may_read.set()
        assert answer().responses[0].partitions[0].records
    assert not disk.waited


def test_new_records_of_another_partition_go_at_once_while_old_ones_are_brought(
    old_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the thread is not asked for the old ones again."""
    with FaultyBroker(old_records) as broker, Asker(broker.bootstrap) as asker, Asker(broker.bootstrap) as producer:
        producer.produce("events", [Record(b"first")], 1)
        disk = Disk(monkeypatch)
        disk.make_warm(old_records, 1)
        disk.may_read.clear()
        fields = fields_of_both()
        fields["topics"][0]["partitions"][1]["fetch_offset"] = 1
        answer = asker.ask_later(FETCH, 4, **fields)
        assert eventually(lambda: disk.asked), "the fetch does not wait for the thread"
        producer.produce("events", [Record(b"new")], 1)
        old, new = answer().responses[0].partitions
        assert new.records
        assert not old.records
        assert len(disk.asked) == 1
        disk.may_read.set()
        fields["topics"][0]["partitions"][1]["fetch_offset"] = 2
        assert asker(FETCH, 4, **fields).responses[0].partitions[0].records
    assert not disk.waited


def test_old_records_are_brought_for_a_fetch_that_waits_for_more_than_it_has(
    old_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for new records instead, and at the end of its time the event loop read the old ones."""
    with FaultyBroker(old_records) as broker, Asker(broker.bootstrap) as asker:
        asker.produce("events", [Record(b"first")], 1)
        disk = Disk(monkeypatch)
        disk.make_warm(old_records, 1)
        answer = asker(FETCH, 4, **fields_of_both(bytes_min=50_000))
        assert disk.asked
        # The index came first. With it the fetch was answered, as the other partition has something.
        if not answer.responses[0].partitions[0].records:
            answer = asker(FETCH, 4, **fields_of_both(bytes_min=50_000))
        assert all(partition.records for partition in answer.responses[0].partitions)
    assert not disk.waited


def test_a_fetch_whose_time_is_over_waits_for_no_thread(old_records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may be far behind, and one that never gets its records does not go on at all."""
    monkeypatch.setattr(fetch, "DISK_WAIT_MS", 20)
    with FaultyBroker(old_records) as broker, Asker(broker.bootstrap) as asker:
        disk = Disk(monkeypatch)
        disk.may_read.clear()
        assert asker.fetch("events", 5, bytes_max=100_000).records
        assert len(disk.asked) == 1
        disk.may_read.set()


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
            max_wait_ms=0,
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
        fields = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "isolation_level": 0}
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
