"""Finding records by their time: what may be read is found, by whatever way is short, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.batch_checks import check_sent
from semel.log.core.entries import LogStartMoved
from semel.log.storage.files import Files, MemoryFiles
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.records import Record, decode_batches, encode_batch

# The index has an entry for every few batches of such values, so that small logs have several.
VALUE = bytes(10_000)
TIMES = st.integers(min_value=0, max_value=30)


class Partition:
    """A partition with the times of its batches, small segments, and a log start and an end that can be moved."""

    def __init__(self, segment_bytes: int, files: Files | None = None, value: bytes = b"value") -> None:
        self.value = value
        self.log = Log.open(files or MemoryFiles(), new_cluster_id="test")
        configs = {"segment.bytes": str(segment_bytes)}
        self.log.commit(self.log.state.catalog.decide_create("orders", 1, configs, bytes(16), 0))
        self.topic = self.log.state.catalog.existing("orders")

    @property
    def partition(self) -> PartitionLog:
        return self.log.state.partitions.of(self.topic)[0]

    def append(self, *times_ms: int) -> None:
        batch = encode_batch([Record(self.value, timestamp_ms=time_ms) for time_ms in times_ms])
        header = check_sent(batch, len(batch))
        self.log.append(self.topic, self.partition, header, batch, 0)

    def readable(self) -> list[tuple[int, int]]:
        """First offset and latest time of each batch that holds anything to be read."""
        partition = self.partition
        found = partition.batches(partition.state.log_start, partition.readable)
        return [(header.base_offset, header.max_timestamp) for header, _ in found]

    def since(self, time_ms: int) -> list[tuple[int, int]]:
        partition = self.partition
        batches, offset = [], partition.state.log_start
        while (found := partition.batch_since(time_ms, offset, partition.readable)) is not None:
            batches.append((found[0].base_offset, found[0].max_timestamp))
            offset = found[0].next_offset
        return batches


@given(
    batches=st.lists(st.lists(TIMES, min_size=1, max_size=3), max_size=40),
    unsettled=st.lists(st.lists(TIMES, min_size=1, max_size=3), max_size=10),
    gone=st.integers(min_value=0, max_value=100),
    segment_bytes=st.sampled_from([1024, 1_000_000]),
    wanted=TIMES,
)
def test_every_batch_of_a_time_or_later_that_may_be_read_is_found_and_no_other(
    batches: list[list[int]], unsettled: list[list[int]], gone: int, segment_bytes: int, wanted: int
) -> None:
    kept = Partition(segment_bytes, value=VALUE)
    for times_ms in batches:
        kept.append(*times_ms)
    kept.log.sync_now()
    log_start = min(gone, kept.partition.readable.offset)
    if log_start:
        kept.log.commit(LogStartMoved(kept.topic.number, 0, log_start))
    for times_ms in unsettled:
        kept.append(*times_ms)
    assert kept.since(wanted) == [(offset, latest) for offset, latest in kept.readable() if latest >= wanted]
    latest = max((latest for _, latest in kept.readable()), default=-1)
    assert kept.partition.latest_timestamp(kept.partition.readable) == latest


def test_the_batch_comes_with_its_bytes() -> None:
    kept = Partition(1024)
    kept.append(1, 2)
    kept.append(3, 4)
    kept.log.sync_now()
    found = kept.partition.batch_since(3, 0, kept.partition.readable)
    assert found is not None
    header, data = found
    (batch,) = decode_batches(data)
    assert header.base_offset == batch.base_offset == 2
    assert [record.timestamp_ms for record in batch.records] == [3, 4]


def test_a_segment_that_was_begun_in_vain_does_not_stand_in_the_way_of_a_search() -> None:
    """The batch that would have begun it was refused by a full disk; what is before it waits for its sync."""
    files = FaultyFiles()
    kept = Partition(1024, files)
    kept.append(5)
    kept.log.sync_now()
    kept.append(7)
    files.arm(Fault("ENOSPC", call="create", path="topics/*"))
    with pytest.raises(OSError, match="No space"):
        kept.append(*range(100))
    assert len(kept.partition.segments) == 2
    assert kept.partition.latest_timestamp(kept.partition.readable) == 5
    assert kept.since(-1) == kept.readable() == [(0, 5)]
