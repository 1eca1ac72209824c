"""One topic by its name, its partitions, and where each of them begins or ends.

Like every question to a `Cluster`, these make one attempt. A question must never create a missing topic.
"""

import difflib
from collections.abc import Collection, Iterable
from typing import Final

from semel.client.cluster import Cluster
from semel.client.errors import UnknownTopic
from semel.client.places import LATEST, Isolation, Position, Topic, TopicPartition

# How much of a name has to agree with one that no topic, or no group, has: two letters that changed places in six.
NEARNESS_MIN: Final = 0.75


def topic_of(cluster: Cluster, name: str) -> Topic:
    topic = cluster.topics([name]).get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}{near(cluster, name)}")
    return topic


def near(cluster: Cluster, name: str) -> str:
    """The topic whose name was probably meant, as the end of a sentence; empty if there is none."""
    return nearest(name, cluster.every_topic())


def nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=NEARNESS_MIN)
    return f"; was {close[0]!r} meant?" if close else ""


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


def stable_and_ends(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where the oldest open transaction of each partition begins, or the partition ends, and where it ends. They differ
    only for a transaction: a partition may grow between the two questions, so that of the ends is asked first.
    """
    ends = offsets_of(cluster, partitions, LATEST)
    stable = offsets_of(cluster, partitions, LATEST, Isolation.READ_COMMITTED)
    return stable, {where: max(end, stable.get(where, end)) for where, end in ends.items()}
