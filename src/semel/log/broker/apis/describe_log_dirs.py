"""DescribeLogDirs (35), versions 1 to 5: how many bytes each partition takes in the one data directory.

Topics and partitions that do not exist are left out, as in Apache Kafka. The size of the disk is always -1, unknown.
"""

from collections.abc import Iterable
from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.topics import Topic
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_LOG_DIRS

API: Final = Api(DESCRIBE_LOG_DIRS, (1, 5), rights=(DESCRIBE_CLUSTER,), standby=Here.LISTS_NOTHING)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    refusal = broker.guard.error(exchange, DESCRIBE_CLUSTER)
    if refusal:
        return {"error_code": refusal, "results": []}
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
            topics.append({"name": topic.name, "partitions": (yield from _sizes(broker, topic, indexes))})
        yield 1
    return {
        "results": [
            {
                "log_dir": broker.log.files.describe(""),
                "topics": topics,
                "total_bytes": -1,
                "usable_bytes": -1,
                "is_cordoned": False,
            }
        ]
    }


def _sizes(broker: Serving, topic: Topic, indexes: Iterable[int]) -> Steps[list[dict[str, object]]]:
    sizes: list[dict[str, object]] = []
    for index in indexes:
        # The topic may have been deleted meanwhile.
        present = broker.log.state.catalog.numbered(topic.number)
        partition = None if present is None else broker.log.state.partitions.at(present.number, index)
        if partition is not None:
            size = partition.size
            sizes.append({"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False})
            yield 1 + len(partition.segments)
        else:
            yield 1
    return sizes
