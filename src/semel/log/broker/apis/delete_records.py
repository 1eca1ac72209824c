"""DeleteRecords (21), versions 0 to 2: deletes all records of a partition below an offset; -1 means all records.

Only records that consumers may read can be deleted, and only from a topic whose `cleanup.policy` deletes records. The
answer is the new log start, which may be above the requested offset, and never moves back.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of
from semel.log.broker.apis.lookup import partition_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DELETE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import LogStartMoved
from semel.wire import kafka
from semel.wire.refusals import POLICY_VIOLATION, Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import DELETE_RECORDS

API: Final = Api(DELETE_RECORDS, (0, 2), rights=(DELETE_TOPIC,), standby=Here.NOT_LEADER)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.delete_records.DeleteRecordsRequest
) -> Steps[kafka.delete_records.DeleteRecordsResponse]:
    api = kafka.delete_records
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            index = item.partition_index
            low_watermark = attempted(_delete_below, broker, exchange, topic.name, index, item.offset)
            partitions.append(
                api.DeleteRecordsPartitionResult(
                    partition_index=index,
                    low_watermark=-1 if isinstance(low_watermark, Refused) else low_watermark,
                    error_code=error_of(low_watermark),
                )
            )
            yield APPEND_PIECES
        topics.append(api.DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        yield 1
    return api.DeleteRecordsResponse(topics=topics)


def _delete_below(broker: Serving, exchange: Exchange, topic_name: str, index: int, offset: int) -> int:
    broker.guard.check(exchange, DELETE_TOPIC, topic_name)
    topic, partition = partition_of(broker, topic_name, index)
    if not topic.parsed.is_deleted:
        raise Refused(POLICY_VIOLATION, "the topic is compacted, and keeps the last record of every key")
    log_start = partition.state.decide_log_start(offset, partition.readable.offset)
    if log_start > partition.state.log_start:
        broker.runtime.commit(LogStartMoved(topic.number, index, log_start))
        below = {"partition": index, "below": log_start}
        broker.guard.note_administration(exchange, "records_deleted", topic_name, **below)
    return log_start
