"""DeleteAcls (31), versions 1 to 3: removes the access rules that match filters, and lists them.

The broker first removes those matching rules that allow: otherwise a client could do for a moment
what a rule denied before. The answer is sent when the removal is durable.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from semel.log.broker.apis.access_rules import changed, filter_of, refusal
from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.entries import AccessRule
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import DELETE_ACLS

API: Final = Api(DELETE_ACLS, (1, 3), rights=(ALTER_CLUSTER,), standby=Here.HANGS_UP, forwards=True)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.delete_acls.DeleteAclsRequest
) -> Steps[kafka.delete_acls.DeleteAclsResponse]:
    api = kafka.delete_acls
    refused = refusal(broker, exchange, ALTER_CLUSTER)
    results = []
    for item in request.filters:
        outcome = refused or (yield from attempted_in_steps(_delete(broker, exchange, item)))
        results.append(
            api.DeleteAclsFilterResult(
                error_code=error_of(outcome),
                error_message=message_of(outcome),
                matching_acls=() if isinstance(outcome, Refused) else outcome,
            )
        )
        yield 1
    return api.DeleteAclsResponse(filter_results=results)


def _delete(
    broker: Serving, exchange: Exchange, item: kafka.delete_acls.DeleteAclsFilter
) -> Steps[list[kafka.delete_acls.DeleteAclsMatchingAcl]]:
    access = broker.log.state.access
    rules = yield from access.matching(filter_of(item))
    allowing_first = sorted(rules, key=attrgetter("permission"), reverse=True)
    outcomes = yield from changed(broker, exchange, allowing_first, access.decide_remove)
    return (yield from each(rules, lambda rule: _removed(rule, outcomes[rule])))


def _removed(rule: AccessRule, refusal: Refused | None) -> kafka.delete_acls.DeleteAclsMatchingAcl:
    return kafka.delete_acls.DeleteAclsMatchingAcl(
        error_code=error_of(refusal),
        error_message=message_of(refusal),
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
