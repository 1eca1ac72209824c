"""CreateAcls (30), versions 1 to 3: adds access rules; each is added or refused on its own.

A rule that exists already is not an error. The rules of one request that deny take effect first, so that no client may
do for a moment what another rule of the request denies. The answer is sent when the rules are durable.
"""

from typing import Any, Final

from semel.log.broker.apis.access_rules import changed, refusal
from semel.log.broker.apis.answers import Fields, answered_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.access import checked
from semel.log.core.entries import AccessRule
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import CREATE_ACLS

API: Final = Api(CREATE_ACLS, (1, 3), rights=(ALTER_CLUSTER,), standby=Here.HANGS_UP, forwards=True)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    error_fields = refusal(broker, exchange, ALTER_CLUSTER)
    if error_fields:
        return {"results": [error_fields for _ in request.creations]}
    results: list[Fields] = []
    rules: dict[int, AccessRule] = {}
    for place, creation in enumerate(request.creations):
        fields: Fields = {}
        try:
            rules[place] = checked(_rule_of(creation))
        except Refused as wrong:
            fields = {"error_code": wrong.error, "error_message": wrong.message}
        results.append(fields)
        yield 2
    denying_first = sorted(rules.values(), key=lambda rule: rule.permission)
    outcomes = yield from changed(broker, exchange, denying_first, broker.log.state.access.decide_add)
    for place, rule in rules.items():
        results[place] = outcomes[rule]
    return {"results": results}


def _rule_of(creation: Any) -> AccessRule:
    return AccessRule(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
