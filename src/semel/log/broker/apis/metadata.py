"""Metadata (3), versions 0 to 13: the brokers, and the topics, with the active broker as the leader of every partition.

A request for a topic that does not exist creates it, if both the client and the broker's settings allow that; the
answer is sent when the new topic is durable. Apache Kafka answers first and makes the client ask again. A standby
cannot create it: it says so once, together with the address of the active broker, and closes the connection if the
client asks it again, because a client goes on asking a broker that answers. While the store does not answer, and no
broker stands by, no partition has a leader: clients wait for one, as for a lost broker of Apache Kafka. A topic that is
named twice is answered once, because otherwise a small request could have an answer of any size.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, attempted_in_steps, decoded, shown_end
from semel.log.broker.apis.create_topics import create
from semel.log.broker.apis.lookup import topic_identified
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.access import ResourceType
from semel.log.core.topics import Topic, check_name
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps, each
from semel.wire.versions import METADATA

API: Final = Api(
    METADATA,
    (0, 13),
    rights=(DESCRIBE_TOPIC, DESCRIBE_CLUSTER, CREATE_CLUSTER, CREATE_TOPIC),
    standby=Here.SERVES,
    forwards=True,
    asks_who=True,
)

_NO_NAME_FROM: Final = 12
# The leader of a partition that has none.
NO_NODE: Final = -1


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.metadata.MetadataRequest, body)
    topics = yield from _topics(broker, exchange, request)
    if not broker.role.is_active and any(topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE for topic in topics):
        if exchange.connection.was_referred:
            exchange.reply_by_hanging_up()
            return
        exchange.connection.was_referred = True
    api = kafka.metadata
    asks_cluster = request.include_cluster_authorized_operations
    role, listener = broker.role, exchange.listener
    brokers = {role.node_id: role.active_at(listener), **role.former_at(listener), **role.standbys_at(listener)}
    response = api.MetadataResponse(
        brokers=[
            api.MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in brokers.items()
        ],
        cluster_id=broker.log.state.cluster_id,
        controller_id=broker.role.node_id,
        topics=topics,
        cluster_authorized_operations=broker.guard.cluster_operations(exchange) if asks_cluster else NOT_ASKED,
    )
    yield from answer_in_steps(exchange, response, after=shown_end(broker))


def _topics(
    broker: Serving, exchange: Exchange, request: kafka.metadata.MetadataRequest
) -> Steps[list[kafka.metadata.MetadataResponseTopic]]:
    version = exchange.version
    shows_operations = request.include_topic_authorized_operations
    topics: list[kafka.metadata.MetadataResponseTopic]
    if request.topics is None or (version == 0 and not request.topics):
        topics = []
        for topic in list(broker.log.state.catalog):
            if broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name):
                topics.append((yield from _describe(broker, exchange, topic, shows_operations)))
            yield 1
    else:
        handles = dict.fromkeys((yield from each(request.topics, lambda item: _name_or_id(item, version))))
        # Before version 4 a client could not decline that.
        create_missing = request.allow_auto_topic_creation and broker.auto_create_topics
        topics = []
        for name, topic_id in handles:
            topic_or_refusal = yield from attempted_in_steps(
                _look_up(broker, exchange, name, topic_id, create_missing, shows_operations)
            )
            if isinstance(topic_or_refusal, Refused):
                topic_or_refusal = kafka.metadata.MetadataResponseTopic(
                    error_code=topic_or_refusal.error,
                    name=name,
                    topic_id=topic_id,
                    partitions=(),
                    topic_authorized_operations=operations_on(broker, exchange, name, shows_operations),
                )
            topics.append(topic_or_refusal)
            yield 4
    return topics


def _name_or_id(item: kafka.metadata.MetadataRequestTopic, version: int) -> tuple[str | None, bytes]:
    """The name or the id of a topic in the request. If it has an id, its name does not count."""
    name = item.name if item.topic_id == NO_ID else None
    return "" if name is None and version < _NO_NAME_FROM else name, item.topic_id


def _look_up(
    broker: Serving, exchange: Exchange, name: str | None, topic_id: bytes, create_missing: bool, shows_operations: bool
) -> Steps[kafka.metadata.MetadataResponseTopic]:
    if topic_id != NO_ID or name is None:
        topic = topic_identified(broker, topic_id)
        broker.guard.check(exchange, DESCRIBE_TOPIC, topic.name)
        return (yield from _describe(broker, exchange, topic, shows_operations))
    broker.guard.check(exchange, DESCRIBE_TOPIC, name)
    if create_missing and broker.log.state.catalog.named(name) is None:
        if not broker.guard.sees(exchange, CREATE_CLUSTER):
            broker.guard.check(exchange, CREATE_TOPIC, name)
        check_name(name)
        if not broker.role.may_serve:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic '{name}' does not exist, and is not created now")
        create(broker, name, broker.partitions_default, {})
        yield APPEND_PIECES
    check_name(name)
    return (yield from _describe(broker, exchange, broker.log.state.catalog.existing(name), shows_operations))


def _describe(
    broker: Serving, exchange: Exchange, topic: Topic, shows_operations: bool
) -> Steps[kafka.metadata.MetadataResponseTopic]:
    operations = operations_on(broker, exchange, topic.name, shows_operations)
    partition, node_id = kafka.metadata.MetadataResponsePartition, broker.role.node_id
    is_leaderless = broker.role.has_lost_lease
    partitions = yield from each(
        range(topic.partition_count),
        lambda index: partition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_leaderless else ErrorCode.NONE,
            partition_index=index,
            leader_id=NO_NODE if is_leaderless else node_id,
            leader_epoch=broker.log.state.partitions.leader_epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
            offline_replicas=(),
        ),
    )
    return kafka.metadata.MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions, topic_authorized_operations=operations
    )


def operations_on(broker: Serving, exchange: Exchange, name: str | None, shows_operations: bool) -> int:
    """What the client may do with a topic that it may see, whether it exists or not."""
    if name is None or not shows_operations or not broker.guard.sees(exchange, DESCRIBE_TOPIC, name):
        return NOT_ASKED
    return broker.guard.operations(exchange, ResourceType.TOPIC, name)
