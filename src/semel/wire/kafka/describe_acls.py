"""DescribeAcls (29), versions 1 to 3, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class AclDescription(Struct):
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class DescribeAclsResource(Struct):
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", since=1, default=3)
    acls: Sequence[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response):
    KEY = 29
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    resources: Sequence[DescribeAclsResource] = array(DescribeAclsResource)


class DescribeAclsRequest(Request[DescribeAclsResponse]):
    KEY = 29
    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", null_since=0)
    pattern_type_filter: int = field("int8", since=1, default=3)
    principal_filter: str | None = field("string", null_since=0)
    host_filter: str | None = field("string", null_since=0)
    operation: int = field("int8")
    permission_type: int = field("int8")
