"""DeleteRecords (21), versions 0 to 2: everything below an offset goes, partition by partition; -1 is all there is.

Only what consumers may read can be deleted, and only from a topic whose old records may go. The answer is the log start
from now on, which may be above the offset that was asked for, and never goes back.
"""

from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered, attempted
from semel.broker.apis.lookup import partition_of
from semel.core.entries import LogStartMoved
from semel.core.refusals import POLICY_VIOLATION, Refused

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
                        "partition_index": asked.partition_index,
                        "low_watermark": -1,
                        **attempted(_delete_below, broker, topic.name, asked.partition_index, asked.offset),
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _delete_below(broker: "Broker", topic_name: str, index: int, offset: int) -> Fields:
    topic, partition = partition_of(broker, topic_name, index)
    if not topic.parsed.is_deleted:
        raise Refused(POLICY_VIOLATION, "the topic is compacted, and keeps the last record of every key")
    log_start = partition.state.decide_log_start(offset, partition.readable.offset)
    if log_start > partition.state.log_start:
        broker.commit(LogStartMoved(topic.number, index, log_start))
    return {"low_watermark": log_start}
