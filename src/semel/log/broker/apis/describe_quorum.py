"""DescribeQuorum (55), versions 0 to 2: the active broker is the only voter over the cluster's metadata, which are in
its journal; the standbys observe it. Offsets in that log are places in the journal.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_QUORUM

API: Final = Api(DESCRIBE_QUORUM, (0, 2), rights=(DESCRIBE_CLUSTER,), standby=Here.READS, forwards=True)

# What Kafka calls the log of the metadata, which has one partition.
_METADATA: Final = ("__cluster_metadata", 0)
# How far a standby has read is known to itself.
_UNKNOWN: Final = -1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_quorum.DescribeQuorumRequest
) -> Steps[kafka.describe_quorum.DescribeQuorumResponse]:
    refusal = broker.guard.error(exchange, DESCRIBE_CLUSTER)
    api = kafka.describe_quorum
    if refusal:
        return api.DescribeQuorumResponse(error_code=refusal, topics=())
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            is_metadata = (topic.topic_name, item.partition_index) == _METADATA
            partitions.append((_quorum if is_metadata else _unknown)(broker, item.partition_index))
            yield 1
        topics.append(api.ResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
        yield 1
    host, port = broker.role.active_at(exchange.listener)
    listener = api.Listener(name=exchange.listener.name, host=host, port=port)
    return api.DescribeQuorumResponse(
        topics=topics, nodes=[api.Node(node_id=broker.role.node_id, listeners=[listener])]
    )


def _quorum(broker: Serving, index: int) -> kafka.describe_quorum.ResponsePartitionData:
    now_ms = broker.clock.now_ms()
    return kafka.describe_quorum.ResponsePartitionData(
        partition_index=index,
        leader_id=broker.role.node_id,
        leader_epoch=broker.log.state.partitions.leader_epoch,
        high_watermark=broker.log.end,
        current_voters=[_replica(broker.role.node_id, broker.log.end, now_ms)],
        observers=[_replica(node_id, _UNKNOWN, _UNKNOWN) for node_id in broker.role.standby_ids],
    )


def _unknown(_: Serving, index: int) -> kafka.describe_quorum.ResponsePartitionData:
    return kafka.describe_quorum.ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _replica(node_id: int, end: int, seen_ms: int) -> kafka.describe_quorum.ReplicaState:
    return kafka.describe_quorum.ReplicaState(
        replica_id=node_id, log_end_offset=end, last_fetch_timestamp=seen_ms, last_caught_up_timestamp=seen_ms
    )
