"""What OffsetCommit and TxnOffsetCommit have in common: each partition is judged by itself, then all go in one entry.

A partition that does not exist, or with which too much is to be noted, is refused and does not keep the others out.
Whatever is wrong with the group or the member is told of every partition that was left.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from semel.broker.apis.answered import Fields
from semel.core.entries import Entry, PartitionName, StoredOffset
from semel.core.groups.groups import METADATA_CHARACTERS_MAX
from semel.core.refusals import Refused
from semel.core.topics import Topic
from semel.wire import messages
from semel.wire.errors import ErrorCode

if TYPE_CHECKING:
    from semel.broker.broker import Broker


class JudgedTopic(NamedTuple):
    """A topic of a request: what it goes by, and of each partition the offset to commit or the reason not to."""

    handle: Fields
    partitions: list[tuple[int, StoredOffset | ErrorCode]]


def judged(broker: "Broker", topics: Iterable[Any]) -> list[JudgedTopic]:
    """The topics of a request, by name or by id, whichever its version has."""
    return [_judged_topic(broker, asked) for asked in topics]


def offsets_of(topics: Iterable[JudgedTopic]) -> list[StoredOffset]:
    """Those that nothing is wrong with."""
    return [offset for topic in topics for _, offset in topic.partitions if isinstance(offset, StoredOffset)]


def partition_names(offsets: Iterable[StoredOffset]) -> list[PartitionName]:
    """The partitions that these offsets are of."""
    return [PartitionName(offset.number, offset.partition) for offset in offsets]


def answered_topics(topics: Iterable[JudgedTopic], error: object) -> list[Fields]:
    """What is answered where this became of the offsets that nothing was wrong with."""
    return [
        {
            **topic.handle,
            "partitions": [
                {"partition_index": index, "error_code": error if isinstance(found, StoredOffset) else found}
                for index, found in topic.partitions
            ],
        }
        for topic in topics
    ]


def commit(broker: "Broker", entry: Entry) -> None:
    """Make this part of the log. If the disk will not take it, clients are told what makes them try again."""
    try:
        broker.commit(entry)
    except OSError as refusal:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk would not take it") from refusal


def _judged_topic(broker: "Broker", asked: Any) -> JudgedTopic:
    catalog = broker.log.catalog
    handle: Fields
    if hasattr(asked, "name"):
        handle, missing = {"name": asked.name}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = catalog.named(asked.name)
    else:
        topic_id = messages.topic_id_bytes(asked.topic_id)
        handle, missing = {"topic_id": topic_id}, ErrorCode.UNKNOWN_TOPIC_ID
        topic = catalog.identified(topic_id)
    partitions = [(one.partition_index, _judged_partition(topic, one, missing)) for one in asked.partitions]
    return JudgedTopic(handle, partitions)


def _judged_partition(topic: Topic | None, asked: Any, missing: ErrorCode) -> StoredOffset | ErrorCode:
    if topic is None:
        return missing
    if not 0 <= asked.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = asked.committed_metadata or ""
    if len(metadata) > METADATA_CHARACTERS_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    leader_epoch = getattr(asked, "committed_leader_epoch", -1)
    return StoredOffset(topic.number, asked.partition_index, asked.committed_offset, leader_epoch, metadata)
