"""The lag of readers: how many committed records each has still to get.

Offsets alone do not tell: markers of transactions, records of aborted transactions and the holes of compaction take
offsets, too, and no reader of committed records ever gets them. So this reads the batches between an offset and the
last stable offset, and opens only the one in whose middle a reader stands. It reads a limited number of bytes. Where
these do not suffice, or where this user may not read, the lag is a bound: the records counted, and the offsets after
them. It must never say that there is nothing to read where it has not looked.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from semel.client.aborted import committed_batches
from semel.client.client import Fetched
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker, TopicRecreated, UnknownTopic
from semel.client.one_fetch import FETCH_BYTES, fetched
from semel.client.patience import Moved
from semel.client.places import EARLIEST, Isolation, TopicPartition
from semel.client.topics import offsets_of
from semel.wire.errors import ProtocolError
from semel.wire.primitives import Buffer
from semel.wire.records import closed_batches, decode_batches

# For one answer, with all its groups and partitions.
COUNTED_BYTES_MAX: Final = 8 * 1024 * 1024
# The first fetch of a partition: from it one can tell whether the rest is worth reading.
FIRST_BYTES: Final = 64 * 1024
# What a fetch costs at least, so that the bytes bound the number of requests, too.
FETCH_BYTES_MIN: Final = 4 * 1024
# What keeps the records of one partition from being counted, and of no other.
_UNCOUNTED: Final = (AuthenticationFailed, RefusedByBroker, Moved, UnknownTopic, TopicRecreated, ProtocolError)


class Lag(NamedTuple):
    """The number of committed records; the most that there can be if they were not all counted."""

    records: int
    is_exact: bool = True


class Standing(NamedTuple):
    """A reader's offset in a partition."""

    where: TopicPartition
    offset: int


def lags(
    cluster: Cluster,
    standings: Iterable[Standing],
    stable: Mapping[TopicPartition, int],
    bytes_max: int = COUNTED_BYTES_MAX,
) -> dict[Standing, Lag]:
    """The lag of each reader up to the last stable offset of its partition; readers of partitions that have none are
    left out.
    """
    found = {one: Lag(max(stable[one.where] - one.offset, 0)) for one in standings if one.where in stable}
    behind = [one for one, lag in found.items() if lag.records]
    first = offsets_of(cluster, dict.fromkeys(one.where for one in behind), EARLIEST)
    counter = _Counter(cluster, {one.where.topic for one in behind}, bytes_max)
    # The small ones first: where almost nothing is left to read, it matters most whether it is nothing.
    for one in sorted(behind, key=lambda one: found[one].records):
        found[one] = counter.count(one.where, max(one.offset, first.get(one.where, 0)), stable[one.where])
    return found


def total(some: Iterable[Lag]) -> Lag:
    every = list(some)
    return Lag(sum(one.records for one in every), all(one.is_exact for one in every))


class _Counter:
    """Counts for one answer, as far as the bytes suffice."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], bytes_max: int) -> None:
        self._cluster = cluster
        self._topics = cluster.topics(topics)
        self._left_bytes = bytes_max

    def count(self, where: TopicPartition, at: int, stable: int) -> Lag:
        """The committed records from `at` to the last stable offset."""
        records = 0
        bytes_max = FIRST_BYTES
        while at < stable and self._left_bytes > 0:
            try:
                content, aborted = self._fetched(where, at, bytes_max)
                found, behind = _in(content, aborted, at, stable)
            except _UNCOUNTED:
                break
            self._left_bytes -= max(len(content), FETCH_BYTES_MIN)
            if behind <= at:
                break
            records += found
            needed_bytes = len(content) // (behind - at) * (stable - behind)
            at, bytes_max = behind, FETCH_BYTES
            if needed_bytes > self._left_bytes:
                break
        return Lag(records + max(stable - at, 0), at >= stable)

    def _fetched(self, where: TopicPartition, at: int, bytes_max: int) -> tuple[memoryview, list[tuple[int, int]]]:
        topic = self._topics.get(where.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {where.topic!r}")
        answer = fetched(self._cluster, topic, where, at, Isolation.READ_COMMITTED, bytes_max)
        self._cluster.check(where, answer.error_code, "Read")
        content = memoryview(answer.records[0] if answer.records else b"")
        return content, list(answer.aborted_transactions or ())


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
