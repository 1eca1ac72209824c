"""DeleteAcls (31), versions 1 to 3: removes the access rules that match filters, and lists them.

The broker first removes those matching rules that allow: otherwise a client could do for a moment
what a rule denied before. The answer is sent when the removal is durable.
"""

from operator import attrgetter
from typing import Any, Final

from semel.log.broker.apis.access_rules import changed, entry_fields, filter_of, refusal, resource_fields
from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire.steps import Steps, each
from semel.wire.versions import DELETE_ACLS

API: Final = Api(DELETE_ACLS, (1, 3), rights=(ALTER_CLUSTER,), standby=Here.HANGS_UP, forwards=True)


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    error_fields = refusal(broker, exchange, ALTER_CLUSTER)
    results = []
    for item in request.filters:
        outcome = error_fields or (yield from attempted_in_steps(_delete(broker, exchange, item)))
        results.append({"matching_acls": [], **outcome})
        yield 1
    return {"filter_results": results}


def _delete(broker: Serving, exchange: Exchange, item: Any) -> Steps[Fields]:
    access = broker.log.state.access
    rules = yield from access.matching(filter_of(item))
    allowing_first = sorted(rules, key=attrgetter("permission"), reverse=True)
    outcomes = yield from changed(broker, exchange, allowing_first, access.decide_remove)
    removed = each(rules, lambda rule: {**resource_fields(rule), **entry_fields(rule), **outcomes[rule]})
    return {"matching_acls": (yield from removed)}
