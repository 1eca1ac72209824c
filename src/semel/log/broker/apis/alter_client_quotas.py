"""AlterClientQuotas (49), versions 0 and 1: sets and removes quotas of users, client ids and addresses.

Each entity is changed by itself, with all of its keys or with none. An entity that a request names twice is refused,
because the order would decide; Apache Kafka refuses the second one, and has carried out the first. Both answer once for
each entity, but a client without the right gets one error for each entry.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER_CONFIGS
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import ALTER_CLIENT_QUOTAS

API: Final = Api(ALTER_CLIENT_QUOTAS, (0, 1), rights=(ALTER_CLUSTER_CONFIGS,), standby=Here.HANGS_UP, forwards=True)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_client_quotas.AlterClientQuotasRequest
) -> Steps[kafka.alter_client_quotas.AlterClientQuotasResponse]:
    api = kafka.alter_client_quotas
    counts: Counter[frozenset[tuple[str, str | None]]] = Counter()
    last = {}
    for entry in request.entries:
        parts = frozenset(_parts_of(entry))
        counts[parts] += 1
        last[parts] = entry
        yield 1
    entries = []
    for entry in last.values() if broker.guard.sees(exchange, ALTER_CLUSTER_CONFIGS) else request.entries:
        entity = [api.ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in _parts_of(entry)]
        is_named_twice = counts[frozenset(_parts_of(entry))] > 1
        refusal = attempted(_change, broker, exchange, entry, is_named_twice, request.validate_only)
        entries.append(
            api.ResponseEntryData(error_code=error_of(refusal), error_message=message_of(refusal), entity=entity)
        )
        yield APPEND_PIECES
    return api.AlterClientQuotasResponse(entries=entries)


def _change(
    broker: Serving,
    exchange: Exchange,
    entry: kafka.alter_client_quotas.RequestEntryData,
    is_named_twice: bool,
    validate_only: bool,
) -> None:
    broker.guard.check(exchange, ALTER_CLUSTER_CONFIGS)
    if is_named_twice:
        raise Refused(INVALID_REQUEST, "Ignoring duplicate entity: name it once, with all changes")
    changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
    change = broker.log.state.quotas.decide(_parts_of(entry), changes)
    if change is not None and not validate_only:
        broker.runtime.commit(change)
        broker.guard.note_change(exchange, change)


def _parts_of(entry: kafka.alter_client_quotas.RequestEntryData) -> list[tuple[str, str | None]]:
    return [(part.entity_type, part.entity_name) for part in entry.entity]
