"""DescribeCluster (60), versions 0 to 2: the active broker, which is its own controller, and the standbys.

A client that asks for the addresses of controllers is told that this is the wrong endpoint: the controller has no
address of its own that a client could use.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka, versions
from semel.wire.errors import ErrorCode

API: Final = Api(versions.DESCRIBE_CLUSTER, (0, 2), rights=(DESCRIBE_CLUSTER,), standby=Here.SERVES, asks_who=True)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@answered
def handle(
    broker: Serving, exchange: Exchange, request: kafka.describe_cluster.DescribeClusterRequest
) -> kafka.describe_cluster.DescribeClusterResponse:
    api = kafka.describe_cluster
    if request.endpoint_type == _CONTROLLERS:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the endpoint of a broker, not of a controller")
    if request.endpoint_type != _BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {request.endpoint_type}")
    active = {broker.role.node_id: broker.role.active_at(exchange.listener)}
    brokers = {**active, **broker.role.standbys_at(exchange.listener)}
    asks_operations = request.include_cluster_authorized_operations
    return api.DescribeClusterResponse(
        cluster_id=broker.log.state.cluster_id,
        controller_id=broker.role.node_id,
        brokers=[
            api.DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, (host, port) in brokers.items()
        ],
        cluster_authorized_operations=broker.guard.cluster_operations(exchange) if asks_operations else NOT_ASKED,
    )


def _refused(error: ErrorCode, message: str) -> kafka.describe_cluster.DescribeClusterResponse:
    return kafka.describe_cluster.DescribeClusterResponse(
        error_code=error, error_message=message, cluster_id="", brokers=()
    )
