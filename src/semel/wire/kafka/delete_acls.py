"""DeleteAcls (31), versions 1 to 3, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", since=1, default=3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


class DeleteAclsFilterResult(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", null_since=0, default=None)
    matching_acls: Sequence[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response):
    KEY = 31
    throttle_time_ms: int = field("int32", default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", null_since=0)
    pattern_type_filter: int = field("int8", since=1, default=3)
    principal_filter: str | None = field("string", null_since=0)
    host_filter: str | None = field("string", null_since=0)
    operation: int = field("int8")
    permission_type: int = field("int8")


class DeleteAclsRequest(Request[DeleteAclsResponse]):
    KEY = 31
    filters: Sequence[DeleteAclsFilter] = array(DeleteAclsFilter)
