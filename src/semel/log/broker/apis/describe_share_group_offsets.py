"""DescribeShareGroupOffsets (90), versions 0 and 1: where the share partitions of groups begin, and how many of their
records are not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName
from semel.log.core.groups.share import ShareGroup
from semel.log.core.topics import Topic
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_SHARE_GROUP_OFFSETS

API: Final = Api(
    DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR
)

_Partition = kafka.describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition
_Topic = kafka.describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_share_group_offsets.DescribeShareGroupOffsetsRequest
) -> Steps[kafka.describe_share_group_offsets.DescribeShareGroupOffsetsResponse]:
    api = kafka.describe_share_group_offsets
    groups = []
    for group in request.groups:
        topics = yield from attempted_in_steps(_topics(broker, exchange, group))
        if isinstance(topics, Refused):
            groups.append(
                api.DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, topics=(), error_code=topics.error, error_message=topics.message
                )
            )
        else:
            groups.append(api.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics))
        yield 2
    return api.DescribeShareGroupOffsetsResponse(groups=groups)


def _topics(
    broker: Serving,
    exchange: Exchange,
    group: kafka.describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup,
) -> Steps[list[_Topic]]:
    broker.guard.check(exchange, DESCRIBE_GROUP, group.group_id)
    machine = broker.share_groups.existing(group.group_id)
    topics = []
    if group.topics is None:
        of_topics: dict[int, list[int]] = {}
        for (number, index), _ in list(machine.partitions()):
            of_topics.setdefault(number, []).append(index)
            yield 1
        for number, indexes in of_topics.items():
            topic = broker.log.state.catalog.numbered(number)
            if topic is not None and broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name):
                topics.append((yield from _described(broker, machine, topic.name, topic, sorted(indexes))))
        return topics
    for one in group.topics:
        if not broker.guard.sees(exchange, DESCRIBE_TOPIC, one.topic_name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused = [
                _Partition(partition_index=index, start_offset=-1, leader_epoch=0, error_code=error)
                for index in one.partitions
            ]
            topics.append(_Topic(topic_name=one.topic_name, topic_id=NO_ID, partitions=refused))
            yield 1 + len(refused)
            continue
        topic = broker.log.state.catalog.named(one.topic_name)
        topics.append((yield from _described(broker, machine, one.topic_name, topic, one.partitions)))
    return topics


def _described(
    broker: Serving, machine: ShareGroup, name: str, topic: Topic | None, indexes: Iterable[int]
) -> Steps[_Topic]:
    """As in Apache Kafka, what nobody has used yet is no error, but has no offset."""
    partitions = []
    for index in indexes:
        place = None if topic is None else PartitionName(topic.number, index)
        partition = None if place is None else machine.partition(place)
        of_log = None if place is None else broker.log.state.partitions.at(*place)
        if partition is None or of_log is None:
            partitions.append(_Partition(partition_index=index, start_offset=-1, leader_epoch=0))
            yield 1
            continue
        start = max(partition.start, of_log.state.log_start)
        done = partition.done_count if start == partition.start else 0
        partitions.append(
            _Partition(
                partition_index=index,
                start_offset=start,
                leader_epoch=broker.log.state.partitions.leader_epoch,
                lag=max(of_log.readable.offset - start - done, 0),
            )
        )
        yield 2 + partition.run_count // 20
    return _Topic(topic_name=name, topic_id=NO_ID if topic is None else topic.topic_id, partitions=partitions)
