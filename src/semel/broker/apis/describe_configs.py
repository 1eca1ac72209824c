"""DescribeConfigs (32), versions 1 to 4: what is set on a topic, group or this broker, and what holds where nothing is.

Synonyms and documentation come when asked for. No keys, like an empty list of them, means all; a key that nobody knows
is left out.
"""

from typing import Any

from semel.broker.apis import configurations
from semel.broker.apis.answered import Fields, answered_in_steps, attempted
from semel.broker.connection import Exchange
from semel.broker.serving import Serving
from semel.core.refusals import Refused
from semel.core.steps import APPEND_PIECES, Steps
from semel.core.topics import check_name
from semel.wire.errors import ErrorCode


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    with_synonyms = request.include_synonyms
    with_documentation = getattr(request, "include_documentation", False)
    # Once each, or a small request could have an answer of any size.
    resources = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}
    results = []
    for (resource_type, name), asked in resources.items():
        outcome = attempted(_describe, broker, asked, with_synonyms, with_documentation)
        results.append({"resource_type": resource_type, "resource_name": name, "configs": [], **outcome})
        yield APPEND_PIECES
    return {"results": results}


def _describe(broker: Serving, asked: Any, with_synonyms: bool, with_documentation: bool) -> Fields:
    wanted = set(asked.configuration_keys or ())
    return {
        "configs": [
            found.explained(with_synonyms=with_synonyms, with_documentation=with_documentation)
            for found in _configurations(broker, asked)
            if not wanted or found.name in wanted
        ]
    }


def _configurations(broker: Serving, asked: Any) -> list[configurations.Configuration]:
    if asked.resource_type == configurations.TOPIC:
        check_name(asked.resource_name)
        return configurations.of_topic(broker.log.state.catalog.existing(asked.resource_name).configs)
    if asked.resource_type == configurations.BROKER:
        configurations.check_broker(asked.resource_name)
        return configurations.of_broker(broker)
    if asked.resource_type == configurations.GROUP:
        configurations.check_group(asked.resource_name)
        configs = broker.log.state.groups.configs_of(asked.resource_name)
        return configurations.of_group(configs, broker.consumer_groups.definitions)
    raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {asked.resource_type} have no configurations here")
