"""Topics: a page of their list, and one topic with its partitions and settings.

Sizes that the user may not see are left out. A topic whose partitions have no leader now is shown without offsets, so
that a missing broker does not hide the topics of the others.
"""

import base64
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker, UnknownTopic
from semel.client.patience import Moved
from semel.client.places import EARLIEST, LATEST, Isolation, Topic, TopicPartition
from semel.client.topics import offsets_of, partitions_of, topic_of
from semel.ui.console.query import Query

# How many rows one page of a list has.
ROWS_MAX: Final = 100
# The protocol's number for a configuration that is set on the topic itself.
_SET_ON_TOPIC: Final = 1

Answer = dict[str, Any]


def every_topic(cluster: Cluster, query: Query) -> Answer:
    """One page of the topics whose names contain a text."""
    wanted = query.text("find", "").strip()
    every = cluster.every_topic(with_internal=query.has("internal"))
    names = sorted(name for name in every if wanted.lower() in name.lower())
    shown, about = query.page_of(names, ROWS_MAX)
    return {**about, "topics": _rows(cluster, [every[name] for name in shown])}


def _rows(cluster: Cluster, topics: list[Topic]) -> list[Answer]:
    partitions = {topic.name: partitions_of(topic) for topic in topics}
    usable = led(cluster, [where for wheres in partitions.values() for where in wheres])
    first, end = offsets_of(cluster, usable, EARLIEST), offsets_of(cluster, usable, LATEST)
    sizes = _sizes(cluster, usable)
    rows = []
    for topic in topics:
        own = [where for where in partitions[topic.name] if where in end]
        rows.append(
            {
                "name": topic.name,
                "partitions": topic.partitions,
                "led": len(own),
                "offsets": sum(end[where] - first[where] for where in own),
                "bytes": None if sizes is None else sum(sizes.get(where, 0) for where in own),
            }
        )
    return rows


def one_topic(cluster: Cluster, query: Query) -> Answer:
    """A topic, with a page of its partitions: the first, the last stable and the end offset of each."""
    name = query.text("topic")
    topic = topic_of(cluster, name)
    partitions, about = query.page_of(partitions_of(topic), ROWS_MAX)
    usable = led(cluster, partitions)
    first, end = offsets_of(cluster, usable, EARLIEST), offsets_of(cluster, usable, LATEST)
    stable = offsets_of(cluster, usable, LATEST, Isolation.READ_COMMITTED)
    sizes = _sizes(cluster, usable) or {}
    return {
        "name": name,
        # 22 characters, like an id in Kafka's own tools.
        "id": base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip("="),
        **about,
        "partitions": [
            {
                "partition": where.partition,
                "leader": usable.get(where),
                "begin": first.get(where),
                "stable": stable.get(where),
                "end": end.get(where),
                "bytes": sizes.get(where),
            }
            for where in partitions
        ],
        "settings": _settings(cluster, name),
    }


def led(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Those of these partitions that have a leader now, with its address; only a leader answers questions about a
    partition.
    """
    leaders: dict[TopicPartition, str] = {}
    for where in partitions:
        with contextlib.suppress(Moved, UnknownTopic):
            leaders[where] = "{}:{}".format(*cluster.leader_of(where))
    return leaders


def _sizes(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int] | None:
    try:
        return admin.sizes_of(cluster, partitions)
    except (AuthenticationFailed, RefusedByBroker):
        return None


def _settings(cluster: Cluster, name: str) -> list[Answer] | None:
    """The configurations that are set on the topic itself, or None if the user may not see them."""
    try:
        configs = admin.configs_of(cluster, name, None)
    except (AuthenticationFailed, RefusedByBroker):
        return None
    return [{"name": one.name, "value": one.value} for one in configs if one.config_source == _SET_ON_TOPIC]
