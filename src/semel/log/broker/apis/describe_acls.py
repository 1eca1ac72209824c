"""DescribeAcls (29), versions 1 to 3: the access rules that match a filter, by resource."""

from typing import Any, Final

from semel.log.broker.apis.access_rules import entry_fields, filter_of, refusal, resource_fields
from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_ACLS

API: Final = Api(DESCRIBE_ACLS, (1, 3), rights=(DESCRIBE_CLUSTER,), standby=Here.READS, forwards=True)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    error_fields = refusal(broker, exchange, DESCRIBE_CLUSTER)
    return {"resources": [], **(error_fields or (yield from attempted_in_steps(_describe(broker, request))))}


def _describe(broker: Serving, request: Any) -> Steps[Fields]:
    rules = yield from broker.log.state.access.matching(filter_of(request))
    rules_of: dict[tuple[int, str, int], list[Fields]] = {}
    resources = []
    for rule in rules:
        resource = rule.resource_type, rule.name, rule.pattern
        if resource not in rules_of:
            rules_of[resource] = []
            resources.append({**resource_fields(rule), "acls": rules_of[resource]})
        rules_of[resource].append(entry_fields(rule))
        yield 1
    return {"resources": resources}
