"""DescribeLogDirs (35), versions 1 to 5: how many bytes each partition takes in the one directory there is.

Topics and partitions that do not exist are left out, as in Apache Kafka. How large the disk is nobody is told (-1).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from semel.broker.apis.answered import Fields, answered
from semel.core.topics import Topic

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    catalog = broker.log.catalog
    wanted: Iterable[tuple[Topic | None, Iterable[int]]]
    if request.topics is None:
        wanted = [(topic, range(topic.partition_count)) for topic in catalog]
    else:
        # Once each, or a small request could have an answer of any size.
        by_name = {asked.topic: dict.fromkeys(asked.partitions) for asked in request.topics}
        wanted = [(catalog.named(name), indexes) for name, indexes in by_name.items()]
    return {
        "results": [
            {
                "log_dir": broker.log.files.describe(""),
                "topics": [
                    {"name": topic.name, "partitions": _sizes(broker, topic, indexes)}
                    for topic, indexes in wanted
                    if topic is not None
                ],
                "total_bytes": -1,
                "usable_bytes": -1,
                "is_cordoned": False,
            }
        ]
    }


def _sizes(broker: "Broker", topic: Topic, indexes: Iterable[int]) -> list[dict[str, object]]:
    found = ((index, broker.log.partition(topic, index)) for index in indexes)
    return [
        {"partition_index": index, "partition_size": partition.size, "offset_lag": 0, "is_future_key": False}
        for index, partition in found
        if partition is not None
    ]
