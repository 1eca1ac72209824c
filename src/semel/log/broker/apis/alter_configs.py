"""AlterConfigs (33), versions 0 to 2: replaces all configurations of a topic or group.

This file also has what all changes of configurations share: topics have configurations, and so do groups, even those
that do not exist yet; a request may name each resource once, and all changes of a resource are made or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar, Union

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.apis.configurations import BROKER, GROUP, TOPIC, check_broker, check_count, check_group
from semel.log.broker.apis.lookup import repeated
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.configs import DEFINITIONS, Definition
from semel.wire import kafka
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

_Resource = Union["kafka.alter_configs.AlterConfigsResource", "kafka.incremental_alter_configs.AlterConfigsResource"]
R = TypeVar("R", bound=_Resource)

A = TypeVar("A", covariant=True)


class _Answer(Protocol[A]):
    """Makes the answer about one resource."""

    def __call__(self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str) -> A: ...


# Computes all configurations that a resource is to have, from its present ones, their definitions, and the request.
Wish = Callable[[Mapping[str, str], Mapping[str, Definition], R], Mapping[str, str | None]]


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_configs.AlterConfigsRequest
) -> Steps[kafka.alter_configs.AlterConfigsResponse]:
    api = kafka.alter_configs
    answer = api.AlterConfigsResourceResponse
    return api.AlterConfigsResponse(
        responses=(
            yield from alter(
                broker, exchange, request.resources, _replaced, answer, validate_only=request.validate_only
            )
        )
    )


def _replaced(
    configs: Mapping[str, str], definitions: Mapping[str, Definition], item: kafka.alter_configs.AlterConfigsResource
) -> Mapping[str, str | None]:
    twice = finish(repeated(config.name for config in item.configs))
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{' and '.join(sorted(twice))} set more than once in one request")
    return {config.name: config.value for config in item.configs}


def alter(
    broker: Serving,
    exchange: Exchange,
    resources: Sequence[R],
    wish: Wish[R],
    answer: _Answer[A],
    *,
    validate_only: bool,
) -> Steps[list[A]]:
    """Change every resource of a request as `wish` says, or only check whether that is allowed."""
    twice = yield from repeated((item.resource_type, item.resource_name) for item in resources)
    answers = []
    for resource, item in {(item.resource_type, item.resource_name): item for item in resources}.items():
        refusal = attempted(_alter, broker, exchange, item, resource in twice, wish, validate_only)
        answers.append(
            answer(
                error_code=error_of(refusal),
                error_message=message_of(refusal),
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
        )
        yield APPEND_PIECES
    return answers


def _alter(broker: Serving, exchange: Exchange, item: R, twice: bool, wish: Wish[R], validate_only: bool) -> None:
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
    check_count(item.configs)
    if item.resource_type == BROKER:
        broker.guard.check(exchange, ALTER_CLUSTER_CONFIGS)
        check_broker(broker, item.resource_name)
        # None is set at run time, so none can be deleted: as in Apache Kafka, nothing happens.
        if not _only_deletes(item):
            raise Refused(ErrorCode.INVALID_REQUEST, "the broker's configurations are set when it is started")
        return
    if item.resource_type == GROUP:
        broker.guard.check(exchange, ALTER_GROUP_CONFIGS, item.resource_name)
        groups, name = broker.consumer_groups, item.resource_name
        check_group(name)
        configs = wish(broker.log.state.groups.configs_of(name), groups.definitions, item)
        if groups.configure(name, configs, validate_only=validate_only):
            _note(broker, exchange, item, broker.log.state.groups.configs_of(name))
        return
    if item.resource_type != TOPIC:
        message = f"resources of type {item.resource_type} have no configurations here"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    broker.guard.check(exchange, ALTER_TOPIC_CONFIGS, item.resource_name)
    topic = broker.log.state.catalog.existing(item.resource_name)
    entry = broker.log.state.catalog.decide_configs(topic.name, wish(topic.configs, DEFINITIONS, item))
    if entry.configs != topic.configs and not validate_only:
        broker.runtime.commit(entry)
        _note(broker, exchange, item, entry.configs)


def _only_deletes(item: _Resource) -> bool:
    """Whether it sets nothing."""
    if isinstance(item, kafka.incremental_alter_configs.AlterConfigsResource):
        return all(config.config_operation == DELETE for config in item.configs)
    return not item.configs


def _note(broker: Serving, exchange: Exchange, item: _Resource, configs: Mapping[str, str]) -> None:
    """Log that the resource has these configurations now."""
    resource = "GROUP" if item.resource_type == GROUP else "TOPIC"
    broker.guard.note_administration(
        exchange, "configs_changed", item.resource_name, resource=resource, configs=dict(configs)
    )
