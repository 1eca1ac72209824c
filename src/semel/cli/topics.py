"""`semel topics`: what topics there are, and making and removing them."""

import argparse
import base64
import sys
from typing import Any, Final

from semel.cli.client import EARLIEST, LATEST, Client, Refused, TopicMetadata, add_bootstrap
from semel.cli.errors import Failure
from semel.cli.showing import time_shown
from semel.cli.subcommands import add_subcommand
from semel.wire.versions import CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS

EXAMPLE: Final = """  semel topics create payments --partitions 3 --config retention.ms=86400000
  semel topics describe payments"""

_TIMEOUT_MS: Final = 30_000
_TOPIC_RESOURCE: Final = 2
# Where a configuration's value comes from: set on the topic itself.
_SET_ON_TOPIC: Final = 1


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        if name != "list":
            own.add_argument("name", metavar="NAME", help="the topic's name")
        add_bootstrap(own)
        return own

    action("list", "show every topic, with how many partitions it has and how many offsets are in them")
    create = action("create", "make a topic")
    create.add_argument("--partitions", type=int, default=-1, metavar="N", help="how many (the broker's default)")
    create.add_argument(
        "--config", action="extend", nargs="+", default=[], metavar="K=V", help="settings, such as retention.ms=60000"
    )
    action("describe", "show a topic's partitions, settings and producers")
    delete = action("delete", "delete a topic and all its records")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with Client(options.bootstrap) as client:
        if options.action == "list":
            _list(client)
        elif options.action == "create":
            _create(client, options.name, options.partitions, options.config)
        elif options.action == "describe":
            _describe(client, options.name)
        else:
            _delete(client, options.name, options.yes)
    return 0


def _list(client: Client) -> None:
    # Not records: the end of a transaction takes an offset, and compaction leaves holes.
    rows = [("TOPIC", "PARTITIONS", "OFFSETS")]
    for topic in client.topics():
        if not topic.is_internal:
            first, behind = _ends(client, topic)
            rows.append((topic.name, str(len(topic.leaders)), str(sum(behind.values()) - sum(first.values()))))
    width = max(len(name) for name, _, _ in rows)
    for name, partitions, offsets in rows:
        print(f"{name:{width}}  {partitions:>10}  {offsets:>10}")


def _ends(client: Client, topic: TopicMetadata) -> tuple[dict[int, int], dict[int, int]]:
    return client.offsets(topic, topic.leaders, EARLIEST), client.offsets(topic, topic.leaders, LATEST)


def _create(client: Client, name: str, partitions: int, settings: list[str]) -> None:
    configs = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise Failure(f"{setting!r} is no setting: NAME=VALUE is, such as retention.ms=60000")
        configs.append({"name": key, "value": value})
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": configs,
    }
    answer = client.ask(CREATE_TOPICS, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False)
    (created,) = answer.topics
    if created.error_code:
        raise Refused(f"topic {name!r}", created.error_code, created.error_message)
    count = getattr(created, "num_partitions", partitions)
    print(f"created {name}" + (f" with {_plural(count, 'partition')}" if count > 0 else ""))


def _describe(client: Client, name: str) -> None:
    topic = client.topic(name)
    first, behind = _ends(client, topic)
    # 22 characters, as Kafka's own tools show an id.
    print(f"topic {name}  id {base64.urlsafe_b64encode(topic.topic_id).decode().rstrip('=')}")
    for setting in _settings(client, name):
        print(f"  {setting}")
    for partition in topic.leaders:
        print(f"partition {partition}  offsets {first[partition]} to {behind[partition]}")
        for producer in _producers(client, topic, partition):
            print(
                f"  producer {producer.producer_id}  epoch {producer.producer_epoch}  "
                f"last sequence {producer.last_sequence}  last heard {time_shown(producer.last_timestamp)}"
            )


def _settings(client: Client, name: str) -> list[str]:
    """What was set on the topic itself."""
    wanted = {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
    answer = client.ask(DESCRIBE_CONFIGS, resources=[wanted], include_synonyms=False, include_documentation=False)
    (described,) = answer.results
    if described.error_code:
        raise Refused(f"settings of topic {name!r}", described.error_code, described.error_message)
    return [f"{config.name}={config.value}" for config in described.configs if config.config_source == _SET_ON_TOPIC]


def _producers(client: Client, topic: TopicMetadata, partition: int) -> list[Any]:
    wanted = {"name": topic.name, "partition_indexes": [partition]}
    answer = client.leader(topic, partition).ask(DESCRIBE_PRODUCERS, topics=[wanted])
    ((described,),) = (found.partitions for found in answer.topics)
    if described.error_code:
        raise Refused(f"producers of topic {topic.name!r}", described.error_code, described.error_message)
    return list(described.active_producers)


def _delete(client: Client, name: str, sure: bool) -> None:
    topic = client.topic(name)
    if not sure:
        if not sys.stdin.isatty():
            raise Failure("deleting cannot be undone; say --yes")
        first, behind = _ends(client, topic)
        count = sum(behind.values()) - sum(first.values())
        print(f"Delete {name} with its {_plural(count, 'offset')}? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("kept")
            return
    answer = client.ask(DELETE_TOPICS, topic_names=[name], timeout=_TIMEOUT_MS)
    (deleted,) = answer.responses
    if deleted.error_code:
        raise Refused(f"topic {name!r}", deleted.error_code, getattr(deleted, "error_message", None))
    print(f"deleted {name}")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
