"""Metadata (3), versions 0 to 13: the topics, each partition of which is led by this broker.

A request for a topic that does not exist creates it, if both the client and the broker's settings allow that; the
answer goes when the new topic is durable. Apache Kafka answers first and makes the client ask again. A topic that is
named twice is answered once, or a small request could have an answer of any size.
"""

from typing import Any, Final

from semel.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.broker.apis.create_topics import create
from semel.broker.apis.lookup import topic_identified
from semel.broker.apis.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from semel.broker.connection import Exchange
from semel.broker.limits import NODE_ID
from semel.broker.serving import Serving
from semel.core.steps import APPEND_PIECES, Steps, each
from semel.core.topics import Topic, check_name
from semel.wire import messages
from semel.wire.reader import NO_TOPIC_ID

_AUTO_CREATION_FROM: Final = 4
_NO_NAME_FROM: Final = 12


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    version = exchange.version
    operations = TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else NOT_ASKED
    asks_cluster = getattr(request, "include_cluster_authorized_operations", False)
    topics: list[Fields]
    if request.topics is None or (version == 0 and not request.topics):
        topics = []
        for topic in list(broker.log.state.catalog):
            topics.append((yield from _describe(broker, topic, operations)))
            yield 1
    else:
        handles = dict.fromkeys((yield from each(request.topics, lambda item: _name_or_id(item, version))))
        # Before version 4 a client could not decline.
        may_create = getattr(request, "allow_auto_topic_creation", version < _AUTO_CREATION_FROM)
        create_missing = may_create and broker.auto_create_topics
        topics = []
        for name, topic_id in handles:
            outcome = yield from attempted_in_steps(_look_up(broker, name, topic_id, create_missing, operations))
            topics.append({**described_missing(name), "topic_id": topic_id, **outcome})
            yield 4
    host, port = exchange.listener.reached_at
    return {
        "brokers": [{"node_id": NODE_ID, "host": host, "port": port, "rack": None}],
        "cluster_id": broker.log.state.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asks_cluster else NOT_ASKED,
    }


def _name_or_id(item: Any, version: int) -> tuple[str | None, bytes]:
    """The name or the id that the request gives for a topic. If it gives an id, the name beside it does not count."""
    topic_id = messages.topic_id_bytes(getattr(item, "topic_id", None))
    if topic_id == NO_TOPIC_ID:
        return item.name, topic_id
    return None if version >= _NO_NAME_FROM else "", topic_id


def _look_up(
    broker: Serving, name: str | None, topic_id: bytes, create_missing: bool, operations: int
) -> Steps[Fields]:
    if topic_id != NO_TOPIC_ID or name is None:
        return (yield from _describe(broker, topic_identified(broker, topic_id), operations))
    if create_missing and broker.log.state.catalog.named(name) is None:
        create(broker, name, broker.partitions_default, {})
        yield APPEND_PIECES
    check_name(name)
    return (yield from _describe(broker, broker.log.state.catalog.existing(name), operations))


def _describe(broker: Serving, topic: Topic, operations: int) -> Steps[Fields]:
    partitions = yield from each(range(topic.partition_count), lambda index: described_partition(broker, index))
    return described(topic, operations, partitions)


def described(topic: Topic, operations: int, partitions: list[Fields]) -> Fields:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "topic_authorized_operations": operations,
        "partitions": partitions,
    }


def described_missing(name: str | None) -> Fields:
    """What is said of a topic besides the error, where there is one."""
    return {
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "is_internal": False,
        "topic_authorized_operations": NOT_ASKED,
        "partitions": [],
    }


def described_partition(broker: Serving, index: int) -> Fields:
    return {
        "partition_index": index,
        "leader_id": NODE_ID,
        "leader_epoch": broker.log.state.partitions.leader_epoch,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
        "offline_replicas": [],
    }
