"""CreateAcls (30), versions 1 to 3: adds access rules; each is added or refused on its own.

A rule that exists already is not an error. The rules of one request that deny take effect first, so that no client may
do for a moment what another rule of the request denies. The answer is sent when the rules are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.log.broker.apis.access_rules import changed, refusal
from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.access import checked
from semel.log.core.entries import AccessRule
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import CREATE_ACLS

API: Final = Api(CREATE_ACLS, (1, 3), rights=(ALTER_CLUSTER,), standby=Here.HANGS_UP, forwards=True)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.create_acls.CreateAclsRequest
) -> Steps[kafka.create_acls.CreateAclsResponse]:
    outcomes: list[Refused | AccessRule] = []
    refusals: Mapping[AccessRule, Refused | None] = {}
    refused = refusal(broker, exchange, ALTER_CLUSTER)
    if refused is not None:
        outcomes = [refused] * len(request.creations)
    else:
        for creation in request.creations:
            outcomes.append(attempted(checked, _rule_of(creation)))
            yield 2
        rules = [one for one in outcomes if not isinstance(one, Refused)]
        denying_first = sorted(rules, key=lambda rule: rule.permission)
        refusals = yield from changed(broker, exchange, denying_first, broker.log.state.access.decide_add)
    results = each(outcomes, lambda one: _result(one if isinstance(one, Refused) else refusals[one]))
    return kafka.create_acls.CreateAclsResponse(results=(yield from results))


def _result(refusal: Refused | None) -> kafka.create_acls.AclCreationResult:
    return kafka.create_acls.AclCreationResult(error_code=error_of(refusal), error_message=message_of(refusal))


def _rule_of(creation: kafka.create_acls.AclCreation) -> AccessRule:
    return AccessRule(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
