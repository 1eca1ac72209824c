"""OffsetForLeaderEpoch (23), versions 2 to 4: the offset at which a leader epoch ends.

Consumers ask after a change of leader, to notice records that were lost with the old leader (KIP-320). Here the leader
is always the same, and its epoch rises when it may have lost records (`core/leader_epochs.py`). The last epoch ends at
the offset up to which consumers may read; a future epoch is unknown and has no end.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of
from semel.log.broker.apis.lookup import check_leader_epoch, partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import CLUSTER_ACTION, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import OFFSET_FOR_LEADER_EPOCH

API: Final = Api(OFFSET_FOR_LEADER_EPOCH, (2, 4), rights=(DESCRIBE_TOPIC, CLUSTER_ACTION), standby=Here.NOT_LEADER)

_NO_END: Final = (-1, -1)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.offset_for_leader_epoch.OffsetForLeaderEpochRequest
) -> Steps[kafka.offset_for_leader_epoch.OffsetForLeaderEpochResponse]:
    api = kafka.offset_for_leader_epoch
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            end = attempted(_end_of_epoch, broker, exchange, topic.topic, item)
            epoch, end_offset = _NO_END if isinstance(end, Refused) else end
            partitions.append(
                api.EpochEndOffset(
                    error_code=error_of(end), partition=item.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
            yield 2
        topics.append(api.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield 1
    return api.OffsetForLeaderEpochResponse(topics=topics)


def _end_of_epoch(
    broker: Serving,
    exchange: Exchange,
    topic_name: str,
    item: kafka.offset_for_leader_epoch.OffsetForLeaderPartition,
) -> tuple[int, int]:
    """The epoch and its end."""
    if not broker.guard.sees(exchange, CLUSTER_ACTION):
        broker.guard.check(exchange, DESCRIBE_TOPIC, topic_name)
    _, partition = partition_of(broker, topic_name, item.partition)
    check_leader_epoch(broker, item.current_leader_epoch)
    if not 0 <= item.leader_epoch <= broker.log.state.partitions.leader_epoch:
        return _NO_END
    epoch, end_offset = partition.state.epochs.end_of(item.leader_epoch, partition.readable.offset)
    return epoch, min(end_offset, partition.readable.offset)
