"""Creates, grows, deletes and describes topics, for administrators.

Each function makes one attempt, over a `Cluster`, and raises an error if it failed. None must ever be repeated from
here: after a lost answer, only the caller can tell whether the error of a second attempt means that the first one
succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.errors import SettingsRefused, UnknownTopic
from semel.client.patience import Moved
from semel.client.places import TopicPartition
from semel.wire import kafka
from semel.wire.errors import ErrorCode

# The protocol's number for a topic, among the kinds of resources that have configurations.
_TOPIC: Final = 2
# The protocol's number for the source of a value that is set on the topic itself.
SET_ON_TOPIC: Final = 1
# The brokers choose the number.
_BROKERS_CHOICE: Final = -1
# What to do with a configuration.
_SET: Final = 0
_DELETE: Final = 1


def configs_in(words: Iterable[str]) -> dict[str, str]:
    """The configurations that a person has written as NAME=VALUE. Raises SettingsRefused."""
    configs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SettingsRefused(f"{word!r} is not a setting: write NAME=VALUE, such as retention.ms=60000")
        configs[name] = value
    return configs


def create_topic(
    cluster: Cluster, name: str, partitions: int | None, configs: Mapping[str, str], *, validate_only: bool = False
) -> int:
    """Make a topic that does not exist. The brokers choose the replication, and the number of partitions if it is None.
    Returns how many partitions it has; 0 if the brokers do not say. With `validate_only`, only have them say whether
    they would.
    """
    api = kafka.create_topics
    wanted = api.CreatableTopic(
        name=name,
        num_partitions=_BROKERS_CHOICE if partitions is None else partitions,
        replication_factor=_BROKERS_CHOICE,
        assignments=(),
        configs=[api.CreatableTopicConfig(name=config, value=value) for config, value in configs.items()],
    )
    answer = cluster.ask_controller(
        api.CreateTopicsRequest(topics=[wanted], timeout_ms=_timeout_ms(cluster), validate_only=validate_only)
    )
    (created,) = answer.topics
    right = f"Create on topic {name!r}"
    _check(f"topic {name!r}", created.error_code, created.error_message, right=right)
    return max(created.num_partitions, partitions or 0)


def grow_topic(cluster: Cluster, name: str, partitions: int, *, validate_only: bool = False) -> None:
    """Give a topic this many partitions, which must be more than it has."""
    api = kafka.create_partitions
    wanted = api.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    answer = cluster.ask_controller(
        api.CreatePartitionsRequest(topics=[wanted], timeout_ms=_timeout_ms(cluster), validate_only=validate_only)
    )
    (grown,) = answer.results
    _check(f"topic {name!r}", grown.error_code, grown.error_message, right=f"Alter on topic {name!r}")
    cluster.forget(name)


def delete_topic(cluster: Cluster, name: str) -> None:
    answer = cluster.ask_controller(
        kafka.delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=_timeout_ms(cluster))
    )
    (deleted,) = answer.responses
    _check(f"topic {name!r}", deleted.error_code, deleted.error_message, right=f"Delete on topic {name!r}")
    cluster.forget(name)


def configs_of(
    cluster: Cluster, topic: str, names: Iterable[str] | None
) -> list[kafka.describe_configs.DescribeConfigsResourceResult]:
    """These configurations of a topic, or all of them, as the brokers describe them."""
    api = kafka.describe_configs
    wanted = api.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=None if names is None else list(names)
    )
    answer = cluster.ask_controller(api.DescribeConfigsRequest(resources=[wanted]))
    (described,) = answer.results
    right = f"DescribeConfigs on topic {topic!r}"
    _check(f"topic {topic!r}", described.error_code, described.error_message, right=right)
    return list(described.configs)


def alter_configs(
    cluster: Cluster, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
) -> None:
    """Set configurations of topics; None resets one to the brokers' default. May be repeated."""
    api = kafka.incremental_alter_configs
    resources = [
        api.AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=topic,
            configs=[
                api.AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
                for name, value in configs.items()
            ],
        )
        for topic, configs in changes.items()
    ]
    answer = cluster.ask_controller(
        api.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    )
    for altered in answer.responses:
        name = altered.resource_name
        right = f"AlterConfigs on topic {name!r}"
        _check(f"topic {name!r}", altered.error_code, altered.error_message, right=right)


def producers_of(cluster: Cluster, where: TopicPartition) -> list[kafka.describe_producers.ProducerState]:
    """The producers that the leader of a partition remembers."""
    api = kafka.describe_producers
    wanted = api.TopicRequest(name=where.topic, partition_indexes=[where.partition])
    answer = cluster.ask(cluster.leader_of(where), api.DescribeProducersRequest(topics=[wanted]))
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
        api = kafka.describe_log_dirs
        wanted = [api.DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        answer = cluster.ask(leader, api.DescribeLogDirsRequest(topics=wanted))
        _check("the size of topics", answer.error_code, None, right="Describe on the cluster")
        for folder in answer.results:
            for topic in folder.topics:
                for one in topic.partitions:
                    where = TopicPartition(topic.name, one.partition_index)
                    sizes[where] = sizes.get(where, 0) + (0 if one.is_future_key else one.partition_size)
    return sizes


def _timeout_ms(cluster: Cluster) -> int:
    """How long the brokers may take until all of them know the change."""
    return cluster.settings.request_timeout_ms


def _check(what: str, code: int, message: str | None, *, right: str) -> None:
    """Raise the error that an answer about a topic reports, if it reports one."""
    if code == ErrorCode.NONE:
        return
    if code in codes.UNKNOWN:
        raise UnknownTopic(f"there is no {what}")
    if code in codes.MOVED:
        raise Moved(f"{what} cannot be asked about now ({codes.name_of(code)})")
    raise codes.refusal(what, code, message, right=right)
