"""ListOffsets (2), versions 1 to 11: the offset for a timestamp, or for a named place, such as the earliest.

For a timestamp the answer is exactly the first record with that timestamp or a later one: the broker finds the batch by
its header, then opens the batch to find the record. If a batch cannot be decompressed, or would be too large, the
answer is the batch's first record: then a consumer reads some records too many, but misses none. The answer is never
below the log start, nor above the offset up to which consumers may read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of
from semel.log.broker.apis.lookup import check_leader_epoch, partition_of, reading, repeated
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.storage.files import NotHere
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Mark
from semel.wire import kafka
from semel.wire.batch import HORIZON_BIT, BatchHeader, Buffer
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.records import record_times
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import LIST_OFFSETS

API: Final = Api(LIST_OFFSETS, (1, 11), rights=(DESCRIBE_TOPIC,), standby=Here.NOT_LEADER)

T = TypeVar("T")

_READ_COMMITTED: Final = 1

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6

# The first version with each of the named places.
_PLACES_SINCE: Final = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}


class _Place(NamedTuple):
    """An offset with the timestamp of its record and its leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


_NOWHERE: Final = _Place(-1, -1, -1)

# Searching this many bytes takes less than a tenth of a second if records have a usual size, and about a second if all
# of them are empty; other clients are served in between.
OPENED_BYTES_MAX: Final = 4 * 1024 * 1024
# Segments that are looked at for one piece of work.
_SEGMENTS_PER_PIECE: Final = 20


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.list_offsets.ListOffsetsRequest
) -> Steps[kafka.list_offsets.ListOffsetsResponse]:
    api = kafka.list_offsets
    committed_only = request.isolation_level == _READ_COMMITTED
    twice = yield from repeated(
        (topic.name, item.partition_index) for topic in request.topics for item in topic.partitions
    )
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            found = yield from attempted_in_steps(_find(broker, exchange, topic.name, item, twice, committed_only))
            place = _NOWHERE if isinstance(found, Refused) else found
            partitions.append(
                api.ListOffsetsPartitionResponse(
                    partition_index=item.partition_index,
                    error_code=error_of(found),
                    timestamp=place.timestamp_ms,
                    offset=place.offset,
                    leader_epoch=place.leader_epoch,
                )
            )
            yield 2
        topics.append(api.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield 1
    return api.ListOffsetsResponse(topics=topics)


def _find(
    broker: Serving,
    exchange: Exchange,
    topic_name: str,
    item: kafka.list_offsets.ListOffsetsPartition,
    twice: set[tuple[str, int]],
    committed_only: bool,
) -> Steps[_Place]:
    broker.guard.check(exchange, DESCRIBE_TOPIC, topic_name)
    version = exchange.version
    if (topic_name, item.partition_index) in twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the partition is asked about more than once")
    _, partition = partition_of(broker, topic_name, item.partition_index)
    check_leader_epoch(broker, item.current_leader_epoch)
    until = _until(partition, committed_only)
    timestamp_ms = item.timestamp
    if timestamp_ms < 0 and version < _PLACES_SINCE.get(timestamp_ms, version + 1):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"place {timestamp_ms} is not known in version {version}")
    if timestamp_ms == _LATEST:
        return _place(partition, max(until.offset, partition.state.log_start))
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return _place(partition, partition.state.log_start)
    if timestamp_ms in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOWHERE
    if timestamp_ms == _MAX_TIMESTAMP:
        timestamp_ms = yield from _here(broker, lambda: partition.latest_timestamp(until))
        yield len(partition.segments) // _SEGMENTS_PER_PIECE
    return (yield from first_since(broker, partition, timestamp_ms, committed_only))


def _place(partition: PartitionLog, offset: int, timestamp_ms: int = -1) -> _Place:
    return _Place(offset, timestamp_ms, partition.state.epochs.at(offset))


def _until(partition: PartitionLog, committed_only: bool) -> Mark:
    """Up to where this client may read."""
    return partition.stable if committed_only else partition.readable


def first_since(broker: Serving, partition: PartitionLog, timestamp_ms: int, committed_only: bool) -> Steps[_Place]:
    """The first existing record of this time or later. Refused if it cannot be read."""
    offset = log_start = partition.state.log_start
    # Between two steps segments are added, deleted and compacted, so each step looks up the next batch again.
    while True:
        match = yield from _here(
            broker, partial(partition.batch_since, timestamp_ms, offset, _until(partition, committed_only))
        )
        yield len(partition.segments) // _SEGMENTS_PER_PIECE
        if match is None:
            return _NOWHERE
        header, batch = match
        yield APPEND_PIECES
        record = yield from _record_in(header, batch, timestamp_ms, log_start)
        if broker.log.state.catalog.numbered(partition.topic_number) is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has just been deleted")
        log_start = partition.state.log_start
        if record is not None and record[0] >= log_start:
            return _place(partition, *record)
        # The record may have been deleted meanwhile, and a later record of the same batch may still exist.
        offset = max(offset if record is not None else header.next_offset, log_start)


def _here(broker: Serving, look: Callable[[], T]) -> Steps[T]:
    """The result of `look`, when the records that it reads have come from the store. Refused if they cannot be read."""
    while True:
        with reading(broker):
            try:
                return look()
            except NotHere as absent:
                yield from broker.warmer.brought(absent)


def _record_in(header: BatchHeader, batch: Buffer, timestamp_ms: int, log_start: int) -> Steps[tuple[int, int] | None]:
    """The offset and timestamp of the first existing record of a batch that is not too early, if there is one."""
    # After compaction the first record may be another one, and the base timestamp the delete horizon.
    is_marked = header.attributes & HORIZON_BIT
    is_whole = header.record_count == header.last_offset_delta + 1 and not is_marked
    if is_whole and header.base_timestamp >= timestamp_ms and header.base_offset >= log_start:
        return header.base_offset, header.base_timestamp
    try:
        if len(batch) > OPENED_BYTES_MAX:
            raise ProtocolError("too large to be searched")
        for offset, time_ms in record_times(batch, OPENED_BYTES_MAX):
            if time_ms >= timestamp_ms and offset >= log_start:
                return offset, time_ms
            yield 1
    except ProtocolError:
        return max(header.base_offset, log_start), header.max_timestamp if is_marked else header.base_timestamp
    return None
