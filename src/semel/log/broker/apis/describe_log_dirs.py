"""DescribeLogDirs (35), versions 1 to 5: how many bytes each partition takes in the one data directory.

Topics and partitions that do not exist are left out, as in Apache Kafka. The size of the disk is always -1, unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.topics import Topic
from semel.wire import kafka
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_LOG_DIRS

API: Final = Api(DESCRIBE_LOG_DIRS, (1, 5), rights=(DESCRIBE_CLUSTER,), standby=Here.LISTS_NOTHING)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_log_dirs.DescribeLogDirsRequest
) -> Steps[kafka.describe_log_dirs.DescribeLogDirsResponse]:
    refusal = broker.guard.error(exchange, DESCRIBE_CLUSTER)
    if refusal:
        return kafka.describe_log_dirs.DescribeLogDirsResponse(error_code=refusal, results=())
    catalog = broker.log.state.catalog
    indexes_of_topics: Iterable[tuple[Topic | None, Iterable[int]]]
    if request.topics is None:
        indexes_of_topics = [(topic, range(topic.partition_count)) for topic in catalog]
    else:
        # Each is answered once: otherwise a small request could have an answer of any size.
        by_name = {item.topic: dict.fromkeys(item.partitions) for item in request.topics}
        indexes_of_topics = [(catalog.named(name), indexes) for name, indexes in by_name.items()]
    topics = []
    for topic, indexes in indexes_of_topics:
        if topic is not None:
            sizes = yield from _sizes(broker, topic, indexes)
            topics.append(kafka.describe_log_dirs.DescribeLogDirsTopic(name=topic.name, partitions=sizes))
        yield 1
    directory = kafka.describe_log_dirs.DescribeLogDirsResult(log_dir=broker.log.files.describe(""), topics=topics)
    return kafka.describe_log_dirs.DescribeLogDirsResponse(results=[directory])


def _sizes(
    broker: Serving, topic: Topic, indexes: Iterable[int]
) -> Steps[list[kafka.describe_log_dirs.DescribeLogDirsPartition]]:
    sizes = []
    for index in indexes:
        # The topic may have been deleted meanwhile.
        present = broker.log.state.catalog.numbered(topic.number)
        partition = None if present is None else broker.log.state.partitions.at(present.number, index)
        if partition is not None:
            sizes.append(
                kafka.describe_log_dirs.DescribeLogDirsPartition(
                    partition_index=index, partition_size=partition.size, offset_lag=0, is_future_key=False
                )
            )
            yield 1 + len(partition.segments)
        else:
            yield 1
    return sizes
