"""DescribeProducers (61), version 0: who has written to a partition with numbered batches, and how far they got.

`semel.core.producers` forgets those that were silent for long, and so does this answer.
"""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered, attempted
from semel.broker.apis.lookup import partition_of
from semel.core.producers import epoch_of, last_heard_ms, window_of

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "active_producers": [],
                        **attempted(_describe, broker, topic.name, index),
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _describe(broker: "Broker", topic_name: str, index: int) -> Fields:
    _, partition = partition_of(broker, topic_name, index)
    return {
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": epoch_of(state),
                "last_sequence": window_of(state)[-1].last_sequence,
                "last_timestamp": last_heard_ms(state),
                "coordinator_epoch": -1,
                "current_txn_start_offset": -1,
            }
            for producer_id, state in partition.state.producers.items()
        ]
    }
