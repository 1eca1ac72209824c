"""What a log holds, in a form that can be compared: found in the log itself, and made from one entry after the other.

It must never know how a log keeps what it holds.
"""

from typing import Any, NamedTuple

from committed import Committed, committed_in, shown, visible
from semel.log.core.entries import BatchAppended, LogStartMoved, TransactionEnded
from semel.log.core.groups.groups import Groups
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.wire.batch import HEADER_BYTES, control_batch, read_header
from semel.wire.steps import finish


class PartitionContent(NamedTuple):
    """What one partition holds, and what of it is shown to those who want committed records only."""

    log_start: int
    next_offset: int
    batches: tuple[bytes, ...]
    committed: tuple[bytes, ...]


class TopicContent(NamedTuple):
    """What one topic is and holds."""

    name: str
    configs: dict[str, str]
    partitions: tuple[PartitionContent, ...]


class Content(NamedTuple):
    """What a log holds."""

    topics: dict[int, TopicContent]
    committed: Committed


def content_of(log: Log) -> Content:
    """All that a log shows to those who may read everything."""
    topics = {
        topic.number: TopicContent(
            topic.name, topic.configs, tuple(map(partition_content, log.state.partitions.of(topic)))
        )
        for topic in log.state.catalog
    }
    return Content(topics, committed_in(log))


def partition_content(partition: PartitionLog) -> PartitionContent:
    state = partition.state
    assert partition.readable.offset == state.next_offset
    found = tuple(bytes(data) for _, data in partition.batches(state.log_start, partition.readable))
    return PartitionContent(state.log_start, state.next_offset, found, shown(partition))


EMPTY = PartitionContent(0, 0, (), ())


def changed(partition: PartitionContent, entry: LogStartMoved | BatchAppended | TransactionEnded) -> PartitionContent:
    """A partition of which nothing ever goes, after one more entry."""
    log_start, next_offset, batches, _ = partition
    if isinstance(entry, LogStartMoved):
        return partition._replace(log_start=max(log_start, entry.offset))
    if isinstance(entry, BatchAppended):
        stored = bytes(entry.batch)
    else:
        stored = bytes(control_batch(entry.producer_id, entry.marker_epoch, next_offset, entry.at_ms, entry.committed))
    header = read_header(stored)
    assert header.base_offset == next_offset
    return PartitionContent(log_start, header.next_offset, (*batches, stored), ())


def kept(topic: TopicContent) -> TopicContent:
    """A topic without what lies below the beginning of each partition."""
    return topic._replace(
        partitions=tuple(
            PartitionContent(
                log_start,
                next_offset,
                tuple(stored for stored in batches if read_header(stored).next_offset > log_start),
                visible(batches, log_start),
            )
            for log_start, next_offset, batches, _ in topic.partitions
        )
    )


def brief(content: Content) -> dict[str, Any]:
    """A content in a form that a person can compare."""
    topics = {
        f"{number}-{topic.name}": [
            f"{p.log_start}..{p.next_offset}: "
            + " ".join(f"{read_header(b).base_offset}({b[HEADER_BYTES : HEADER_BYTES + 8]!r})" for b in p.batches)
            + f"; committed: {[read_header(b).base_offset for b in p.committed]}"
            for p in topic.partitions
        ]
        for number, topic in content.topics.items()
    }
    return {**topics, "owners": content.committed.owners, "offsets": content.committed.offsets}


def snapshot_of(groups: Groups) -> dict[str, Any]:
    """All that a checkpoint would have of the groups."""
    snapshot = groups.begin_snapshot()
    finish(groups.take_all())
    groups.end_snapshot()
    return snapshot
