"""One topic by its name, its partitions, and where each of them begins or ends.

Like every question to a `Cluster`, these make one attempt. A question must never create a missing topic.
"""

from collections.abc import Iterable

from semel.client.cluster import Cluster
from semel.client.errors import UnknownTopic
from semel.client.places import Isolation, Position, Topic, TopicPartition


def topic_of(cluster: Cluster, name: str) -> Topic:
    topic = cluster.topics([name]).get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def partitions_of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for number in range(topic.partitions)]


def offsets_of(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    at: Position,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The first or the end offset of each partition, or the first offset at a time. Partitions without a record at that
    time or later are left out.
    """
    return {where: offset for where, offset in cluster.offsets(partitions, at, isolation) if offset is not None}
