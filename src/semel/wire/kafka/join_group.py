"""JoinGroup (11), versions 0 to 9, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import Request, Response, Struct, array, field


class JoinGroupResponseMember(Struct):
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=5, null_since=5, default=None)
    metadata: bytes = field("bytes")


class JoinGroupResponse(Response):
    KEY = 11
    throttle_time_ms: int = field("int32", since=2, default=0)
    error_code: int = field("int16", default=0)
    generation_id: int = field("int32", default=-1)
    protocol_type: str | None = field("string", since=7, null_since=7, default=None)
    protocol_name: str | None = field("string", null_since=7)
    leader: str = field("string")
    skip_assignment: bool = field("bool", since=9, default=False)
    member_id: str = field("string")
    members: Sequence[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class JoinGroupRequestProtocol(Struct):
    name: str = field("string")
    metadata: bytes = field("bytes")


class JoinGroupRequest(Request[JoinGroupResponse]):
    KEY = 11
    group_id: str = field("string")
    session_timeout_ms: int = field("int32")
    rebalance_timeout_ms: int = field("int32", since=1, default=-1)
    member_id: str = field("string")
    group_instance_id: str | None = field("string", since=5, null_since=5, default=None)
    protocol_type: str = field("string")
    protocols: Sequence[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = field("string", since=8, null_since=8, default=None)
