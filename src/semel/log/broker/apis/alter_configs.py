"""AlterConfigs (33), versions 0 to 2: replaces all configurations of a topic or group.

This file also has what all changes of configurations share: topics have configurations, and so do groups, even those
that do not exist yet; a request may name each resource once, and all changes of a resource are made or none.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted
from semel.log.broker.apis.configurations import BROKER, GROUP, TOPIC, check_broker, check_count, check_group
from semel.log.broker.apis.lookup import repeated
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.configs import DEFINITIONS, Definition
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps, finish
from semel.wire.versions import ALTER_CONFIGS

API: Final = Api(
    ALTER_CONFIGS,
    (0, 2),
    rights=(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    standby=Here.HANGS_UP,
    forwards=True,
)

# The operation of IncrementalAlterConfigs that lets the default hold again.
DELETE: Final = 1

# Computes all configurations that a resource is to have, from its present ones, their definitions, and the request.
Wish = Callable[[Mapping[str, str], Mapping[str, Definition], Any], Mapping[str, str | None]]


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    return alter(broker, exchange, request, _replaced)


def _replaced(configs: Mapping[str, str], definitions: Mapping[str, Definition], item: Any) -> Mapping[str, str | None]:
    twice = finish(repeated(config.name for config in item.configs))
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{' and '.join(sorted(twice))} set more than once in one request")
    return {config.name: config.value for config in item.configs}


def alter(broker: Serving, exchange: Exchange, request: Any, wish: Wish) -> Steps[Fields]:
    """Change every resource of a request as `wish` says, or only check whether that is allowed."""
    twice = yield from repeated((item.resource_type, item.resource_name) for item in request.resources)
    responses = []
    for resource, item in {(item.resource_type, item.resource_name): item for item in request.resources}.items():
        outcome = attempted(_alter, broker, exchange, item, resource in twice, wish, request.validate_only)
        responses.append({"resource_type": resource[0], "resource_name": resource[1], **outcome})
        yield APPEND_PIECES
    return {"responses": responses}


def _alter(broker: Serving, exchange: Exchange, item: Any, twice: bool, wish: Wish, validate_only: bool) -> Fields:
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
    check_count(item.configs)
    if item.resource_type == BROKER:
        broker.guard.check(exchange, ALTER_CLUSTER_CONFIGS)
        check_broker(broker, item.resource_name)
        # None is set at run time, so none can be deleted: as in Apache Kafka, nothing happens.
        if any(getattr(config, "config_operation", None) != DELETE for config in item.configs):
            raise Refused(ErrorCode.INVALID_REQUEST, "the broker's configurations are set when it is started")
        return {}
    if item.resource_type == GROUP:
        broker.guard.check(exchange, ALTER_GROUP_CONFIGS, item.resource_name)
        groups, name = broker.consumer_groups, item.resource_name
        check_group(name)
        configs = wish(broker.log.state.groups.configs_of(name), groups.definitions, item)
        if groups.configure(name, configs, validate_only=validate_only):
            _note(broker, exchange, item, broker.log.state.groups.configs_of(name))
        return {}
    if item.resource_type != TOPIC:
        message = f"resources of type {item.resource_type} have no configurations here"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    broker.guard.check(exchange, ALTER_TOPIC_CONFIGS, item.resource_name)
    topic = broker.log.state.catalog.existing(item.resource_name)
    entry = broker.log.state.catalog.decide_configs(topic.name, wish(topic.configs, DEFINITIONS, item))
    if entry.configs != topic.configs and not validate_only:
        broker.runtime.commit(entry)
        _note(broker, exchange, item, entry.configs)
    return {}


def _note(broker: Serving, exchange: Exchange, item: Any, configs: Mapping[str, str]) -> None:
    """Log that the resource has these configurations now."""
    resource = "GROUP" if item.resource_type == GROUP else "TOPIC"
    broker.guard.note_administration(
        exchange, "configs_changed", item.resource_name, resource=resource, configs=dict(configs)
    )
