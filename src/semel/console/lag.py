"""Counts the committed records between an offset and the last stable offset.

Offsets alone do not tell: markers of transactions, records of aborted transactions and the holes of compaction take
offsets, too, and no reader of committed records ever gets them. So this reads the batches, and opens only the one in
whose middle a group stands. It reads a limited number of bytes, because a page asks again and again.
"""

from typing import Final, NamedTuple

from semel.client.aborted import committed_batches
from semel.client.client import Fetched
from semel.client.cluster import Cluster
from semel.client.places import Isolation, Topic, TopicPartition
from semel.console.records import FETCH_BYTES, fetched
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import closed_batches, decode_batches

# For one page, with all its partitions.
COUNTED_BYTES_MAX: Final = 8 * 1024 * 1024


class Count(NamedTuple):
    """The committed records, or at least so many of them if the bytes did not suffice."""

    records: int
    is_whole: bool


class Counter:
    """Counts for one page, as far as the bytes suffice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left_bytes = COUNTED_BYTES_MAX

    def count(self, topic: Topic, partition: int, at: int, stable: int) -> Count:
        """The committed records from `at` to the last stable offset."""
        where = TopicPartition(topic.name, partition)
        records = 0
        while at < stable and self._left_bytes > 0:
            answer = fetched(self._cluster, topic, where, at, Isolation.READ_COMMITTED, FETCH_BYTES)
            self._cluster.check(where, answer.error_code, "Read")
            content = memoryview(answer.records[0] if answer.records else b"")
            self._left_bytes -= len(content)
            found, behind = _in(content, list(answer.aborted_transactions or ()), at, stable)
            if behind <= at:
                break
            records, at = records + found, behind
        return Count(records, at >= stable)


def _in(content: memoryview, aborted: list[tuple[int, int]], at: int, stable: int) -> tuple[int, int]:
    """The committed records in a fetch answer from `at` to before `stable`, and the offset after the answer."""
    behind = max((header.next_offset for _, header in closed_batches(content)), default=at)
    records = 0
    for place, header in committed_batches(Fetched(content, aborted, behind)):
        if header.base_offset >= stable:
            break
        if header.base_offset >= at:
            records += header.record_count
        elif header.next_offset > at:
            announced = min(header.record_count, header.next_offset - at)
            records += _from(content[place : place + header.batch_bytes], at, announced)
    return records, behind


def _from(batch: Buffer, at: int, announced: int) -> int:
    try:
        return sum(record.offset >= at for one in decode_batches(batch) for record in one.records)
    except ProtocolError:
        # Nobody can read this batch; it counts as what it says of itself.
        return announced
