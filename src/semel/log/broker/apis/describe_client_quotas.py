"""DescribeClientQuotas (48), versions 0 and 1: the quotas of all entities that match a filter."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER_CONFIGS
from semel.log.broker.serving import Serving
from semel.log.core.quotas import match_of
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import DESCRIBE_CLIENT_QUOTAS

API: Final = Api(DESCRIBE_CLIENT_QUOTAS, (0, 1), rights=(DESCRIBE_CLUSTER_CONFIGS,), standby=Here.READS, forwards=True)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_client_quotas.DescribeClientQuotasRequest
) -> Steps[kafka.describe_client_quotas.DescribeClientQuotasResponse]:
    entries = yield from attempted_in_steps(_describe(broker, exchange, request))
    return kafka.describe_client_quotas.DescribeClientQuotasResponse(
        error_code=error_of(entries),
        error_message=message_of(entries),
        entries=None if isinstance(entries, Refused) else entries,
    )


def _describe(
    broker: Serving, exchange: Exchange, request: kafka.describe_client_quotas.DescribeClientQuotasRequest
) -> Steps[list[kafka.describe_client_quotas.EntryData]]:
    api = kafka.describe_client_quotas
    broker.guard.check(exchange, DESCRIBE_CLUSTER_CONFIGS)
    components = [(item.entity_type, item.match_type, item.match) for item in request.components]
    match = match_of(components, is_strict=request.strict)
    quotas = broker.log.state.quotas
    entries = []
    for entity in list(quotas):
        if match.matches(entity):
            parts = [api.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            values = [api.ValueData(key=key, value=value) for key, value in quotas.of(entity).items()]
            entries.append(api.EntryData(entity=parts, values=values))
        yield 1
    return entries
