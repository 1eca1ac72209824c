"""Creates, grows, deletes and describes topics, for administrators.

Each function makes one attempt, over a `Cluster`, and raises an error if it failed. None must ever be repeated from
here: after a lost answer, only the caller can tell whether the error of a second attempt means that the first one
succeeded.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.errors import UnknownTopic
from semel.client.patience import Moved
from semel.client.places import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    INCREMENTAL_ALTER_CONFIGS,
)

# The protocol's number for a topic, among the kinds of resources that have configurations.
_TOPIC: Final = 2
# The brokers choose the number.
_BROKERS_CHOICE: Final = -1
# What to do with a configuration.
_SET: Final = 0
_DELETE: Final = 1


def create_topic(cluster: Cluster, name: str, partitions: int | None, configs: Mapping[str, str]) -> int:
    """Make a topic that does not exist. The brokers choose the replication, and the number of partitions if it is None.
    Returns how many partitions it has; 0 if the brokers do not say.
    """
    wanted = {
        "name": name,
        "num_partitions": _BROKERS_CHOICE if partitions is None else partitions,
        "replication_factor": _BROKERS_CHOICE,
        "assignments": [],
        "configs": [{"name": config, "value": value} for config, value in configs.items()],
    }
    answer = cluster.ask_controller(CREATE_TOPICS, topics=[wanted], timeout=_timeout_ms(cluster), validate_only=False)
    (created,) = answer.topics
    _check(f"topic {name!r}", created, right=f"Create on topic {name!r}")
    return max(getattr(created, "num_partitions", 0), partitions or 0)


def grow_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Give a topic this many partitions, which must be more than it has."""
    wanted = {"name": name, "count": partitions, "assignments": None}
    answer = cluster.ask_controller(
        CREATE_PARTITIONS, topics=[wanted], timeout=_timeout_ms(cluster), validate_only=False
    )
    (grown,) = answer.results
    _check(f"topic {name!r}", grown, right=f"Alter on topic {name!r}")
    cluster.forget(name)


def delete_topic(cluster: Cluster, name: str) -> None:
    answer = cluster.ask_controller(DELETE_TOPICS, topic_names=[name], timeout=_timeout_ms(cluster))
    (deleted,) = answer.responses
    _check(f"topic {name!r}", deleted, right=f"Delete on topic {name!r}")
    cluster.forget(name)


def configs_of(cluster: Cluster, topic: str, names: Iterable[str] | None) -> list[Any]:
    """These configurations of a topic, or all of them, as the brokers describe them."""
    wanted = {
        "resource_type": _TOPIC,
        "resource_name": topic,
        "configuration_keys": None if names is None else list(names),
    }
    answer = cluster.ask_controller(
        DESCRIBE_CONFIGS, resources=[wanted], include_synonyms=False, include_documentation=False
    )
    (described,) = answer.results
    _check(f"topic {topic!r}", described, right=f"DescribeConfigs on topic {topic!r}")
    return list(described.configs)


def alter_configs(cluster: Cluster, changes: Mapping[str, Mapping[str, str | None]]) -> None:
    """Set configurations of topics; None resets one to the brokers' default. May be repeated."""
    resources = [
        {
            "resource_type": _TOPIC,
            "resource_name": topic,
            "configs": [
                {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
                for name, value in configs.items()
            ],
        }
        for topic, configs in changes.items()
    ]
    answer = cluster.ask_controller(INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
    for altered in answer.responses:
        name = altered.resource_name
        _check(f"topic {name!r}", altered, right=f"AlterConfigs on topic {name!r}")


def producers_of(cluster: Cluster, where: TopicPartition) -> list[Any]:
    """The producers that the leader of a partition remembers."""
    wanted = {"name": where.topic, "partition_indexes": [where.partition]}
    answer = cluster.ask(cluster.leader_of(where), DESCRIBE_PRODUCERS, topics=[wanted])
    ((described,),) = (topic.partitions for topic in answer.topics)
    cluster.check(where, described.error_code, "Read")
    return list(described.active_producers)


def sizes_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """How many bytes each partition takes on the disks of its leader."""
    sizes: dict[TopicPartition, int] = {}
    for leader, led in cluster.by_leader(list(partitions)).items():
        topics: dict[str, list[int]] = {}
        for where in led:
            topics.setdefault(where.topic, []).append(where.partition)
        wanted = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
        answer = cluster.ask(leader, DESCRIBE_LOG_DIRS, topics=wanted)
        _check("the size of topics", answer, right="Describe on the cluster")
        for folder in answer.results:
            for topic in folder.topics:
                for one in topic.partitions:
                    where = TopicPartition(topic.name, one.partition_index)
                    sizes[where] = sizes.get(where, 0) + (0 if one.is_future_key else one.partition_size)
    return sizes


def _timeout_ms(cluster: Cluster) -> int:
    """How long the brokers may take until all of them know the change."""
    return cluster.settings.request_timeout_ms


def _check(what: str, answer: Any, *, right: str) -> None:
    """Raise the error that an answer about a topic reports, if it reports one."""
    code = answer.error_code
    if code == ErrorCode.NONE:
        return
    if code in codes.UNKNOWN:
        raise UnknownTopic(f"there is no {what}")
    if code in codes.MOVED:
        raise Moved(f"{what} cannot be asked about now ({codes.name_of(code)})")
    raise codes.refusal(what, code, getattr(answer, "error_message", None), right=right)
