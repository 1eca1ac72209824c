"""FindCoordinator (10), versions 0 to 6: the coordinator of a group or a transactional id, which is always this broker.

Versions 4 and up name several keys at once. A key that is named twice is answered once.
"""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
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

_NOBODY: Final = {"node_id": -1, "host": "", "port": -1}


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    key_type = getattr(request, "key_type", _GROUP)

    def coordinator_of(key: str) -> Fields:
        return {**_NOBODY, **attempted(_find, broker, exchange, key_type, key)}

    if hasattr(request, "key"):
        return coordinator_of(request.key)
    keys = dict.fromkeys(request.coordinator_keys)
    return {"coordinators": (yield from each(keys, lambda key: {"key": key, **coordinator_of(key)}))}


def _find(broker: Serving, exchange: Exchange, key_type: int, key: str) -> Fields:
    version = exchange.version
    key_types = (_GROUP, _TRANSACTION) if version < _SHARE_FROM else (_GROUP, _TRANSACTION, _SHARE)
    if key_type not in key_types:
        raise Refused(INVALID_REQUEST, f"keys of type {key_type} have no coordinator in version {version}")
    if key_type == _SHARE:
        broker.guard.check(exchange, CLUSTER_ACTION)
    else:
        broker.guard.check(exchange, DESCRIBE_GROUP if key_type == _GROUP else DESCRIBE_TRANSACTIONAL_ID, key)
    host, port = broker.role.active_at(exchange.listener)
    return {"node_id": broker.role.node_id, "host": host, "port": port}
