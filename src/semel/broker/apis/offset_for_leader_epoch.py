"""OffsetForLeaderEpoch (23), versions 2 to 4: where the records of a leader's epoch end.

Consumers ask after a change of leader, to notice records that were lost with the old one. Here the one epoch there is,
0, ends where consumers may read to; any other, asked for by its number, is not known and has no end.
"""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered, attempted
from semel.broker.apis.lookup import LEADER_EPOCH, check_leader_epoch, partition_of

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {
                        "partition": asked.partition,
                        "leader_epoch": -1,
                        "end_offset": -1,
                        **attempted(_end_of_epoch, broker, topic.topic, asked),
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _end_of_epoch(broker: "Broker", topic_name: str, asked: Any) -> Fields:
    _, partition = partition_of(broker, topic_name, asked.partition)
    check_leader_epoch(asked.current_leader_epoch)
    if asked.leader_epoch != LEADER_EPOCH:
        return {}
    return {"leader_epoch": LEADER_EPOCH, "end_offset": partition.readable.offset}
