"""What OffsetCommit and TxnOffsetCommit share: each partition is checked on its own, then many go into one entry.

A partition that does not exist, or whose metadata is too long, is refused, and the others are still committed. An error
of the group or the member is the answer for all remaining partitions. A request may name twenty thousand partitions,
and no other client should wait for all of them: so they are checked and committed in parts, as many as fit into one
entry, and the member is checked again for each part.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from semel.log.broker.apis.answers import Fields, attempted
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC, Right
from semel.log.broker.serving import Serving
from semel.log.core.entries import Entry, PartitionName, StoredOffset
from semel.log.core.groups.groups import METADATA_CHARACTERS_MAX
from semel.log.core.topics import Topic
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps

# The work of committing one offset, besides an element of a message.
_OFFSET_PIECES: Final = 3


class _TopicCheck(NamedTuple):
    """A topic of a request: its name or id, and for each partition the offset to commit, or the error."""

    handle: Fields
    partitions: list[tuple[int, StoredOffset | int]]


def committed(
    broker: Serving,
    exchange: Exchange,
    topics: Iterable[Any],
    commit_some: Callable[[list[StoredOffset]], Fields],
    rights: Iterable[tuple[Right, str]],
) -> Steps[list[Fields]]:
    """Commit the valid offsets, in as many entries as it takes, and return the answer for each partition.

    The request names topics by name or by id, depending on its version. `commit_some` commits some of the offsets, or
    returns the error for them. The client needs `rights` for all partitions, and for those of a topic also the right to
    read it.
    """
    answers: list[Fields] = []
    last: Any = None
    partitions: list[Fields] = []
    for some in _parted(topics, broker.pace.offsets_per_entry_max):
        refusal = next(filter(None, (broker.guard.error(exchange, *right) for right in rights)), ErrorCode.NONE)
        checks = [(item, _check_topic(broker, exchange, item, parts, refusal)) for item, parts in some]
        offsets = [
            verdict for _, topic in checks for _, verdict in topic.partitions if isinstance(verdict, StoredOffset)
        ]
        error = attempted(commit_some, offsets).get("error_code", ErrorCode.NONE) if offsets else ErrorCode.NONE
        for item, topic in checks:
            if item is not last:
                last, partitions = item, []
                answers.append({**topic.handle, "partitions": partitions})
            partitions += [
                {"partition_index": index, "error_code": error if isinstance(verdict, StoredOffset) else verdict}
                for index, verdict in topic.partitions
            ]
        yield APPEND_PIECES + len(some) + _OFFSET_PIECES * len(offsets)
    return answers


def _parted(topics: Iterable[Any], at_once: int) -> Iterator[list[tuple[Any, Sequence[Any]]]]:
    """Topics with their partitions, in parts that fit into one entry."""
    some: list[tuple[Any, Sequence[Any]]] = []
    places_left = at_once
    for item in topics:
        first = 0
        while first == 0 or first < len(item.partitions):
            parts = item.partitions[first : first + places_left]
            some.append((item, parts))
            first += max(len(parts), 1)
            places_left -= max(len(parts), 1)
            if places_left == 0:
                yield some
                some, places_left = [], at_once
    if some:
        yield some


def partition_names(offsets: Iterable[StoredOffset]) -> list[PartitionName]:
    """The partitions of these offsets."""
    return [PartitionName(offset.number, offset.partition) for offset in offsets]


def commit(broker: Serving, entry: Entry) -> None:
    """Commit this entry. If the disk refuses the write, the client gets an error that makes it try again."""
    try:
        broker.runtime.commit(entry)
    except OSError as refusal:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk refused the write") from refusal


def _check_topic(broker: Serving, exchange: Exchange, item: Any, parts: Sequence[Any], refusal: int) -> _TopicCheck:
    catalog = broker.log.state.catalog
    handle: Fields
    if hasattr(item, "name"):
        handle, missing = {"name": item.name}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = catalog.named(item.name)
        name = item.name
    else:
        topic_id = messages.topic_id_bytes(item.topic_id)
        handle, missing = {"topic_id": topic_id}, ErrorCode.UNKNOWN_TOPIC_ID
        topic = catalog.identified(topic_id)
        name = None if topic is None else topic.name
    if not refusal and name is not None:
        refusal = broker.guard.error(exchange, READ_TOPIC, name)
    partitions = [(one.partition_index, refusal or _check_partition(topic, one, missing)) for one in parts]
    return _TopicCheck(handle, partitions)


def _check_partition(topic: Topic | None, item: Any, missing: ErrorCode) -> StoredOffset | ErrorCode:
    if topic is None:
        return missing
    if not 0 <= item.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = item.committed_metadata or ""
    if len(metadata) > METADATA_CHARACTERS_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    leader_epoch = getattr(item, "committed_leader_epoch", -1)
    return StoredOffset(topic.number, item.partition_index, item.committed_offset, leader_epoch, metadata)
