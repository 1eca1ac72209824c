"""The configurations of topics, groups and the broker, in the form of an answer.

A topic has all configurations in `semel.log.core.configs`. The broker has the few that clients and their tools read;
they are set when it is started, so no request can change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final, Literal, NamedTuple

from semel.log.broker.serving import Serving
from semel.log.core.configs import DEFINITIONS, Definition
from semel.log.core.groups.groups import METADATA_CHARACTERS_MAX
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused

# Kafka's numbers for the kinds of resources.
TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32

# There are some thirty. A request has space for a hundred thousand, and those of one resource are looked at at once.
CONFIGS_PER_RESOURCE_MAX: Final = 1_000

# Kafka's numbers for the source of a value.
_TOPIC_CONFIG: Final = 1
_STATIC_BROKER_CONFIG: Final = 4
_DEFAULT_CONFIG: Final = 5
_GROUP_CONFIG: Final = 8

# Kafka's numbers for the type of a value.
_TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}


class Configuration(NamedTuple):
    """One configuration with its present value; `default` is the value while it is not set."""

    name: str
    value: str
    source: int
    kind: Literal["boolean", "string", "int", "long", "double", "list"]
    default: str
    documentation: str

    def created(self) -> kafka.create_topics.CreatableTopicConfigs:
        """As the answer about a new topic shows it."""
        return kafka.create_topics.CreatableTopicConfigs(
            name=self.name,
            value=self.value,
            read_only=self.source == _STATIC_BROKER_CONFIG,
            config_source=self.source,
            is_sensitive=False,
        )

    def explained(
        self, *, with_synonyms: bool, with_documentation: bool
    ) -> kafka.describe_configs.DescribeConfigsResourceResult:
        api = kafka.describe_configs
        synonyms = []
        if with_synonyms:
            synonyms = [api.DescribeConfigsSynonym(name=self.name, value=self.value, source=self.source)]
            if self.source in (_TOPIC_CONFIG, _GROUP_CONFIG):
                synonyms.append(api.DescribeConfigsSynonym(name=self.name, value=self.default, source=_DEFAULT_CONFIG))
        return api.DescribeConfigsResourceResult(
            name=self.name,
            value=self.value,
            read_only=self.source == _STATIC_BROKER_CONFIG,
            config_source=self.source,
            is_sensitive=False,
            synonyms=synonyms,
            config_type=_TYPES[self.kind],
            documentation=self.documentation if with_documentation else None,
        )


def of_topic(configs: Mapping[str, str]) -> list[Configuration]:
    """All configurations of a topic on which `configs` are set."""
    return _all_of(DEFINITIONS, configs, _TOPIC_CONFIG)


def of_group(configs: Mapping[str, str], definitions: Mapping[str, Definition]) -> list[Configuration]:
    """The same for a group."""
    return _all_of(definitions, configs, _GROUP_CONFIG)


def _all_of(definitions: Mapping[str, Definition], configs: Mapping[str, str], source: int) -> list[Configuration]:
    return [
        Configuration(
            definition.name,
            configs.get(definition.name, definition.default),
            source if definition.name in configs else _DEFAULT_CONFIG,
            definition.kind,
            definition.default,
            definition.documentation,
        )
        for definition in definitions.values()
    ]


def of_broker(broker: Serving) -> list[Configuration]:
    limits = broker.limits
    return [
        _fixed(
            "advertised.listeners",
            _listed(broker, advertised=True),
            "string",
            "The addresses that this broker gives to clients.",
        ),
        _fixed(
            "auto.create.topics.enable",
            _word(broker.auto_create_topics),
            "boolean",
            "Whether a Metadata request creates a missing topic.",
        ),
        _fixed("broker.id", str(broker.role.node_id), "int", "The number of this broker; there is one."),
        _fixed("connections.max.idle.ms", str(limits.idle_connection_ms_max), "long", "Idle connections are closed."),
        _fixed("connections.max.reauth.ms", str(limits.login_lifetime_ms), "long", "How long a login lasts."),
        _fixed("default.replication.factor", "1", "int", "There is one broker, and one copy on disk."),
        _fixed("delete.topic.enable", "true", "boolean", "Topics can be deleted."),
        _fixed(
            "group.initial.rebalance.delay.ms",
            str(limits.group_initial_rebalance_delay_ms),
            "int",
            "How long the first member of a group waits for others.",
        ),
        _fixed("group.max.session.timeout.ms", str(limits.group_session_timeout_ms_max), "int", "For classic groups."),
        _fixed("group.max.size", str(limits.group_members_max), "int", "The most members of a group."),
        _fixed("group.min.session.timeout.ms", str(limits.group_session_timeout_ms_min), "int", "For classic groups."),
        _fixed(
            "listener.security.protocol.map",
            ",".join(f"{listener.name}:{listener.protocol}" for listener in broker.listeners),
            "string",
            "The security protocol of each listener.",
        ),
        _fixed("listeners", _listed(broker, advertised=False), "list", "The addresses at which this broker listens."),
        _fixed("log.cleanup.policy", DEFINITIONS["cleanup.policy"].default, "list", "For topics that set none."),
        _fixed("log.dirs", broker.log.files.describe(""), "string", "The data directory."),
        _fixed("log.retention.bytes", DEFINITIONS["retention.bytes"].default, "long", "For topics that set none."),
        _fixed("log.retention.ms", DEFINITIONS["retention.ms"].default, "long", "For topics that set none."),
        _fixed("log.segment.bytes", DEFINITIONS["segment.bytes"].default, "int", "For topics that set none."),
        _fixed("max.connections", str(limits.connections_max), "int", "The most connections at the same time."),
        _fixed("message.max.bytes", DEFINITIONS["max.message.bytes"].default, "int", "For topics that set none."),
        _fixed("min.insync.replicas", "1", "int", "acks=all waits for the one copy, on disk."),
        _fixed("node.id", str(broker.role.node_id), "int", "The number of this broker; there is one."),
        _fixed("num.partitions", str(broker.partitions_default), "int", "The default for new topics."),
        _fixed(
            "offset.metadata.max.bytes",
            str(METADATA_CHARACTERS_MAX),
            "int",
            "The longest metadata of a committed offset.",
        ),
        _fixed(
            "offsets.retention.minutes",
            str(limits.offsets_retention_ms // 60_000),
            "int",
            "How long the broker keeps offsets that no group uses.",
        ),
        _fixed("socket.request.max.bytes", str(limits.frame_bytes_max), "int", "The largest request."),
    ]


def _listed(broker: Serving, *, advertised: bool) -> str:
    """The listeners as Kafka writes them."""
    return ",".join(
        f"{listener.name}://{listener.bootstrap if advertised else listener.address}" for listener in broker.listeners
    )


def check_broker(broker: Serving, name: str) -> None:
    """Refuse a name that is not a broker's; an empty name stands for every broker. All have the same configurations."""
    if name not in ("", *map(str, (broker.role.node_id, *broker.role.standby_ids))):
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is one broker, {broker.role.node_id}, and none of this name")


def check_count(configs: Sized) -> None:
    """Refuse so many configurations of one resource that to look at them would hold up other clients."""
    if len(configs) > CONFIGS_PER_RESOURCE_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{len(configs)} configurations for one resource are too many")


def check_group(name: str) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "a group needs a name")


def _fixed(name: str, value: str, kind: Literal["boolean", "string", "int", "long", "list"], why: str) -> Configuration:
    return Configuration(name, value, _STATIC_BROKER_CONFIG, kind, value, why)


def _word(truth: bool) -> str:
    return "true" if truth else "false"
