"""What OffsetCommit and TxnOffsetCommit share: each partition is checked on its own, then many go into one entry.

A partition that does not exist, or whose metadata is too long, is refused, and the others are still committed. An error
of the group or the member is the answer for all remaining partitions. A request may name twenty thousand partitions,
and no other client should wait for all of them: so they are checked and committed in parts, as many as fit into one
entry, and the member is checked again for each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar, Union

from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_TOPIC, Right
from semel.log.broker.serving import Serving
from semel.log.core.entries import Entry, PartitionName, StoredOffset
from semel.log.core.groups.groups import METADATA_CHARACTERS_MAX
from semel.log.core.topics import Topic
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import NONE, Refused
from semel.wire.steps import APPEND_PIECES, Steps

A = TypeVar("A", covariant=True)

_Partition = Union[
    "kafka.offset_commit.OffsetCommitRequestPartition", "kafka.txn_offset_commit.TxnOffsetCommitRequestPartition"
]

# The work of committing one offset, besides an element of a message.
_OFFSET_PIECES: Final = 3


class Asked(NamedTuple):
    """A topic of a request by its name, or by its id in bytes, and the offsets to commit in its partitions."""

    name: str | bytes
    partitions: Sequence[_Partition]


class _Answer(Protocol[A]):
    """Makes the answer for one partition."""

    def __call__(self, *, partition_index: int, error_code: int) -> A: ...


def committed(
    broker: Serving,
    exchange: Exchange,
    topics: Iterable[Asked],
    commit_some: Callable[[list[StoredOffset]], int],
    answer: _Answer[A],
    rights: Iterable[tuple[Right, str]],
) -> Steps[list[list[A]]]:
    """Commit the valid offsets, in as many entries as it takes, and return the answers for each topic's partitions.

    `commit_some` commits some of the offsets, or returns the error for them. The client needs `rights` for all
    partitions, and for those of a topic also the right to read it.
    """
    answers: list[list[A]] = []
    for some in _parted(topics, broker.pace.offsets_per_entry_max):
        refusal = next(filter(None, (broker.guard.error(exchange, *right) for right in rights)), ErrorCode.NONE)
        checks = [(place, _check_topic(broker, exchange, item.name, parts, refusal)) for place, item, parts in some]
        offsets = [verdict for _, checked in checks for _, verdict in checked if isinstance(verdict, StoredOffset)]
        error = commit_some(offsets) if offsets else NONE
        for place, checked in checks:
            if place == len(answers):
                answers.append([])
            answers[place] += [
                answer(partition_index=index, error_code=error if isinstance(verdict, StoredOffset) else verdict)
                for index, verdict in checked
            ]
        yield APPEND_PIECES + len(some) + _OFFSET_PIECES * len(offsets)
    return answers


def _parted(topics: Iterable[Asked], at_once: int) -> Iterator[list[tuple[int, Asked, Sequence[_Partition]]]]:
    """Topics with their places and partitions, in parts that fit into one entry."""
    some: list[tuple[int, Asked, Sequence[_Partition]]] = []
    places_left = at_once
    for place, item in enumerate(topics):
        first = 0
        while first == 0 or first < len(item.partitions):
            parts = item.partitions[first : first + places_left]
            some.append((place, item, parts))
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


def _check_topic(
    broker: Serving, exchange: Exchange, name_or_id: str | bytes, parts: Sequence[_Partition], refusal: int
) -> list[tuple[int, StoredOffset | int]]:
    """For each partition the offset to commit, or the error."""
    catalog = broker.log.state.catalog
    name: str | None
    if isinstance(name_or_id, str):
        topic, missing = catalog.named(name_or_id), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = name_or_id
    else:
        topic, missing = catalog.identified(name_or_id), ErrorCode.UNKNOWN_TOPIC_ID
        name = None if topic is None else topic.name
    if not refusal and name is not None:
        refusal = broker.guard.error(exchange, READ_TOPIC, name)
    return [(one.partition_index, refusal or _check_partition(topic, one, missing)) for one in parts]


def _check_partition(topic: Topic | None, item: _Partition, missing: ErrorCode) -> StoredOffset | ErrorCode:
    if topic is None:
        return missing
    if not 0 <= item.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = item.committed_metadata or ""
    if len(metadata) > METADATA_CHARACTERS_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return StoredOffset(
        topic.number, item.partition_index, item.committed_offset, item.committed_leader_epoch, metadata
    )
