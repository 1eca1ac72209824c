"""Metadata (3), versions 0 to 13: which topics there are, and that this broker leads them all.

Asking for a topic that does not exist makes it, where both the client and the broker's settings want that; the answer
then goes when the new topic is durable.
"""

from typing import TYPE_CHECKING, Any, Final

from semel.broker.apis.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from semel.broker.limits import NODE_ID
from semel.core.refusals import Refused
from semel.core.topics import Topic
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.versions import METADATA

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange

_AUTO_CREATION_FROM: Final = 4


def handle(broker: "Broker", exchange: "Exchange", body: memoryview) -> None:
    version = exchange.version
    request = messages.decode_request(METADATA, version, body)
    operations = TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else NOT_ASKED
    asks_cluster = getattr(request, "include_cluster_authorized_operations", False)
    if request.topics is None or (version == 0 and not request.topics):
        described = [_describe(topic, operations) for topic in broker.log.catalog]
    else:
        # Below version 4 nobody could say no.
        create = broker.auto_create_topics and getattr(
            request, "allow_auto_topic_creation", version < _AUTO_CREATION_FROM
        )
        described = [_look_up(broker, asked, create, operations) for asked in request.topics]
    answer = messages.build_response(
        METADATA,
        version,
        brokers=[{"node_id": NODE_ID, "host": broker.advertised_host, "port": broker.port, "rack": None}],
        cluster_id=broker.log.cluster_id,
        controller_id=NODE_ID,
        topics=described,
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_cluster else NOT_ASKED,
    )
    frame = messages.encode_response(METADATA, version, exchange.correlation_id, answer)
    exchange.reply((frame,), after=broker.log.end)


def _look_up(broker: "Broker", asked: Any, create: bool, operations: int) -> dict[str, object]:
    catalog = broker.log.catalog
    if asked.name is None:
        topic_id = messages.topic_id_bytes(asked.topic_id)
        topic = catalog.identified(topic_id)
        if topic is None:
            return _missing(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _describe(topic, operations)
    topic = catalog.named(asked.name)
    if topic is not None:
        return _describe(topic, operations)
    if not create:
        return _missing(asked.name, messages.NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        return _describe(broker.create_topic(asked.name, broker.partitions_default, {}), operations)
    except Refused as refused:
        return _missing(asked.name, messages.NO_TOPIC_ID, refused.error)
    except OSError:
        return _missing(asked.name, messages.NO_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE)


def _describe(topic: Topic, operations: int) -> dict[str, object]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "topic_authorized_operations": operations,
        "partitions": [
            {
                "error_code": ErrorCode.NONE,
                "partition_index": index,
                "leader_id": NODE_ID,
                "leader_epoch": 0,
                "replica_nodes": [NODE_ID],
                "isr_nodes": [NODE_ID],
                "offline_replicas": [],
            }
            for index in range(topic.partition_count)
        ],
    }


def _missing(name: str | None, topic_id: bytes, error: int) -> dict[str, object]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "topic_authorized_operations": NOT_ASKED,
        "partitions": [],
    }
