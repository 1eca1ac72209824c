"""IncrementalAlterConfigs (44), versions 0 and 1: changes some configurations of a topic or group and keeps the others.

A value is set, deleted (the default holds again), appended to a list, or subtracted from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from semel.log.broker.apis.alter_configs import DELETE, alter
from semel.log.broker.apis.answers import answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.configs import Alteration, Definition, altered
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import INCREMENTAL_ALTER_CONFIGS

API: Final = Api(
    INCREMENTAL_ALTER_CONFIGS,
    (0, 1),
    rights=(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    standby=Here.HANGS_UP,
    forwards=True,
)

_OPERATIONS: Final[Mapping[int, Literal["set", "delete", "append", "subtract"]]] = {
    0: "set",
    DELETE: "delete",
    2: "append",
    3: "subtract",
}


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.incremental_alter_configs.IncrementalAlterConfigsRequest
) -> Steps[kafka.incremental_alter_configs.IncrementalAlterConfigsResponse]:
    api = kafka.incremental_alter_configs
    answer = api.AlterConfigsResourceResponse
    return api.IncrementalAlterConfigsResponse(
        responses=(
            yield from alter(broker, exchange, request.resources, _changed, answer, validate_only=request.validate_only)
        )
    )


def _changed(
    configs: Mapping[str, str],
    definitions: Mapping[str, Definition],
    item: kafka.incremental_alter_configs.AlterConfigsResource,
) -> Mapping[str, str | None]:
    return altered(configs, [_alteration(config) for config in item.configs], definitions)


def _alteration(config: kafka.incremental_alter_configs.AlterableConfig) -> Alteration:
    operation = _OPERATIONS.get(config.config_operation)
    if operation is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"operation {config.config_operation} on {config.name} is unknown")
    return Alteration(config.name, operation, config.value)
