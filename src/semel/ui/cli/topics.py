"""`semel topics`: lists, creates and deletes topics."""

import argparse
import base64
from typing import Final, NamedTuple

from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.places import EARLIEST, Topic, TopicPartition
from semel.client.topics import offsets_of, partitions_of, stable_and_ends, topic_of
from semel.ui.cli.cluster import cluster_actions, cluster_at
from semel.ui.cli.display import counted, is_confirmed, print_table, printable, time_shown
from semel.ui.cli.subcommands import positive

EXAMPLE: Final = """  semel topics create payments --partitions 3 --config retention.ms=86400000
  semel topics describe payments"""


def configure(parser: argparse.ArgumentParser) -> None:
    action = cluster_actions(parser, "name", "the topic's name")
    action("list", "show every topic, its partitions, the offsets in them, and how many open transactions hold back")
    create = action("create", "create a topic")
    create.add_argument(
        "--partitions", type=positive, metavar="N", help="the number of partitions (the broker's default)"
    )
    create.add_argument(
        "--config", action="extend", nargs="+", default=[], metavar="K=V", help="settings, such as retention.ms=60000"
    )
    action("describe", "show a topic's partitions, settings and producers")
    delete = action("delete", "delete a topic and all its records")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with cluster_at(options) as cluster:
        if options.action == "list":
            _list(cluster)
        elif options.action == "create":
            _create(cluster, options.name, options.partitions, options.config)
        elif options.action == "describe":
            _describe(cluster, options.name)
        else:
            _delete(cluster, options.name, options.yes)
    return 0


def _list(cluster: Cluster) -> None:
    # The column says offsets, not records: a marker takes an offset too, and compaction leaves gaps.
    rows = [("TOPIC", "PARTITIONS", "OFFSETS", "HELD")]
    for name, topic in sorted(cluster.every_topic().items()):
        edges = _edges(cluster, topic)
        offsets = sum(edges.last.values()) - sum(edges.first.values())
        held = sum(edges.last.values()) - sum(edges.stable.values())
        rows.append((name, str(topic.partitions), str(offsets), str(held)))
    print_table(rows, right=True)


class _Edges(NamedTuple):
    """Where the partitions of a topic begin, where the oldest open transaction of each begins, and where they end."""

    first: dict[TopicPartition, int]
    stable: dict[TopicPartition, int]
    last: dict[TopicPartition, int]


def _edges(cluster: Cluster, topic: Topic) -> _Edges:
    partitions = partitions_of(topic)
    # The beginnings first, because a partition may grow meanwhile: each edge is at or after the one before.
    first = offsets_of(cluster, partitions, EARLIEST)
    return _Edges(first, *stable_and_ends(cluster, partitions))


def _create(cluster: Cluster, name: str, partitions: int | None, settings: list[str]) -> None:
    count = admin.create_topic(cluster, name, partitions, admin.configs_in(settings))
    print(f"created {name}" + (f" with {counted(count, 'partition')}" if count > 0 else ""))


def _describe(cluster: Cluster, name: str) -> None:
    topic = topic_of(cluster, name)
    edges = _edges(cluster, topic)
    # 22 characters, like an id in Kafka's own tools.
    print(f"topic {name}  id {base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip('=')}")
    for config in admin.configs_of(cluster, name, None):
        if config.config_source == admin.SET_ON_TOPIC:
            print(printable(f"  {config.name}={config.value}"))
    for where in partitions_of(topic):
        stable, last = edges.stable[where], edges.last[where]
        held = f", stable to {stable}" if stable < last else ""
        print(f"partition {where.partition}  offsets {edges.first[where]} to {last}{held}")
        for producer in admin.producers_of(cluster, where):
            print(
                f"  producer {producer.producer_id}  epoch {producer.producer_epoch}  "
                f"last sequence {producer.last_sequence}  last heard {time_shown(producer.last_timestamp)}"
            )


def _delete(cluster: Cluster, name: str, sure: bool) -> None:
    topic = topic_of(cluster, name)
    if not sure:
        edges = _edges(cluster, topic)
        count = sum(edges.last.values()) - sum(edges.first.values())
        question = f"Delete {name} with its {counted(count, 'offset')}?"
        if not is_confirmed(question, "deleting cannot be undone; pass --yes"):
            print("kept")
            return
    admin.delete_topic(cluster, name)
    print(f"deleted {name}")
