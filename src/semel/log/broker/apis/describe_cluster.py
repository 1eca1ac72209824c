"""DescribeCluster (60), versions 0 to 2: the active broker, which is its own controller, and the standbys.

A client that asks for the addresses of controllers is told that this is the wrong endpoint: the controller has no
address of its own that a client could use.
"""

from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import versions
from semel.wire.errors import ErrorCode

API: Final = Api(versions.DESCRIBE_CLUSTER, (0, 2), rights=(DESCRIBE_CLUSTER,), standby=Here.SERVES, asks_who=True)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@answered
def handle(broker: Serving, exchange: Exchange, request: Any) -> Fields:
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    fields: dict[str, object] = {"cluster_id": "", "brokers": []}
    if endpoint_type == _CONTROLLERS:
        return fields | {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "error_message": "this is the endpoint of a broker, not of a controller",
        }
    if endpoint_type != _BROKERS:
        return fields | {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"there are no endpoints of type {endpoint_type}",
        }
    active = {broker.role.node_id: broker.role.active_at(exchange.listener)}
    brokers = {**active, **broker.role.standbys_at(exchange.listener)}
    asks_operations = request.include_cluster_authorized_operations
    return {
        "cluster_id": broker.log.state.cluster_id,
        "controller_id": broker.role.node_id,
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port, "rack": None, "is_fenced": False}
            for node_id, (host, port) in brokers.items()
        ],
        "cluster_authorized_operations": broker.guard.cluster_operations(exchange) if asks_operations else NOT_ASKED,
    }
