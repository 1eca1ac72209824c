"""DescribeTopicPartitions (75), version 0: topics by name, a bounded number of partitions at a time.

An answer that ends before the last partition says where the next request has to begin. This request creates no topic.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted
from semel.log.broker.apis.metadata import operations_on
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.access import ResourceType
from semel.log.core.topics import Topic, check_name
from semel.wire import kafka
from semel.wire.message import NO_ID
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, each, in_order
from semel.wire.versions import DESCRIBE_TOPIC_PARTITIONS

API: Final = Api(DESCRIBE_TOPIC_PARTITIONS, (0, 0), rights=(DESCRIBE_TOPIC,), standby=Here.READS, forwards=True)

# As in Apache Kafka (max.request.partition.size.limit), even if the client asks for more.
PARTITIONS_PER_ANSWER_MAX: Final = 2_000


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_topic_partitions.DescribeTopicPartitionsRequest
) -> Steps[kafka.describe_topic_partitions.DescribeTopicPartitionsResponse]:
    api = kafka.describe_topic_partitions
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, max(request.cursor.partition_index, 0)
    guard = broker.guard

    def name_seen(topic: Topic) -> str | None:
        return topic.name if guard.sees(exchange, DESCRIBE_TOPIC, topic.name) else None

    names: list[str | None] = [item.name for item in request.topics]
    names = names or (yield from each(list(broker.log.state.catalog), name_seen))
    wanted = yield from in_order(name for name in names if name is not None and name >= first_name)
    places_left = max(min(request.response_partition_limit, PARTITIONS_PER_ANSWER_MAX), 1)
    topics: list[kafka.describe_topic_partitions.DescribeTopicPartitionsResponseTopic] = []
    for name in wanted:
        begin = first_index if name == first_name else 0
        if places_left == 0:
            cursor = api.ResponseCursor(topic_name=name, partition_index=begin)
            return api.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        topic = broker.log.state.catalog.named(name) if guard.sees(exchange, DESCRIBE_TOPIC, name) else None
        count = 0 if topic is None else topic.partition_count
        end = min(begin + places_left, count)
        described = attempted(_describe, broker, exchange, name, range(begin, end))
        if isinstance(described, Refused):
            described = api.DescribeTopicPartitionsResponseTopic(
                error_code=described.error,
                name=name,
                topic_id=NO_ID,
                partitions=(),
                topic_authorized_operations=operations_on(broker, exchange, name, shows_operations=True),
            )
        topics.append(described)
        places_left -= len(range(begin, end))
        yield 2 + len(range(begin, end))
        if end < count:
            cursor = api.ResponseCursor(topic_name=name, partition_index=end)
            return api.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
    return api.DescribeTopicPartitionsResponse(topics=topics)


def _describe(
    broker: Serving, exchange: Exchange, name: str, indexes: range
) -> kafka.describe_topic_partitions.DescribeTopicPartitionsResponseTopic:
    api = kafka.describe_topic_partitions
    broker.guard.check(exchange, DESCRIBE_TOPIC, name)
    check_name(name)
    replicas = [broker.role.node_id]
    partitions = [
        api.DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=broker.role.node_id,
            leader_epoch=broker.log.state.partitions.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=replicas,
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=(),
        )
        for index in indexes
    ]
    topic = broker.log.state.catalog.existing(name)
    return api.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
        topic_authorized_operations=broker.guard.operations(exchange, ResourceType.TOPIC, name),
    )
