"""Topics: a page of their list, one topic with its partitions and settings, and the plans of changes of topics.

Sizes that the user may not see are left out. A topic whose partitions have no leader now is shown without offsets, so
that a missing broker does not hide the topics of the others.
"""

import base64
import contextlib
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker, UnknownTopic
from semel.client.patience import Moved
from semel.client.places import EARLIEST, LATEST, Isolation, Topic, TopicPartition
from semel.client.topics import offsets_of, partitions_of, topic_of
from semel.ui.cli.display import counted
from semel.ui.console.commands import command
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import Plan
from semel.ui.console.query import Query

# How many rows one page of a list has.
ROWS_MAX: Final = 100
# More are for the command line.
PARTITIONS_MAX: Final = 10_000

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
    return [{"name": one.name, "value": one.value} for one in configs if one.config_source == admin.SET_ON_TOPIC]


def create(cluster: Cluster, query: Query) -> Plan:
    """Create a topic; the brokers are asked whether they would."""
    name, settings = query.text("topic"), admin.configs_in(query.text("settings", "").split())
    partitions = query.number("partitions", least=1, most=PARTITIONS_MAX) if query.has("partitions") else None
    count = admin.create_topic(cluster, name, partitions, settings, validate_only=True)

    def do() -> str:
        admin.create_topic(cluster, name, partitions, settings)
        return f"Topic {name} is created."

    return Plan(
        do,
        title=f"Create topic {name}?",
        button="Create it",
        columns=("What", "Value"),
        rows=[("partitions", count or partitions or "as many as the brokers choose"), *settings.items()],
        says=("A topic never gets fewer partitions again.",),
        command=command(
            *("topics", "create", *([] if partitions is None else [f"--partitions={partitions}"])),
            *(f"--config={key}={value}" for key, value in settings.items()),
            name=name,
        ),
        then="/topic?" + urlencode({"topic": name}),
    )


def grow(cluster: Cluster, query: Query) -> Plan:
    """Give a topic more partitions."""
    topic = topic_of(cluster, query.text("topic"))
    partitions = query.number("partitions", least=1, most=PARTITIONS_MAX)
    if partitions <= topic.partitions:
        raise PageRefused(400, f"topic {topic.name} has {counted(topic.partitions, 'partition')}: it can only get more")
    admin.grow_topic(cluster, topic.name, partitions, validate_only=True)

    def do() -> str:
        admin.grow_topic(cluster, topic.name, partitions)
        return f"Topic {topic.name} has {counted(partitions, 'partition')}."

    return Plan(
        do,
        title=f"Give topic {topic.name} more partitions?",
        button="Add them",
        warns=(
            "Producers choose the partition of a record by its key and the number of partitions. New records of a key "
            "may get into another partition than earlier ones, and be read before them.",
        ),
        columns=("What", "Now", "Then"),
        rows=[("partitions", topic.partitions, partitions)],
        says=("A topic never gets fewer partitions again.",),
        seen=topic.id.hex,
    )


def configure(cluster: Cluster, query: Query) -> Plan:
    """Set a configuration of a topic, or have the brokers' default count again."""
    topic, setting = topic_of(cluster, query.text("topic")), query.text("setting").strip()
    value = query.text("value") if query.has("value") else None
    wish = {topic.name: {setting: value}}
    admin.alter_configs(cluster, wish, validate_only=True)
    now = {one.name: one for one in admin.configs_of(cluster, topic.name, [setting])}.get(setting)
    is_set = now is not None and now.config_source == admin.SET_ON_TOPIC

    def do() -> str:
        admin.alter_configs(cluster, wish)
        return f"{setting} of topic {topic.name} is {'the default of the brokers' if value is None else value}."

    return Plan(
        do,
        title=f"Change {setting} of topic {topic.name}?",
        button="Change it",
        columns=("Setting", "Now", "Then"),
        rows=[
            (
                setting,
                f"{None if now is None else now.value}{'' if is_set else ' (the default of the brokers)'}",
                "the default of the brokers" if value is None else value,
            )
        ],
        seen=topic.id.hex,
    )


def delete(cluster: Cluster, query: Query) -> Plan:
    """Delete a topic."""
    topic = topic_of(cluster, query.text("topic"))
    (row,) = _rows(cluster, [topic])

    def do() -> str:
        admin.delete_topic(cluster, topic.name)
        return f"Topic {topic.name} is deleted."

    return Plan(
        do,
        title=f"Delete topic {topic.name}?",
        button="Delete it",
        warns=(
            f"It has {counted(topic.partitions, 'partition')} with {counted(row['offsets'], 'offset')}. All its "
            "records are deleted, and what groups have committed there. This cannot be undone.",
        ),
        seen=[topic.id.hex, topic.partitions],
        typed=topic.name,
        command=command("topics", "delete", name=topic.name),
        then="/topics",
    )
