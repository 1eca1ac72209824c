"""DescribeGroups (15), versions 0 to 6, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class DescribedGroupMember(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=4, null_since=4, default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    member_metadata: bytes = field("bytes")
    member_assignment: bytes = field("bytes")


class DescribedGroup(Struct):
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", since=6, null_since=6, default=None)
    group_id: str = field("string")
    group_state: str = field("string")
    protocol_type: str = field("string")
    protocol_data: str = field("string")
    members: Sequence[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = field("int32", since=3, default=-2147483648)


class DescribeGroupsResponse(Response):
    KEY = 15
    throttle_time_ms: int = field("int32", since=1, default=0)
    groups: Sequence[DescribedGroup] = array(DescribedGroup)


class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    KEY = 15
    groups: Sequence[str] = array("string")
    include_authorized_operations: bool = field("bool", since=3, default=False)
