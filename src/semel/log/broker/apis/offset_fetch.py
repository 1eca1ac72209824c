"""OffsetFetch (9), versions 1 to 10: the offsets that groups have committed.

A request names partitions by topic name, since version 10 by topic id, or no partitions, which means all. A group that
does not exist is no error: its offsets are -1. A client that asks for stable offsets is told to retry while an open
transaction may still change the group's offsets. A partition that is named twice is answered once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.log.core.groups.offsets import OffsetsView
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import OFFSET_FETCH

API: Final = Api(OFFSET_FETCH, (1, 10), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)

# Before this version an answer has errors of partitions only.
_GROUP_ERROR_FROM: Final = 2
_GROUPS_FROM: Final = 8
_BY_ID_FROM: Final = 10


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.offset_fetch.OffsetFetchRequest
) -> Steps[kafka.offset_fetch.OffsetFetchResponse]:
    if exchange.version < _GROUPS_FROM:
        return (yield from _of_only_group(broker, exchange, request))
    groups = []
    for item in {item.group_id: item for item in request.groups}.values():
        groups.append((yield from _of_group(broker, exchange, item, request.require_stable)))
        yield 1
    return kafka.offset_fetch.OffsetFetchResponse(groups=groups)


def _of_only_group(
    broker: Serving, exchange: Exchange, request: kafka.offset_fetch.OffsetFetchRequest
) -> Steps[kafka.offset_fetch.OffsetFetchResponse]:
    """The answer in versions whose requests name one group. Kafka has other classes for them, with the same fields."""
    api = kafka.offset_fetch
    topics = None
    if request.topics is not None:
        topics = yield from each(
            request.topics,
            lambda item: api.OffsetFetchRequestTopics(name=item.name, partition_indexes=item.partition_indexes),
        )
    item = api.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    group = yield from _of_group(broker, exchange, item, request.require_stable)
    answered = []
    for topic in group.topics:
        partitions = yield from each(
            topic.partitions,
            lambda one: api.OffsetFetchResponsePartition(
                partition_index=one.partition_index,
                committed_offset=one.committed_offset,
                committed_leader_epoch=one.committed_leader_epoch,
                metadata=one.metadata,
                error_code=one.error_code,
            ),
        )
        answered.append(api.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield 1
    return api.OffsetFetchResponse(topics=answered, error_code=group.error_code)


def _of_group(
    broker: Serving, exchange: Exchange, item: kafka.offset_fetch.OffsetFetchRequestGroup, stable: bool
) -> Steps[kafka.offset_fetch.OffsetFetchResponseGroup]:
    topics = yield from attempted_in_steps(_look_up(broker, exchange, item, stable))
    return kafka.offset_fetch.OffsetFetchResponseGroup(
        group_id=item.group_id, topics=() if isinstance(topics, Refused) else topics, error_code=error_of(topics)
    )


def _look_up(
    broker: Serving, exchange: Exchange, item: kafka.offset_fetch.OffsetFetchRequestGroup, stable: bool
) -> Steps[list[kafka.offset_fetch.OffsetFetchResponseTopics]]:
    refusal = broker.guard.error(exchange, DESCRIBE_GROUP, item.group_id)
    if refusal and exchange.version >= _GROUP_ERROR_FROM:
        raise Refused(refusal, f"group '{item.group_id}' may not be read by this client")
    group = broker.log.state.groups.named(item.group_id)
    if group is not None:
        # Only versions from 9 on name the member that sends the request.
        group.check_fetch(item.member_id, item.member_epoch)
    # All offsets are of one moment; otherwise the answer could show half of a transaction that ends meanwhile.
    view = None if group is None else group.offsets.view(with_pending=stable)
    if item.topics is None:
        return [] if view is None else (yield from _all_topics(broker, exchange, view))
    by_id = exchange.version >= _BY_ID_FROM
    indexes_by_handle: dict[str | bytes, dict[int, None]] = {}
    for topic in item.topics:
        handle = topic.topic_id if by_id else topic.name
        indexes_by_handle.setdefault(handle, {}).update(dict.fromkeys(topic.partition_indexes))
        yield 1
    topics = []
    for handle, indexes in indexes_by_handle.items():
        topics.append((yield from _asked_topic(broker, exchange, view, handle, indexes, refusal)))
        yield 1
    return topics


def _all_topics(
    broker: Serving, exchange: Exchange, view: OffsetsView
) -> Steps[list[kafka.offset_fetch.OffsetFetchResponseTopics]]:
    topics = []
    for number, offsets in view.committed.items():
        topic = broker.log.state.catalog.numbered(number)
        if topic is not None and broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name):
            partitions = yield from _partitions(view, number, offsets)
            topics.append(
                kafka.offset_fetch.OffsetFetchResponseTopics(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
        yield 1
    return topics


def _asked_topic(
    broker: Serving,
    exchange: Exchange,
    view: OffsetsView | None,
    handle: str | bytes,
    indexes: Iterable[int],
    refusal: int,
) -> Steps[kafka.offset_fetch.OffsetFetchResponseTopics]:
    catalog = broker.log.state.catalog
    by_id = isinstance(handle, bytes)
    topic = catalog.identified(handle) if isinstance(handle, bytes) else catalog.named(handle)
    name = handle if isinstance(handle, str) else None if topic is None else topic.name
    if not refusal and name is not None:
        refusal = broker.guard.error(exchange, DESCRIBE_TOPIC, name)
    partitions: list[kafka.offset_fetch.OffsetFetchResponsePartitions]
    if refusal:
        partitions = yield from each(indexes, lambda index: _unknown(index, refusal))
    elif topic is None or view is None:
        # A topic with this name may still be created, but never one with this id.
        error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.NONE
        partitions = yield from each(indexes, lambda index: _unknown(index, error))
    else:
        partitions = yield from _partitions(view, topic.number, indexes)
    answered = kafka.offset_fetch.OffsetFetchResponseTopics(partitions=partitions)
    if isinstance(handle, bytes):
        answered.topic_id = handle
    else:
        answered.name = handle
    return answered


def _unknown(index: int, error: int) -> kafka.offset_fetch.OffsetFetchResponsePartitions:
    return kafka.offset_fetch.OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=error
    )


def _partitions(
    view: OffsetsView, number: int, indexes: Iterable[int]
) -> Steps[list[kafka.offset_fetch.OffsetFetchResponsePartitions]]:
    partitions = []
    for index in indexes:
        partitions.append(_committed(view, PartitionName(number, index)))
        yield 1
    return partitions


def _committed(view: OffsetsView, name: PartitionName) -> kafka.offset_fetch.OffsetFetchResponsePartitions:
    if view.is_pending(name):
        return _unknown(name.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    offset = view.committed.get(name.number, {}).get(name.partition)
    if offset is None:
        return _unknown(name.partition, ErrorCode.NONE)
    return kafka.offset_fetch.OffsetFetchResponsePartitions(
        partition_index=name.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )
