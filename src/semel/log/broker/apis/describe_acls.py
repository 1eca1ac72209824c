"""DescribeAcls (29), versions 1 to 3: the access rules that match a filter, by resource."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.access_rules import filter_of, refusal
from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_ACLS

API: Final = Api(DESCRIBE_ACLS, (1, 3), rights=(DESCRIBE_CLUSTER,), standby=Here.READS, forwards=True)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_acls.DescribeAclsRequest
) -> Steps[kafka.describe_acls.DescribeAclsResponse]:
    refused = refusal(broker, exchange, DESCRIBE_CLUSTER)
    outcome = refused or (yield from attempted_in_steps(_describe(broker, request)))
    return kafka.describe_acls.DescribeAclsResponse(
        error_code=error_of(outcome),
        error_message=message_of(outcome),
        resources=() if isinstance(outcome, Refused) else outcome,
    )


def _describe(
    broker: Serving, request: kafka.describe_acls.DescribeAclsRequest
) -> Steps[list[kafka.describe_acls.DescribeAclsResource]]:
    rules = yield from broker.log.state.access.matching(filter_of(request))
    api = kafka.describe_acls
    rules_of: dict[tuple[int, str, int], list[kafka.describe_acls.AclDescription]] = {}
    resources = []
    for rule in rules:
        resource = rule.resource_type, rule.name, rule.pattern
        if resource not in rules_of:
            rules_of[resource] = []
            resources.append(
                api.DescribeAclsResource(
                    resource_type=rule.resource_type,
                    resource_name=rule.name,
                    pattern_type=rule.pattern,
                    acls=rules_of[resource],
                )
            )
        rules_of[resource].append(
            api.AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
        yield 1
    return resources
