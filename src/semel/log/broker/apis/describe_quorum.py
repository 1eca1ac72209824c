"""DescribeQuorum (55), versions 0 to 2: the active broker is the only voter over the cluster's metadata, which are in
its journal; the standbys observe it. Offsets in that log are places in the journal.
"""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire.errors import ErrorCode
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_QUORUM

API: Final = Api(DESCRIBE_QUORUM, (0, 2), rights=(DESCRIBE_CLUSTER,), standby=Here.READS, forwards=True)

# What Kafka calls the log of the metadata, which has one partition.
_METADATA: Final = ("__cluster_metadata", 0)
# How far a standby has read is known to itself.
_UNKNOWN: Final = -1


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    refusal = broker.guard.error(exchange, DESCRIBE_CLUSTER)
    if refusal:
        return {"error_code": refusal, "error_message": None, "topics": [], "nodes": []}
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            is_metadata = (topic.topic_name, item.partition_index) == _METADATA
            fields = _quorum(broker) if is_metadata else _nothing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partitions.append({"partition_index": item.partition_index, "error_message": None, **fields})
            yield 1
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
        yield 1
    host, port = broker.role.active_at(exchange.listener)
    listeners = [{"name": exchange.listener.name, "host": host, "port": port}]
    return {
        "error_message": None,
        "topics": topics,
        "nodes": [{"node_id": broker.role.node_id, "listeners": listeners}],
    }


def _quorum(broker: Serving) -> Fields:
    now_ms = broker.clock.now_ms()
    return _nothing(ErrorCode.NONE) | {
        "leader_id": broker.role.node_id,
        "leader_epoch": broker.log.state.partitions.leader_epoch,
        "high_watermark": broker.log.end,
        "current_voters": [_replica(broker.role.node_id, broker.log.end, now_ms)],
        "observers": [_replica(node_id, _UNKNOWN, _UNKNOWN) for node_id in broker.role.standby_ids],
    }


def _nothing(error: ErrorCode) -> dict[str, object]:
    empty: dict[str, object] = {"leader_id": 0, "leader_epoch": 0, "high_watermark": 0}
    return {"error_code": error, **empty, "current_voters": [], "observers": []}


def _replica(node_id: int, end: int, seen_ms: int) -> Fields:
    seen: dict[str, object] = {"last_fetch_timestamp": seen_ms, "last_caught_up_timestamp": seen_ms}
    return {"replica_id": node_id, "replica_directory_id": bytes(16), "log_end_offset": end, **seen}
