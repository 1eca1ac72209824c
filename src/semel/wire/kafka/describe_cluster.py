"""DescribeCluster (60), versions 0 to 2, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribeClusterBroker(Struct):
    broker_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", null_since=0, default=None)
    is_fenced: bool = field("bool", since=2, default=False)


class DescribeClusterResponse(Response):
    KEY = 60
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    endpoint_type: int = field("int8", since=1, default=1)
    cluster_id: str = field("string")
    controller_id: int = field("int32", default=-1)
    brokers: Sequence[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = field("int32", default=-2147483648)


class DescribeClusterRequest(Request[DescribeClusterResponse]):
    KEY = 60
    include_cluster_authorized_operations: bool = field("bool")
    endpoint_type: int = field("int8", since=1, default=1)
    include_fenced_brokers: bool = field("bool", since=2, default=False)
