"""FindCoordinator (10), versions 0 to 6: the coordinator of a group or a transactional id, which is always this broker.

Versions 4 and up name several keys at once. A key that is named twice is answered once.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import INVALID_REQUEST, Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import FIND_COORDINATOR

API: Final = Api(
    FIND_COORDINATOR,
    (0, 6),
    rights=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, CLUSTER_ACTION),
    standby=Here.SERVES,
    asks_who=True,
)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_SHARE_FROM: Final = 6

_KEYS_FROM: Final = 4
# The number, the host and the port of a broker that there is not.
_NOBODY: Final = (-1, "", -1)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.find_coordinator.FindCoordinatorRequest
) -> Steps[kafka.find_coordinator.FindCoordinatorResponse]:
    api = kafka.find_coordinator

    def coordinator_of(key: str) -> kafka.find_coordinator.Coordinator:
        found = attempted(_find, broker, exchange, request.key_type, key)
        node_id, host, port = _NOBODY if isinstance(found, Refused) else found
        return api.Coordinator(
            key=key,
            node_id=node_id,
            host=host,
            port=port,
            error_code=error_of(found),
            error_message=message_of(found),
        )

    if exchange.version < _KEYS_FROM:
        only = coordinator_of(request.key)
        return api.FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    keys = dict.fromkeys(request.coordinator_keys)
    return api.FindCoordinatorResponse(coordinators=(yield from each(keys, coordinator_of)))


def _find(broker: Serving, exchange: Exchange, key_type: int, key: str) -> tuple[int, str, int]:
    version = exchange.version
    key_types = (_GROUP, _TRANSACTION) if version < _SHARE_FROM else (_GROUP, _TRANSACTION, _SHARE)
    if key_type not in key_types:
        raise Refused(INVALID_REQUEST, f"keys of type {key_type} have no coordinator in version {version}")
    if key_type == _SHARE:
        broker.guard.check(exchange, CLUSTER_ACTION)
    else:
        broker.guard.check(exchange, DESCRIBE_GROUP if key_type == _GROUP else DESCRIBE_TRANSACTIONAL_ID, key)
    if broker.role.has_lost_lease:
        reason = "the store does not answer, so nobody knows which broker is active: try again"
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    host, port = broker.role.active_at(exchange.listener)
    return broker.role.node_id, host, port
