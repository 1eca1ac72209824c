"""DescribeConfigs (32), versions 1 to 4: the configurations of a topic, a group or this broker, defaults included.

Synonyms and documentation are sent when the request asks for them. No keys, like an empty list of keys, means all of
them; an unknown key is left out.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis import configurations
from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.topics import check_name
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import DESCRIBE_CONFIGS

API: Final = Api(
    DESCRIBE_CONFIGS,
    (1, 4),
    rights=(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS),
    standby=Here.READS,
    forwards=True,
)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_configs.DescribeConfigsRequest
) -> Steps[kafka.describe_configs.DescribeConfigsResponse]:
    api = kafka.describe_configs
    # Each is answered once: otherwise a small request could have an answer of any size.
    resources = {(item.resource_type, item.resource_name): item for item in request.resources}
    results = []
    for (resource_type, name), item in resources.items():
        configs = attempted(_describe, broker, exchange, item, request.include_synonyms, request.include_documentation)
        results.append(
            api.DescribeConfigsResult(
                error_code=error_of(configs),
                error_message=message_of(configs),
                resource_type=resource_type,
                resource_name=name,
                configs=() if isinstance(configs, Refused) else configs,
            )
        )
        yield APPEND_PIECES
    return api.DescribeConfigsResponse(results=results)


def _describe(
    broker: Serving,
    exchange: Exchange,
    item: kafka.describe_configs.DescribeConfigsResource,
    with_synonyms: bool,
    with_documentation: bool,
) -> list[kafka.describe_configs.DescribeConfigsResourceResult]:
    keys = set(item.configuration_keys or ())
    return [
        configuration.explained(with_synonyms=with_synonyms, with_documentation=with_documentation)
        for configuration in _configurations(broker, exchange, item)
        if not keys or configuration.name in keys
    ]


def _configurations(
    broker: Serving, exchange: Exchange, item: kafka.describe_configs.DescribeConfigsResource
) -> list[configurations.Configuration]:
    if item.resource_type == configurations.TOPIC:
        broker.guard.check(exchange, DESCRIBE_TOPIC_CONFIGS, item.resource_name)
        check_name(item.resource_name)
        return configurations.of_topic(broker.log.state.catalog.existing(item.resource_name).configs)
    if item.resource_type == configurations.BROKER:
        broker.guard.check(exchange, DESCRIBE_CLUSTER_CONFIGS)
        configurations.check_broker(broker, item.resource_name)
        return configurations.of_broker(broker)
    if item.resource_type == configurations.GROUP:
        broker.guard.check(exchange, DESCRIBE_GROUP_CONFIGS, item.resource_name)
        configurations.check_group(item.resource_name)
        configs = broker.log.state.groups.configs_of(item.resource_name)
        return configurations.of_group(configs, broker.consumer_groups.definitions)
    raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {item.resource_type} have no configurations here")
