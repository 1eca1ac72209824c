"""ListConfigResources (74), versions 0 and 1: the names of everything that has configurations, type by type.

Version 0 asks for subscriptions to the metrics of clients, and there are none. A group is named if configurations are
set on it. If a request has a type that its version does not know, nothing is listed.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.apis.configurations import BROKER, GROUP, TOPIC
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER_CONFIGS
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.steps import Steps
from semel.wire.versions import LIST_CONFIG_RESOURCES

API: Final = Api(LIST_CONFIG_RESOURCES, (0, 1), rights=(DESCRIBE_CLUSTER_CONFIGS,), standby=Here.READS, forwards=True)

# Kafka's numbers for the types that nobody describes here, and all types in the order of its answers.
_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_TYPES: Final = (GROUP, _CLIENT_METRICS, _BROKER_LOGGER, BROKER, TOPIC)
_TYPES_FROM: Final = 1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.list_config_resources.ListConfigResourcesRequest
) -> Steps[kafka.list_config_resources.ListConfigResourcesResponse]:
    api = kafka.list_config_resources
    refusal = broker.guard.error(exchange, DESCRIBE_CLUSTER_CONFIGS)
    if refusal:
        return api.ListConfigResourcesResponse(error_code=refusal, config_resources=())
    known = _TYPES if exchange.version >= _TYPES_FROM else (_CLIENT_METRICS,)
    wanted = set(request.resource_types) or set(known)
    if not wanted.issubset(known):
        return api.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=())
    resources = []
    for resource_type in filter(wanted.__contains__, known):
        for name in _names(broker, resource_type):
            resources.append(api.ConfigResource(resource_name=name, resource_type=resource_type))
            yield 1
    return api.ListConfigResourcesResponse(config_resources=resources)


def _names(broker: Serving, resource_type: int) -> list[str]:
    if resource_type == TOPIC:
        return [topic.name for topic in broker.log.state.catalog]
    if resource_type == GROUP:
        return broker.log.state.groups.configured
    if resource_type == _CLIENT_METRICS:
        return []
    return [str(node_id) for node_id in (broker.role.node_id, *broker.role.standby_ids)]
